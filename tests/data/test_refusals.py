"""What the room refuses of arrays in memory: the call, the error, and the value that the message names."""

import numpy as np
import pytest
import torch

from relucid.data import Moments, Split, augment, from_arrays, holdout, jitter, k_fold, moments, ten_crops

ONE, TWO = [[1.0]], [[1.0], [2.0]]
NINE = Split(torch.arange(9).view(9, 1), torch.arange(9) % 2)
COLORS = Moments(torch.zeros(3), torch.eye(3))

REFUSALS = [
    *((lambda n=n: ten_crops(torch.zeros(2, 3, 4, 6), n), ValueError, f"4 x 6 .* {n}") for n in (0, 5, 10)),
    (lambda: jitter(torch.zeros(2, 1, 4, 4), Moments(torch.zeros(1), torch.eye(1))), ValueError, "1 channel"),
    (lambda: augment(torch.rand(1, 3, 8, 8), ("flop",), COLORS), KeyError, "flop"),
    (lambda: Split(torch.zeros(3, 1), torch.zeros(2)), ValueError, "3 inputs have 2"),
    (lambda: moments(Split(torch.zeros(0, 1), torch.zeros(0))), ValueError, "without examples"),
    (lambda: k_fold(NINE, 3, 3), ValueError, "fold 3 of 3"),
    *((lambda s=s: holdout(NINE, s), ValueError, "between 0 and 1") for s in (0.0, 1.0, -0.2, float("nan"))),
    (lambda: from_arrays([[1.0], [np.nan], [np.inf]], [0, 1, 1]), ValueError, r"2 examples .* 1$"),
    (lambda: from_arrays(TWO, [0.5, np.nan]), ValueError, r"targets of 1 examples .* 1$"),
    (lambda: from_arrays(np.zeros((0, 3)), []), ValueError, r"\(0, 3\)"),
    (lambda: from_arrays(ONE, np.zeros(0)), ValueError, r"targets of shape \(0,\)"),
    (lambda: from_arrays(1.0, 2.0), ValueError, r"inputs of shape \(\)"),
    (lambda: from_arrays([["a"], ["b"]], [0, 1]), ValueError, "inputs must be numbers"),
    (lambda: from_arrays(TWO, ["a", "b"], task="regression"), ValueError, "numbers"),
    (lambda: from_arrays(TWO, [0.5, 1.0], task="classification"), ValueError, "whole numbers"),
    (lambda: from_arrays(TWO, [-1, 1]), ValueError, "from -1"),
    (lambda: from_arrays(TWO, ["a", "c"], classes=("a", "b")), ValueError, "'c'"),
    (lambda: from_arrays(TWO, np.array(["a", None])), ValueError, "missing"),
    (lambda: from_arrays(TWO, [[0, 1], [1, 0]]), ValueError, r"\(2, 2\)"),
    (lambda: from_arrays(TWO, [0, 1, 1]), ValueError, "2 inputs have 3"),
    (lambda: from_arrays(TWO, [0, 1], task="ranking"), ValueError, "ranking"),
]


@pytest.mark.parametrize("call, error, value", REFUSALS, ids=map(str, range(len(REFUSALS))))
def test_it_is_refused_with_the_value(call, error, value):
    with pytest.raises(error, match=value):
        call()
