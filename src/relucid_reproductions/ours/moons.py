"""Two moons learned at a large rate: how far boundaries turn in a step under four parameterizations."""

from dataclasses import replace
from typing import Any

import torch

from relucid.data import Data, Split
from relucid.train import Plateau
from relucid.train.measure import LOSSES
from relucid_reproductions.gmp.evolution import evolve
from relucid_reproductions.gmp.problems import Problem, error_rate

POINTS = 1000


def moons(seed: int) -> Data[Split]:
    """Draw points of two crescents (N, 2), four fifths for training: like the Banana set, but without a download."""
    from sklearn.datasets import make_moons

    inputs, classes = make_moons(POINTS, noise=0.3, random_state=seed)
    whole = Split(torch.from_numpy(inputs), torch.from_numpy(classes))
    middle = POINTS * 4 // 5
    return Data(whole.take(range(middle)), whole.take(range(middle, POINTS)), classes=2)


PROBLEM = Problem(moons, LOSSES["bce"], error_rate, 5000, Plateau(50, 100), 10, 128)


def run(method: str, rate: float, first: int, splits: int, epochs: int, seed: int = 0) -> dict[str, Any]:
    """Train networks of ten units under one parameterization, and observe their boundaries.

    The seed is part of the recorded configurations; `first` draws data and networks.
    """
    problem = replace(PROBLEM, load=lambda split: moons(first + split))
    return evolve(problem, method, rate, "validation", splits, epochs)
