from dataclasses import replace

import numpy as np
import pytest
import torch

from relucid.data import Data, Split
from relucid.data.tables import UCI
from relucid.train import Plateau
from relucid_reproductions.gmp import fig2, fig3, spread, table3
from relucid_reproductions.gmp.problems import METHODS, PROBLEMS, Problem, as_the_authors, trials

STUDIES = {study.name: study for table in (fig2, fig3, table3) for study in table.STUDIES}


def toy(split):
    """A line with noise; every example has its own number as input."""
    generator = torch.Generator().manual_seed(split)
    x = torch.arange(40.0, dtype=torch.float64).unsqueeze(1)[torch.randperm(40, generator=generator)]
    whole = Split(x, x / 10 + 0.1 * torch.randn(40, 1, generator=generator, dtype=torch.float64))
    return Data(whole.take(range(32)), whole.take(range(32, 40)))


TOY = Problem(
    toy, PROBLEMS["boston"].loss, PROBLEMS["boston"].measure, 30, Plateau(5, 10), units=4, standardize=False
)
ONCE = {"data": "toy", "method": "SP", "stop_on": "validation", "first": 0, "splits": 2, "epochs": None}


@pytest.fixture(autouse=True)
def a_toy(monkeypatch):
    monkeypatch.setitem(PROBLEMS, "toy", TOY)


def test_validation_is_a_fifth_of_the_training_part_and_the_test_part_is_not_seen():
    networks = trials(TOY, "SP", [3], "validation")
    train, held, test = (
        set(part.inputs.flatten().tolist())
        for part in (networks.train[0], networks.monitor[0], networks.test[0])
    )
    assert (len(train), len(held), len(test)) == (25, 7, 8)
    assert len(train | held | test) == 40
    assert test == set(toy(3).test.inputs.flatten().tolist())


def test_the_published_protocol_stops_on_the_test_part():
    networks = trials(TOY, "SP", [3], "test")
    assert networks.monitor[0].targets.equal(networks.test[0].targets)
    assert networks.learn([0.01]).best.tolist() == pytest.approx(networks.errors().tolist())


def test_the_authors_plateaus_are_of_the_mean_squared_error_and_its_root_is_reported():
    networks = trials(as_the_authors(TOY), "BN", [3], "test", authors=True)
    assert (networks.problem.plateau.threshold, networks.problem.batch_size) == (1e-4, 1024)
    assert networks.networks[0].bn1.eps == 1e-3
    assert networks.learn([0.01]).best.sqrt().tolist() == pytest.approx(networks.errors().tolist())


def test_features_are_standardized_by_the_training_part():
    networks = trials(replace(TOY, standardize=True), "SP", [0], "validation")
    inputs = networks.train[0].inputs
    assert inputs.mean().item() == pytest.approx(0, abs=1e-12)
    assert inputs.std(correction=0).item() == pytest.approx(1)
    assert abs(networks.test[0].inputs.mean().item()) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_equal_splits_begin_with_equal_weights(method):
    one, other, same = trials(TOY, method, [0, 1, 0], "test").networks
    states = [torch.cat([p.flatten() for p in network.parameters()]) for network in (one, other, same)]
    assert states[0].equal(states[2])
    assert not states[0].equal(states[1])


@pytest.mark.parametrize("name", ["gmp/uci", "gmp/levy", "gmp/banana"])
def test_with_r_one_geometric_scales_begin_there_and_the_other_runs_are_the_same(name):
    one, usual = ({run.key: run.config for run in STUDIES[of].runs("full")} for of in (f"{name}-one", name))
    assert {config["method"] for key, config in one.items() if key not in usual} == {"GmP"}
    assert {config["method"] for key, config in one.items() if key in usual} == {"SP", "WN", "BN"}
    assert {config.get("init") for config in one.values()} == {"one", None}
    ours, theirs = (
        trials(TOY, "GmP", [0], "test", init=init).networks[0].fc1.scale for init in ("one", "glorot")
    )
    assert (ours == 1).all()
    assert not (theirs == 1).any()


def test_each_split_has_the_rate_that_validates_best():
    metrics = table3.run(**ONCE, rates=[1e-5, 0.03])
    assert metrics["rate"] == [0.03, 0.03]
    assert metrics["error"] == metrics["error at 0.03"]
    assert np.less(metrics["error"], metrics["error at 1e-05"]).all()


@pytest.mark.parametrize("change", [{"batch_size": 5}, {"authors": True}, {"init": "one"}, {"first": 1}])
def test_every_setting_of_a_run_matters(change):
    config = ONCE | {"method": "GmP", "rates": [0.01]}
    assert table3.run(**config)["error"] != table3.run(**config | change)["error"]


def test_the_two_larger_sets_are_those_that_do_not_fit_into_a_batch():
    batches = STUDIES["gmp/uci-batches"]
    (size,) = {run.config["batch_size"] for run in batches.runs("full")}
    assert [name.title() for name, (rows, *_) in UCI.items() if rows * 4 // 5 > size] == list(batches.columns)


def test_what_is_far_from_the_paper_is_named(filled):
    def values(row, column, place):
        mean, error = table3.uci.published.get((row, column), (1.0, 0.1))
        return mean + (5 * error if (row, column) == ("GmP", "Boston") else 0)

    assert table3.far(filled(table3.uci, values)) == ["GmP on Boston, 3.777 (5.0)"]


def test_locations_on_a_grid_leave_smaller_gaps_than_chance_and_locations_at_one_point_larger_ones():
    inputs = torch.rand(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    axis = (torch.arange(5, dtype=torch.float64) + 0.5) / 5
    chance = spread.uniform_gap(inputs, 25, 0)
    assert spread.gap(inputs, torch.cartesian_prod(axis, axis)) < 0.85 * chance
    assert spread.gap(inputs, torch.full((25, 2), 0.5)) > 2 * chance
    # The mean distance from a point of the square to a random one of as many per unit of area (without its border)
    assert chance == pytest.approx(0.5 / 25**0.5, rel=0.15)


def test_the_shell_holds_nine_tenths_of_the_inputs():
    inputs = torch.randn(1000, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert spread.share_in_the_shell(inputs, inputs) == pytest.approx(90)
    assert spread.share_in_the_shell(inputs, 0 * inputs) == 0
