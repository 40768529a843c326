from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from relucid.studies.gmp import STUDIES, evolution, images, perturbation, rates, uci
from relucid.studies.gmp.evolution import ADAM
from relucid.studies.gmp.problems import METHODS, PROBLEMS, Problem, trials

from relucid.data import Data, Split
from relucid.data.tables import UCI
from relucid.inspect import BoundaryTracker
from relucid.models import create
from relucid.studies import Cell, Table, find, plan, run, table
from relucid.train import Plateau
from relucid.train.ensemble import BETA1, BETA2

BY_NAME = {study.name: study for study in STUDIES}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data directory with files of the right shape: random numbers with a bit of sense in them."""
    rng = np.random.default_rng(0)
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    (tmp_path / "uci").mkdir()
    rows, columns, _ = UCI["yacht"]
    numbers = rng.normal(size=(rows, columns))
    numbers[:, -1] = numbers[:, 0] + numbers[:, 1] ** 2
    np.savetxt(tmp_path / "uci" / "yacht.txt", numbers)
    points = rng.normal(size=(5300, 2))
    classes = np.where((points**2).sum(1) > 1.4, 1, -1)
    lines = [f"{x:.4f},{y:.4f},{c}" for (x, y), c in zip(points, classes, strict=True)]
    (tmp_path / "banana.csv").write_text("\n".join(["At1,At2,Class", *lines]) + "\n")
    return tmp_path


def smoke(study, place, only=None):
    run(study, "smoke", only=only, store=place / "runs", jobs=1)
    found = table(study, "smoke", only=only, store=place / "runs")
    assert {cell.states.get("finished", 0) for cell in found.cells.values()} == {1}, [
        each["error"] for each in found.runs
    ]
    return found


def narrowed(study, columns):
    """A study with some of its columns only."""
    kept = {label: column for label, column in study.columns.items() if label in columns}
    published = {row: {c: f for c, f in cells.items() if c in kept} for row, cells in study.published.items()}
    return replace(study, columns=kept, published=published)


def test_uci_runs_both_protocols(data):
    study = narrowed(BY_NAME["gmp/uci"], ["Yacht"])
    found = smoke(study, data)
    assert len(found.cells) == 8
    for each in found.runs:
        held_out = each["config"]["stop_on"] == "validation"
        assert len(each["metrics"]["error"]) == 2
        assert sum(name.startswith("error at") for name in each["metrics"]) == (6 if held_out else 1)
    assert found.verdict.startswith("As published, GmP has the lowest mean error on ")


def test_batches_make_a_difference(data):
    config = {"data": "yacht", "method": "SP", "stop_on": "test", "rates": [0.01], "splits": 1, "epochs": 2}
    full, batches = (uci.run({**config, **more}).metrics["error"] for more in ({}, {"batch_size": 50}))
    assert full != batches


def test_the_two_larger_sets_are_those_that_do_not_fit_into_a_batch():
    (size,) = {each.config["batch_size"] for each in plan(uci.BATCHES, "full")}
    assert [name.title() for name, (rows, *_) in UCI.items() if rows * 4 // 5 > size] == list(uci.LARGE_SETS)
    assert not {each.key for each in plan(uci.BATCHES, "full")} & {each.key for each in plan(uci.UCI, "full")}


@pytest.mark.parametrize("name", ["gmp/levy", "gmp/banana", "gmp/perturbation"])
def test_a_figure_runs_and_is_judged(name, data):
    found = smoke(BY_NAME[name], data)
    assert "under GmP" in found.verdict


@pytest.mark.parametrize("name, row", [("gmp/vgg6", "GmP+IMN"), ("gmp/resnet50", "WN+MBN")])
def test_a_network_for_images_is_trained(name, row, tmp_path):
    found = smoke(BY_NAME[name], tmp_path, only=row)
    assert all(0 <= cell.mean <= 100 for cell in found.cells.values())


@pytest.mark.parametrize("study", [images.VGG6, images.RESNET50], ids=lambda study: study.name)
def test_all_networks_for_images_build(study):
    for each in plan(study, "smoke"):
        name = f"gmp/{each.config['backbone']}-{each.config['design']}"
        create(name, num_classes=10, in_channels=1, width=each.config["width"], init="glorot")


def test_all_studies_are_found_by_name():
    assert [find(name) for name in BY_NAME] == list(STUDIES)


def test_robustness_on_uci_takes_the_runs_of_the_table():
    of_the_table = {each.key for each in plan(uci.UCI, "full")}
    mine = {each.key: each.config["data"] for each in plan(rates.RATES_STUDY, "full")}
    shared = [data for key, data in mine.items() if key in of_the_table]
    assert sorted(set(shared)) == sorted(uci.SETS)
    assert len(shared) == len(uci.SETS) * len(METHODS)


def toy(split):
    """A line with noise; every example has its own number as input."""
    generator = torch.Generator().manual_seed(split)
    x = torch.arange(40.0, dtype=torch.float64).unsqueeze(1)[torch.randperm(40, generator=generator)]
    whole = Split(x, x / 10 + 0.1 * torch.randn(40, 1, generator=generator, dtype=torch.float64))
    return Data(whole.take(range(32)), whole.take(range(32, 40)))


TOY = Problem(
    toy, PROBLEMS["boston"].loss, PROBLEMS["boston"].measure, 30, Plateau(5, 10), units=4, standardize=False
)


def test_validation_is_a_fifth_of_the_training_part_and_the_test_part_is_not_seen():
    found = trials(TOY, "SP", [3], "validation")
    train, held, test = (
        set(part.inputs.flatten().tolist()) for part in (found.train[0], found.monitor[0], found.test[0])
    )
    assert (len(train), len(held), len(test)) == (25, 7, 8)
    assert len(train | held | test) == 40
    assert test == set(toy(3).test.inputs.flatten().tolist())


def test_the_published_protocol_stops_on_the_test_part():
    found = trials(TOY, "SP", [3], "test")
    assert found.monitor[0].targets.equal(found.test[0].targets)
    best = found.learn([0.01]).best
    assert best.tolist() == pytest.approx(found.errors().tolist())


def test_features_are_standardized_by_the_training_part():
    problem = Problem(toy, TOY.loss, TOY.measure, 1, TOY.plateau, units=4)
    found = trials(problem, "SP", [0], "validation")
    inputs = found.train[0].inputs
    assert inputs.mean().item() == pytest.approx(0, abs=1e-12)
    assert inputs.std(correction=0).item() == pytest.approx(1)
    assert abs(found.test[0].inputs.mean().item()) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_equal_splits_begin_with_equal_weights(method):
    one, other, same = trials(TOY, method, [0, 1, 0], "test").networks
    states = [torch.cat([p.flatten() for p in each.parameters()]) for each in (one, other, same)]
    assert states[0].equal(states[2])
    assert not states[0].equal(states[1])


def test_each_split_has_the_rate_that_validates_best(monkeypatch):
    monkeypatch.setitem(PROBLEMS, "toy", TOY)
    config = {"data": "toy", "method": "SP", "stop_on": "validation", "rates": [1e-5, 0.03], "splits": 2}
    metrics = uci.run({**config, "epochs": None}).metrics
    assert metrics["rate"] == [0.03, 0.03]
    assert metrics["error"] == metrics["error at 0.03"]
    assert np.less(metrics["error"], metrics["error at 1e-05"]).all()


@pytest.mark.parametrize("batch_size", [None, 10])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_watch_sees_what_a_tracker_sees_in_a_loop(method, features, batch_size):
    generator = torch.Generator().manual_seed(0)
    parts = [
        Split(*torch.randn(2, 20, features, generator=generator, dtype=torch.float64).split(1))
        for _ in range(3)
    ]
    parts = [Split(part.inputs[0], part.targets[0, :, :1]) for part in parts]
    problem = Problem(
        lambda split: Data(parts[split], parts[split]),
        TOY.loss,
        TOY.measure,
        4,
        Plateau(9, 9),
        5,
        batch_size,
        False,
    )
    found = trials(problem, method, [0, 1, 2], "train")
    alone = deepcopy(found.networks)
    steps = 4 * (1 if batch_size is None else 2)
    watch = evolution.Watch(found.networks, method, 5, steps, parts[0].inputs)
    found.learn([0.03] * 3, observe=watch)
    for place, network in enumerate(alone):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
        tracker = BoundaryTracker(network, parts[0].inputs).attach(optimizer)
        order = torch.Generator().manual_seed(place)
        for _ in range(4):
            whole = torch.arange(20) if batch_size is None else torch.randperm(20, generator=order)
            for batch in whole.split(batch_size or 20):
                optimizer.zero_grad()
                network.train()
                TOY.loss(network(parts[place].inputs[batch]), parts[place].targets[batch]).backward()
                optimizer.step()
        evolved = tracker.result()
        (name,) = evolved.moved
        assert watch.moved[:, place].tolist() == pytest.approx(evolved.moved[name].tolist(), rel=1e-6)
        assert watch.turned[:, place].tolist() == pytest.approx(
            evolved.turned[name].tolist(), rel=1e-6, abs=1e-9
        )
        if place == 0:
            last = watch.frames[steps][0].location
            assert last.allclose(evolved.locations[name][-1])


def cell(values, published=(None, None)):
    return Cell(tuple(values), 1, {"finished": 1}, published)


def filled(study, values):
    """A table whose cells have these values, by row and column."""
    published = {(row, c): f for row, cells in study.published.items() for c, f in cells.items()}
    cells = {
        (row, column): cell(values(row, column), published.get((row, column), (None, None)))
        for row in study.rows
        for column in study.columns
    }
    return Table(study, "full", cells, [])


def test_the_table_of_the_paper_confirms_itself():
    study = uci.UCI

    def values(row, column):
        mean, _ = study.published[row.partition(",")[0]][column]
        return [mean - 0.001, mean + 0.001]

    verdict = filled(study, values).verdict
    assert verdict.startswith(
        "As published, GmP has the lowest mean error on 6 of 6 sets, on 6 of them by more"
    )
    assert "24 of 24 means are within three published standard errors." in verdict
    assert "With validation data, GmP has the lowest mean error on 6 of 6 sets" in verdict


def test_what_is_far_from_the_paper_is_told():
    study = uci.UCI

    def values(row, column):
        mean, error = study.published[row.partition(",")[0]][column]
        off = 5 * error if (row, column) == ("GmP", "Boston") else 0
        return [mean + off, mean + off]

    verdict = filled(study, values).verdict
    assert "GmP has the lowest mean error on 5 of 6 sets" in verdict
    assert "23 of 24 means" in verdict
    assert "(how many away): GmP on Boston 3.777 instead of 3.057 (5.0)." in verdict


def test_differences_are_judged_split_by_split():
    study = uci.UCI
    spread = [1.0, 5.0, 9.0]

    def values(row, column):
        return [value - 0.1 * ("GmP" in row) for value in spread]

    assert "on 6 of 6 sets, on 6 of them by more than two standard errors" in filled(study, values).verdict

    def noisy(row, column):
        return spread[::-1] if "GmP" in row else [value + 0.1 for value in spread]

    assert "on 6 of 6 sets, on 0 of them by more than two standard errors" in filled(study, noisy).verdict


@pytest.mark.parametrize(
    "gmp, word",
    [
        (1.0, "is lower than that"),
        (3.0, "is higher than that"),
        (2.0, "is close to that"),
    ],
)
def test_the_verdict_on_levy_weighs_errors_and_steps(gmp, word):
    def values(row, column):
        if column.startswith("log2"):
            return [-2.0, -1.5] if row == "GmP" else [10.0, 16.0]
        return [gmp, gmp + 0.01] if row == "GmP" else [2.0, 2.02]

    verdict = filled(evolution.LEVY, values).verdict
    assert "no step of a characteristic point is larger than 0.35 under GmP" in verdict
    assert "2^16 under SP" in verdict
    assert "stays below 1 under GmP." in verdict
    assert "no step of Adam exceeds 7.27 rates, here 0.73" in verdict
    assert verdict.count(word) == 2


def test_the_verdict_on_banana_lets_the_others_have_the_large_rate_too():
    def values(row, column):
        if column.startswith("largest"):
            return [1.0, 2.0]
        return {"GmP": [5.0, 5.1], "SP": [4.0, 4.2] if column.endswith("0.1") else [7.0, 7.2]}.get(
            row, [8.0, 9.0]
        )

    verdict = filled(evolution.BANANA, values).verdict
    assert (
        "At the paper's rates the error under GmP, 5.0, is lower than that under the best of the others, SP, 7.1"
        in verdict
    )
    assert "either rate it is higher than that under the best of the others, SP at rate 0.1, 4.1" in verdict


def test_the_widest_range_of_rates_is_named():
    def values(row, column):
        wide = row.endswith("BN")
        return [1.0] if column == "rate 0.01" or (wide and column in ("rate 0.003", "rate 0.03")) else [2.0]

    verdict = filled(rates.RATES_STUDY, values).verdict
    assert "1.0 under SP, 1.0 under WN, 10.0 under BN, 1.0 under GmP" in verdict
    assert "widest under BN" in verdict
    assert "0.010 for SP" in verdict


def test_the_verdict_on_images_compares_difference_and_noise():
    def values(row, column):
        return {"GmP+IMN": [50.0, 51.0], "BN": [49.0, 49.2] if column == "top-1" else [49.0, 53.0]}.get(
            row, [1.0, 2.0]
        )

    verdict = filled(images.RESNET50, values).verdict
    assert "top-1: above BN (+1.4 ± 0.5)" in verdict
    assert "top-5: no clear difference from BN (-0.5 ± 2.1)" in verdict


def test_perturbations_turn_small_units_far_unless_they_are_geometric():
    found = {
        method: perturbation.run({"method": method, "units": 200, "seed": 0}).metrics
        for method in perturbation.KINDS
    }
    assert max(found["GmP"]["turn at 0.001"]) == pytest.approx(np.rad2deg(1e-3))
    assert max(found["SP"]["turn at 0.001"]) > 90
    assert found["SP"]["turn at 0.001"] == pytest.approx(found["WN"]["turn at 0.001"])


def test_no_step_of_adam_is_longer_than_the_bound_and_the_worst_gradients_come_near_it():
    steps = 3000
    worst = [(BETA1 / BETA2) ** back for back in reversed(range(steps))]
    parameter = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=1.0)
    for gradient in worst:
        before = parameter.item()
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    assert 0.97 * ADAM < abs(parameter.item() - before) <= ADAM
