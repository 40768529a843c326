from collections import Counter

import numpy as np
import pytest
import torch

from relucid_reproductions.gmp import rates, table3
from relucid_reproductions.gmp.problems import METHODS
from relucid_reproductions.gmp.section4_3 import network


def test_robustness_on_uci_takes_the_runs_of_the_table():
    of_the_table = {run.key for run in table3.uci.runs("full")}
    shared = Counter(run.config["data"] for run in rates.by_rate.runs("full") if run.key in of_the_table)
    assert shared == {data.lower(): len(METHODS) * (1 if data == "Power" else 5) for data in table3.SETS}


def test_the_range_of_good_rates_is_compared_and_stated(filled, found):
    def values(row, column, place):
        wide = row.endswith("GmP")
        good = column == "rate 0.01" or (wide and column in ("rate 0.003", "rate 0.03"))
        return [1.0, 1.001] if good else [2.0, 2.001]

    results = filled(rates.by_rate, values)
    finding = found(results, "Abstract, range of learning rates")
    assert finding.outcome == "confirmed"
    assert [verdict.comparison.effect for verdict in finding.verdicts] == pytest.approx([np.log(10)] * 3)
    assert [rates.span(results, method) for method in METHODS] == pytest.approx([1, 1, 1, 10])
    assert rates.best(results, "SP") == pytest.approx(0.01)


def test_a_problem_with_fewer_splits_is_drawn_as_often_as_it_has_splits():
    # Two splits that put the best rate far apart: ten draws of two must not pass for ten splits.
    errors = np.array([[1.0, 9.0], [5.0, 5.0], [9.0, 1.0], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0]])
    widths = rates.log_widths(errors, np.random.default_rng(0).integers(10, size=(200, 10)))
    both = np.log(rates.width(errors.mean(1).tolist()))
    assert (widths == both).mean() == pytest.approx(0.5, abs=0.15)
    assert set(widths) == {0.0, both}


@pytest.mark.parametrize("init", ["one", "unscaled"])
@pytest.mark.parametrize("method", METHODS)
def test_units_begin_with_weights_of_the_length_of_their_row(method, init):
    net = network(method, init, width=20, depth=3)
    for number, inputs in ((1, 64), (2, 20), (3, 20)):
        lengths = net.get_submodule(f"fc{number}").weight.detach().norm(dim=1)
        torch.testing.assert_close(lengths, torch.full((20,), 1.0 if init == "one" else inputs**0.5))
