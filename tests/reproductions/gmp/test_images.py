from collections import Counter

import pytest
import torch

from relucid.data import DamagedDataError
from relucid_reproductions.gmp import images, table1, table2

STUDIES = {study.name: study for table in (table1, table2) for study in table.STUDIES}


@pytest.fixture
def made(monkeypatch):
    """A function that returns the network and the recipe of a run, on digits."""

    def make(config):
        parts = []

        def trained(build, train, recipe, *rest, **named):
            parts.extend((build(), recipe))
            raise InterruptedError

        monkeypatch.setattr(images, "trained", trained)
        with pytest.raises(InterruptedError):
            images.run(**config | {"data": "digits", "images": [9, 9], "width": 1 / 16})
        return tuple(parts)

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
    network, recipe = made(STUDIES[name].runs("full", only=images.BEST)[0].config)
    made_of = (recipe.epochs, recipe.monitor, recipe.plateau.threshold, recipe.weight_decay, recipe.decay)
    assert (*made_of, recipe.normalize, network.name) == FULL[name]
    assert (recipe.plateau.patience, recipe.plateau.stop, recipe.plateau.factor) == (5, 10, 0.1)
    assert (recipe.optimizer, recipe.momentum, recipe.lr, recipe.batch_size) == ("sgd", 0.9, 0.1, 256)


def test_at_cpu_scale_each_batch_size_has_its_rate_and_a_fixed_schedule(made):
    runs = STUDIES["gmp/vgg6"].runs("cpu", only=images.BEST)
    recipes = {run.config["times"]: made(run.config)[1] for run in runs}
    assert {times: recipe.lr for times, recipe in recipes.items()} == {1: 0.1, 4: 0.3}
    assert {tuple(recipe.steps) for recipe in recipes.values()} == {(2 / 3, 5 / 6)}


def test_in_resnet50_weight_decay_shrinks_the_scales_of_geometric_layers_and_turns_no_direction(made):
    network, recipe = made(table1.resnet50.runs("full", only=images.BEST)[0].config)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    groups = recipe.make_optimizer(network).param_groups
    decayed = [names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]]
    kinds = Counter(name.rpartition(".")[2] for name in decayed)
    assert kinds == {"scale": 53, "weight": 1, "bias": 1}  # 53 convolutions and the classifier
    assert {name.partition(".")[0] for name in decayed if not name.endswith("scale")} == {"fc"}


@pytest.mark.parametrize("study", [table1.resnet50, table2.vgg6], ids=lambda study: study.name)
def test_r_is_one_in_rows_of_its_own_and_glorots_length_in_the_others(study, made):
    for row, config in study.rows.items():
        if "gmp" in config["design"]:
            network, _ = made(study.runs("full", only=row)[0].config)
            scales = [p.detach() for name, p in network.named_parameters() if name.endswith(".scale")]
            assert (torch.cat(scales) == 1).all() == ("r = 1" in row)
    assert "GmP+IMN, r = 1" in study.rows


def test_imagenet32_is_read_from_the_files_of_its_source(monkeypatch, tmp_path):
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    (tmp_path / "imagenet32").mkdir()
    with pytest.raises(DamagedDataError, match="has no train_data_batch"):
        images.run(**table2.vgg6.runs("full")[0].config)


@pytest.mark.parametrize("best, outcome", [(60.0, "confirmed"), (90.0, "reversed")])
def test_convergence_is_judged_by_the_course_over_the_epochs_that_both_have(filled, found, best, outcome):
    def history(row, column, seed):  # the best network is stopped early
        course = (
            [90.0 - seed, best - 1.3 * seed] if row == images.BEST else [90.0 - seed, 80.0 - 1.1 * seed, 0.0]
        )
        return {"val_error5": course}

    results = filled(table2.vgg6, lambda row, column, seed: 10.0 + seed, history=history)
    finding = found(results, "Fig. 4")
    assert finding.outcome == outcome
    effects = [verdict.comparison.effect for verdict in finding.verdicts]
    assert effects == pytest.approx([(80 - best) / 2 + 0.1] * 5)


def test_what_is_gained_after_25_epochs_is_judged(filled, found):
    def history(row, column, seed):
        return {"val_error5": [60.0] * 24 + [50.0, 49.8 - 0.01 * seed, 49.9]}

    results = filled(table2.vgg6, lambda row, column, seed: 10.0 + seed, history=history)
    finding = found(results, "Fig. 4, within 25 epochs")
    assert finding.outcome == "confirmed"
    assert finding.verdicts[0].comparison.effect == pytest.approx(0.21)


def test_a_network_has_converged_once_it_is_within_a_point_of_its_best(filled, found):
    def history(row, column, seed):
        first = 5 if row == images.BEST else 15
        return {"val_error5": [60.0] * (first + seed) + [50.9, 51.5, 50.0]}

    results = filled(table2.vgg6, lambda row, column, seed: 10.0 + seed, history=history)
    (verdict,) = found(results, "Fig. 4, earlier than BN").verdicts
    assert verdict.comparison.effect == -10
