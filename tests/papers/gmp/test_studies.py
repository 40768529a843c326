from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from relucid.data import DamagedDataError, Data, Split
from relucid.data.tables import UCI
from relucid.inspect import BoundaryTracker, boundary
from relucid.models import create
from relucid.papers import find
from relucid.papers.gmp import STUDIES, evolution, fig1, images, rates, section4_3, table1, table2, table3
from relucid.papers.gmp.evolution import ADAM
from relucid.papers.gmp.problems import METHODS, PROBLEMS, Problem, as_the_authors, trials
from relucid.studies import plan, table
from relucid.studies.store import Outcome, Store
from relucid.train import Plateau
from relucid.train.adam import BETA1, BETA2

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


def narrowed(study, columns):
    """A study with some of its columns only, and without the claims on the others."""
    kept = {label: column for label, column in study.columns.items() if label in columns}
    published = {row: {c: f for c, f in cells.items() if c in kept} for row, cells in study.published.items()}
    return replace(study, columns=kept, published=published, claims=())


def test_uci_runs_both_protocols(data, smoke_tested):
    study = narrowed(BY_NAME["gmp/uci"], ["Yacht"])
    found = smoke_tested(study, data / "runs")
    assert len(found.cells) == 8
    for each in found.runs:
        held_out = each["config"]["stop_on"] == "validation"
        assert len(each["metrics"]["error"]) == 2
        assert sum(name.startswith("error at") for name in each["metrics"]) == (6 if held_out else 1)


def test_batches_make_a_difference(data):
    config = {
        "data": "yacht",
        "method": "SP",
        "stop_on": "test",
        "rates": [0.01],
        "first": 0,
        "splits": 1,
        "epochs": 2,
    }
    full, batches = (table3.run({**config, **more}).metrics["error"] for more in ({}, {"batch_size": 50}))
    assert full != batches


def test_the_two_larger_sets_are_those_that_do_not_fit_into_a_batch():
    (size,) = {each.config["batch_size"] for each in plan(table3.BATCHES, "full")}
    assert [name.title() for name, (rows, *_) in UCI.items() if rows * 4 // 5 > size] == list(
        table3.LARGE_SETS
    )
    assert not {each.key for each in plan(table3.BATCHES, "full")} & {
        each.key for each in plan(table3.UCI, "full")
    }


def test_width_and_depth_are_tried_under_every_initialization(tmp_path, smoke_tested):
    study = BY_NAME["gmp/width"]
    tried = {(config["method"], config["init"]) for config in study.rows.values()}
    assert tried == {(method, init) for method in METHODS for init in ("one", "glorot", "unscaled")}
    shapes = {(column.config["width"], column.config["depth"]) for column in study.columns.values()}
    assert shapes >= {(16, 1), (4096, 1), (128, 5)}
    found = smoke_tested(narrowed(study, ["width 16", "depth 5"]), tmp_path, only="GmP, unscaled")
    for each in found.runs:
        errors, trained = (each["metrics"][name] for name in ("error", "trained"))
        assert trained == [100.0 * (error < 50) for error in errors]


@pytest.mark.parametrize("name", ["gmp/levy", "gmp/banana", "gmp/perturbation"])
def test_a_figure_runs_at_smoke_scale_and_is_not_judged(name, data, smoke_tested):
    found = smoke_tested(BY_NAME[name], data / "runs")
    assert (found.judged, found.verdict) == ({}, None)


@pytest.mark.parametrize("name, row", [("gmp/vgg6", "GmP+IMN"), ("gmp/resnet50", "WN+MBN")])
def test_a_network_for_images_is_trained(name, row, tmp_path, smoke_tested):
    found = smoke_tested(BY_NAME[name], tmp_path, only=row)
    for record in found.runs:
        last = {name: values[-1] for name, values in record["history"].items()}
        accuracies = [100 - last["val_error"], 100 - last["val_error5"]]
        assert [record["metrics"]["top1"], record["metrics"]["top5"]] == pytest.approx(accuracies)
        assert 0 < accuracies[0] < accuracies[1]


@pytest.mark.parametrize("study", [table2.STUDY, table1.STUDY], ids=lambda study: study.name)
def test_all_networks_for_images_build(study):
    images = torch.randn(2, 1, 32, 32)
    for each in plan(study, "smoke"):
        name = f"gmp/{each.config['backbone']}-{each.config['design']}"
        network = create(name, num_classes=10, in_channels=1, width=each.config["width"], init="glorot")
        with torch.no_grad():
            outputs = network.eval()(images)
        assert outputs.shape == (2, 10)
        assert outputs.isfinite().all()


def test_all_studies_are_found_by_name():
    assert [find(name) for name in BY_NAME] == list(STUDIES)


def test_robustness_on_uci_takes_the_runs_of_the_table():
    of_the_table = {each.key for each in plan(table3.UCI, "full")}
    mine = {each.key: each.config["data"] for each in plan(rates.STUDY, "full")}
    shared = [data for key, data in mine.items() if key in of_the_table]
    blocks = {data: 1 if data in table3.ONCE else 5 for data in table3.SETS}
    assert Counter(shared) == {data: count * len(METHODS) for data, count in blocks.items()}


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


def test_the_authors_plateaus_are_of_the_mean_squared_error_and_its_root_is_reported():
    found = trials(as_the_authors(TOY), "BN", [3], "test", authors=True)
    assert (found.problem.plateau.threshold, found.problem.batch_size) == (1e-4, 1024)
    assert found.networks[0].bn1.eps == 1e-3
    best = found.learn([0.01]).best
    assert best.sqrt().tolist() == pytest.approx(found.errors().tolist())


@pytest.fixture
def made(monkeypatch):
    """A function that returns the network and the recipe of a run, on digits."""

    def make(config):
        found = []

        def fit(network, train, recipe, *rest, **named):
            found.extend((network, recipe))
            raise InterruptedError

        monkeypatch.setattr(images, "fit", fit)
        with pytest.raises(InterruptedError):
            images.run(config | {"data": "digits", "images": [9, 9], "width": 1 / 16}, None)
        return tuple(found)

    return make


# gmp C.1, C.2; the authors' imagenet32.py; Chrabaszcz et al.
FULL = {
    "gmp/vgg6": (90, "val_error", 0.0, 0.0, "groups", True, "gmp/vgg6-gmp-imn"),
    "gmp/vgg6-authors": (500, "val_error5", 0.01, 0.0, "groups", "mean", "gmp/vgg6-gmp-imn-authors"),
    "gmp/vgg6-source": (90, "val_error", 0.0, 5e-4, "scales", "mean_image", "gmp/vgg6-gmp-imn"),
    "gmp/resnet50": (90, "val_error", 0.0, 1e-4, "scales", True, "gmp/resnet50-gmp-imn"),
    "gmp/resnet50-authors": (90, "val_error5", 0.01, 1e-4, "scales", "mean", "gmp/resnet50-gmp-imn-authors"),
}


@pytest.mark.parametrize("name", FULL)
def test_the_recipe_at_full_scale_is_that_of_the_setup(name, made):
    network, recipe = made(plan(BY_NAME[name], "full", only=images.BEST)[0].config)
    found = (recipe.epochs, recipe.monitor, recipe.plateau.threshold, recipe.weight_decay, recipe.decay)
    assert (*found, recipe.normalize, network.name) == FULL[name]
    assert (recipe.plateau.patience, recipe.plateau.stop, recipe.plateau.factor) == (5, 10, 0.1)
    assert (recipe.optimizer, recipe.momentum, recipe.lr, recipe.batch_size) == ("sgd", 0.9, 0.1, 256)


def test_in_resnet50_weight_decay_shrinks_the_scales_of_geometric_layers_and_turns_no_direction(made):
    network, recipe = made(plan(table1.STUDY, "full", only=images.BEST)[0].config)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    groups = recipe.make_optimizer(network).param_groups
    decayed = [names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]]
    kinds = Counter(name.rpartition(".")[2] for name in decayed)
    assert kinds == {"scale": 53, "weight": 1, "bias": 1}  # 53 convolutions and the classifier
    assert {name.partition(".")[0] for name in decayed if not name.endswith("scale")} == {"fc"}


@pytest.mark.parametrize("study", [table1.STUDY, table2.STUDY], ids=lambda study: study.name)
def test_r_is_one_in_rows_of_its_own_and_glorots_length_in_the_others(study, made):
    for row, config in study.rows.items():
        if "gmp" in config["design"]:
            network, _ = made(plan(study, "full", only=row)[0].config)
            scales = torch.cat(
                [p.detach() for name, p in network.named_parameters() if name.endswith(".scale")]
            )
            assert (scales == 1).all() if "r = 1" in row else not (scales == 1).any()
    assert {"GmP+IMN, r = 1"} <= set(study.rows)


def test_imagenet32_is_read_from_the_files_of_its_source(monkeypatch, tmp_path):
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    (tmp_path / "imagenet32").mkdir()
    with pytest.raises(DamagedDataError, match="has no train_data_batch"):
        images.run(plan(table2.STUDY, "full")[0].config, None)


@pytest.mark.parametrize("init", ["one", "unscaled"])
@pytest.mark.parametrize("method", METHODS)
def test_units_begin_with_weights_of_the_length_of_their_row(method, init):
    net = section4_3.network(method, init, width=20, depth=3)
    for number, inputs in ((1, 64), (2, 20), (3, 20)):
        lengths = net.get_submodule(f"fc{number}").weight.detach().norm(dim=1)
        torch.testing.assert_close(lengths, torch.full((20,), 1.0 if init == "one" else inputs**0.5))


@pytest.mark.parametrize("name", ["gmp/uci", "gmp/levy", "gmp/banana"])
def test_with_r_one_geometric_scales_begin_there_and_the_other_runs_are_the_same(name):
    study, one = BY_NAME[name], BY_NAME[f"{name}-one"]
    ours, theirs = ({each.key: each.config for each in plan(each, "full")} for each in (one, study))
    assert {config["method"] for key, config in ours.items() if key not in theirs} == {"GmP"}
    assert {config["method"] for key, config in ours.items() if key in theirs} == {"SP", "WN", "BN"}
    scales = [trials(TOY, "GmP", [0], "test", init=init).networks[0].fc1.scale for init in ("one", "glorot")]
    assert (scales[0] == 1).all()
    assert not (scales[1] == 1).any()


def test_runs_begin_with_the_scales_of_their_configuration(monkeypatch):
    begun = []
    monkeypatch.setitem(PROBLEMS, "toy", TOY)

    def tried(*arguments, **named):
        begun.append(trials(*arguments, **named).networks[0].fc1.scale)
        raise InterruptedError

    for module in (table3, evolution):
        monkeypatch.setattr(module, "trials", tried)
        config = {"data": "toy", "method": "GmP", "stop_on": "test", "epochs": 1, "splits": 1}
        for more in ({}, {"init": "one"}):
            with pytest.raises(InterruptedError):
                module.run({**config, "rates": [0.1], "rate": 0.1, "first": 0, **more})
    assert [bool((scale == 1).all()) for scale in begun] == [False, True, False, True]


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
    config = {
        "data": "toy",
        "method": "SP",
        "stop_on": "validation",
        "rates": [1e-5, 0.03],
        "first": 0,
        "splits": 2,
    }
    metrics = table3.run({**config, "epochs": None}).metrics
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
    watch = evolution.EvolutionWatch(found.networks, method, 5, steps, parts[0].inputs)
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
            assert last.allclose(boundary(*tracker.layers[name]).location)


def published_as(study, row, column):
    """The paper's figure and standard error, of a method under either protocol."""
    return study.published[row.partition(",")[0]][column]


def test_the_table_of_the_paper_confirms_itself(filled, standing):
    def values(row, column):
        mean, _ = published_as(table3.UCI, row, column)
        return [mean - 0.0001 * len(row), mean, mean + 0.00011 * len(row)]  # no two rows vary alike

    found = filled(table3.UCI, values, "full")
    for where in ("Table 3, as published", "Table 3, held out"):
        assert standing(found, where).state == "holds"
        assert len(standing(found, where).judged) == 18
    assert standing(found, "Table 3, as published").remark == (
        "24 of 24 means are within three published standard errors."
    )


def test_the_remark_names_what_is_far_from_the_paper(filled, standing):
    def values(row, column):
        mean, error = published_as(table3.UCI, row, column)
        off = 5 * error if (row, column) == ("GmP", "Boston") else 0
        return [mean + off - 0.0001 * len(row), mean + off, mean + off + 0.00011 * len(row)]

    found = standing(filled(table3.UCI, values, "full"), "Table 3, as published")
    assert found.outcome == "holds (15 of 18 hold, 3 the opposite)"
    assert {each.expected.a.column for each in found.judged if each.outcome != "holds"} == {"Boston"}
    assert found.remark.startswith("23 of 24 means")
    assert found.remark.endswith("in standard errors: GmP on Boston 3.777 instead of 3.057 (5.0).")


def test_differences_are_judged_split_by_split(filled, standing):
    spread = [1.0, 5.0, 9.0, 4.0]

    def shifted(row, column):
        return [value - (0.1 + 0.001 * k) * ("GmP" in row) for k, value in enumerate(spread)]

    assert standing(filled(table3.UCI, shifted, "full"), "Table 3, held out").state == "holds"

    def noisy(row, column):
        return spread[::-1] if "GmP" in row else [value + 0.1 for value in spread]

    assert standing(filled(table3.UCI, noisy, "full"), "Table 3, held out").state == "no difference found"


def test_levy_weighs_steps(filled, standing):
    def values(row, column):
        return [-2.0, -1.5, -1.8] if row == "GmP" else [14.0, 15.0, 16.0]

    found = filled(BY_NAME["gmp/levy"], values, "full")
    steps = standing(found, "Fig. 2")
    assert steps.state == "true"  # by construction: it is not counted as an experiment
    assert not steps.counts
    assert "the largest step of a characteristic point is 0.35 under GmP" in steps.remark
    assert "2^16 under SP" in steps.remark
    assert "stays below 1 under GmP." in steps.remark
    assert "no step of Adam exceeds 7.27 rates, here 0.73" in steps.remark
    assert standing(found, "Fig. 2, other parameterizations").outcome == "holds (3 of 3 hold)"


@pytest.mark.parametrize("where, problem", [("Fig. 2", "Levy"), ("Fig. 3", "Banana")])
def test_generalisation_is_compared_at_the_papers_rates_and_at_gmps(filled, standing, where, problem):
    def values(row, column):
        if row == f"{problem} SP" and column == "rate 0.1":
            return [4.0, 4.2, 4.1]
        return [5.0, 5.1, 5.05] if row.endswith("GmP") else [7.0, 7.2, 7.1]

    found = filled(rates.STUDY, values, "full")
    assert standing(found, f"{where}, generalisation").outcome == "holds (3 of 3 hold)"
    equal = standing(found, f"{where}, generalisation at equal rates")
    assert equal.outcome == "holds (2 of 3 hold, 1 the opposite)"
    assert [each.expected.b.row for each in equal.judged] == [f"{problem} {m}" for m in ("SP", "WN", "BN")]


def test_the_range_of_good_rates_is_compared_and_stated(filled, standing):
    def values(row, column):
        wide = row.endswith("GmP")
        good = column == "rate 0.01" or (wide and column in ("rate 0.003", "rate 0.03"))
        return [1.0, 1.001] if good else [2.0, 2.001]

    found = standing(filled(rates.STUDY, values, "full"), "Abstract, range of learning rates")
    assert found.state == "holds"
    assert [each.found.effect for each in found.judged] == pytest.approx([np.log(10)] * 3)
    assert "1.0 under SP, 1.0 under WN, 1.0 under BN, 10.0 under GmP" in found.remark
    assert "0.010 for SP" in found.remark


def test_a_problem_with_fewer_splits_is_drawn_as_often_as_it_has_splits():
    # Two splits that put the best rate far apart: ten draws of two must not pass for ten splits.
    errors = np.array([[1.0, 9.0], [5.0, 5.0], [9.0, 1.0], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0]])
    places = np.random.default_rng(0).integers(10, size=(200, 10))
    found = rates._log_widths(errors, places)
    both = np.log(rates.width(errors.mean(1).tolist()))
    assert (found == both).mean() == pytest.approx(0.5, abs=0.15)
    assert set(found) == {0.0, both}


def test_networks_for_images_are_compared_with_each_other_network(filled, standing):
    def values(row, column):
        of_bn = [47.0, 47.2, 47.1] if column == "top-1" else [49.0, 53.0, 51.0]
        return {"GmP+IMN": [50.0, 51.0, 50.4], "BN": of_bn}.get(row, [1.0, 2.0, 1.5])

    found = standing(filled(table1.STUDY, values, "full"), "Table 1")
    outcomes = {each.expected.label: each.outcome for each in found.judged}
    assert outcomes["GmP+IMN minus BN, top-1"] == "holds"
    assert outcomes["GmP+IMN minus BN, top-5"] == "undecided"  # published: 1.57
    assert found.outcome == "holds (3 of 4 hold, 1 undecided)"


def test_convergence_is_judged_by_the_course_of_training(filled, standing):
    study = table2.STUDY

    def runs(of_best):
        return [
            {
                "config": {**study.config, **config, **table2.LARGEST, "seed": seed},
                "state": "finished",
                "history": {
                    "val_error5": [
                        90.0 - seed,
                        of_best - 1.3 * seed if row == table2.BEST else 80.0 - 1.1 * seed,
                    ]
                },
            }
            for row, config in study.rows.items()
            for seed in range(3)
        ]

    def same(row, column):
        return [10.0, 11.0, 12.0]

    faster, slower = (standing(filled(study, same, runs=runs(of_best)), "Fig. 4") for of_best in (60.0, 90.0))
    assert [faster.state, slower.state] == ["holds", "the opposite holds"]
    assert [each.found.effect for each in faster.judged] == pytest.approx([10.1] * 5)


def test_convergence_is_judged_over_the_epochs_that_all_runs_have(filled, standing):
    study = table2.STUDY

    def history(row, seed):  # the best network learns as the others do, and is stopped early
        errors = [90.0, 70.0, 60.0 + seed, 50.0, 50.0, 50.0]
        return errors[:3] if row == table2.BEST else errors

    runs = [
        {
            "config": {**study.config, **config, **table2.LARGEST, "seed": seed},
            "state": "finished",
            "history": {"val_error5": history(row, seed)},
        }
        for row, config in study.rows.items()
        for seed in range(3)
    ]
    found = standing(filled(study, lambda row, column: [10.0, 11.0, 12.0], runs=runs), "Fig. 4")
    assert [each.found.effect for each in found.judged] == pytest.approx([0.0] * 5)


def test_fig_4_has_standard_errors(tmp_path):
    study = table2.STUDY
    errors = {0: [90.0, 60.0], 1: [80.0, 66.0, 1.0]}

    def outcome(config):
        curve = errors[config["seed"]]
        return Outcome("finished", {"top1": 1.0, "top5": 2.0}, {"train_error5": curve, "val_error5": curve})

    store = Store(tmp_path / "runs")
    for each in plan(study, "small", only="SP", seeds=2):
        store.put(each, outcome(each.config))
    (figure,) = table2.figures(table(study, "small", only="SP", seeds=2, store=tmp_path / "runs"), store)
    training = figure.plot.data[0]
    assert list(training.y) == [15.0, 37.0]
    assert list(training.error_y.array) == pytest.approx([5.0, 3.0])
    store.close()


def test_perturbations_turn_small_units_far_unless_they_are_geometric():
    found = {method: fig1.run({"method": method, "units": 200, "seed": 0}).metrics for method in fig1.KINDS}
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
