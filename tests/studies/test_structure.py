import math

import pytest
import torch
from relucid.studies.structure import STUDIES
from relucid.studies.structure.convergence import compare, count
from relucid.studies.structure.depth import noise
from relucid.studies.structure.images import build, load
from torch.nn.functional import mse_loss

from relucid.data import Data, Split
from relucid.models import create
from relucid.studies import Cell, Table, cells, plan, run, table

NAMED = {study.name: study for study in STUDIES}
IMAGES = Data(Split(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.zeros(1)), None, 10)


def filled(name, value, scale="smoke", runs=3):
    """A table whose cells have the values `value(row, column, place)`, 3 of them."""
    study = NAMED[name]
    found = {
        (row, column): Cell(tuple(value(row, column, k) for k in range(runs)), runs, {"finished": runs})
        for row in study.rows
        for column in study.columns
    }
    return Table(study, scale, found, [])


@pytest.mark.parametrize(
    "name, row",
    [
        ("structure/depth", "HB (11)"),
        ("structure/depth", "ADMM (14)"),
        ("structure/lemma1", "swish"),
        ("structure/convergence", "AGD2 (13), constant of footnote 4"),
        ("structure/cifar", "HB-Net (16)"),
        ("structure/cifar100-deeper", "AGD-Net (18)"),
        ("structure/deep", "HB-Net-110"),
        ("structure/imagenet", "HB-Net-34"),
        ("structure/imagenet", "AGD-Net-121"),
    ],
)
def test_the_smoke_scale_runs(name, row, tmp_path):
    study = NAMED[name]
    run(study, "smoke", only=row, seeds=1, store=tmp_path, jobs=1)
    found = table(study, "smoke", only=row, seeds=1, store=tmp_path)
    assert [record["error"] for record in found.runs if record["state"] != "finished"] == []
    assert all(cell.mean is not None for cell in found.cells.values())


@pytest.mark.parametrize("name", NAMED)
def test_a_study_says_what_is_claimed_and_how_it_is_checked(name):
    study = NAMED[name]
    assert study.claim
    assert study.protocol
    assert study.source.startswith("structure ")
    assert study.verdict is not None
    assert {"full", "smoke"} <= study.scales.keys()


PUBLISHED = {
    "structure/cifar": ("resnet56", "resnet56-unrectified", "hbnet56", "densenet40", "agdnet40"),
    "structure/cifar-deeper": ("resnet110", "resnet110-unrectified", "hbnet110", "densenet52", "agdnet52"),
    "structure/imagenet": ("resnet34", "resnet34-unrectified", "hbnet34", "densenet121", "agdnet121"),
    "structure/deep": ("resnet110", "resnet110-unrectified", "hbnet110"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_at_full_scale_the_rows_are_the_published_networks(name):
    study = NAMED[name]
    column = list(study.columns)[1]  # of CIFAR, the one with augmentation: no dropout
    for row, variant in zip(study.rows, PUBLISHED[name], strict=True):
        ours = build(cells(study, "full")[row, column][0].config, IMAGES)
        theirs = create(f"structure/{variant}", num_classes=10)
        assert list(map(repr, ours.children())) == list(map(repr, theirs.children()))


@pytest.mark.parametrize("row", ["ResNet", "DenseNet", "AGD-Net (18)"])
@pytest.mark.parametrize("column", ["CIFAR-10", "CIFAR-10 (+)"])
def test_dense_networks_have_dropout_exactly_where_nothing_is_augmented(row, column):
    config = cells(NAMED["structure/cifar"], "full")[row, column][0].config
    layers = build(config, IMAGES).modules()
    rates = {layer.p for layer in layers if isinstance(layer, torch.nn.Dropout)}
    assert rates == ({0.2} if row != "ResNet" and not config["recipe"]["augment"] else set())
    assert config["recipe"]["augment"] == (["flip", "crop"] if column == "CIFAR-10 (+)" else [])


def test_the_full_scale_is_the_paper_s_setting():
    shared = {"optimizer": "nesterov", "lr": 0.1, "weight_decay": 1e-4}
    for each in plan(NAMED["structure/cifar100"], "full"):
        assert (each.config["data"], "images" in each.config, "pool" in each.config) == (
            "cifar100",
            False,
            False,
        )
        expected = shared | {"epochs": 300, "batch_size": 64, "steps": [0.5, 0.75]}
        assert expected.items() <= each.config["recipe"].items()
    for each in plan(NAMED["structure/imagenet"], "full"):
        expected = shared | {"epochs": 100, "batch_size": 256, "steps": [30, 60, 90]}
        assert expected.items() <= each.config["recipe"].items()
    for each in plan(NAMED["structure/depth"], "full"):
        assert {"features": 100, "pairs": 10_000, "epochs": 1000}.items() <= each.config.items()


def test_a_part_of_the_images_is_their_first_ones():
    whole, part = load({"data": "digits"}), load({"data": "digits", "images": 5})
    assert torch.equal(part.train.inputs, whole.train.inputs[:5])
    assert torch.equal(part.test.inputs, whole.test.inputs)


def test_pooled_images_give_a_network_a_quarter_of_the_pixels():
    config = {"seed": 0, "family": "residual", "residual": {"name": "resnet8", "width": 0.25}, "design": {}}
    whole, pooled = build(config, IMAGES), build(config | {"pool": 2}, IMAGES)
    x = torch.randn(2, 3, 32, 32)
    smaller = torch.nn.functional.avg_pool2d(x, 2)
    torch.testing.assert_close(pooled.eval()(x), whole.eval()(smaller))


def test_counts_stop_at_the_limit_and_say_so():
    config = {"features": 10, "kappa": 10, "seed": 0, "limit": 200}
    assert count(config | {"rule": "hb-1"}) == {"layers": 200, "reached": False}
    reached = count(config | {"rule": "hb-best"})
    assert reached["reached"]
    assert reached["layers"] < count(config | {"rule": "gd"})["layers"] < 200


def test_layers_that_are_not_the_objective_s_differ_from_its_iterates(monkeypatch):
    config = {"features": 10, "depth": 5, "seed": 0, "activation": "tanh", "rule": "agd-theta"}
    assert compare(config)["difference"] < 100
    wrong = "relucid.studies.structure.convergence._Layer.forward"
    monkeypatch.setattr(wrong, lambda self, x: torch.tanh(x))
    assert compare(config)["difference"] > 1e12


def losses(order, noise=0.0, seeds=3):
    """Runs of structure/depth whose losses are in this order, best first."""
    rules = {"ADMM": "admm", "GD": "gd", "HB": "hb", "AGD": "agd", "AGD2": "agd2"}
    return [
        {
            "config": {"rule": rules[rule], "depth": depth, "seed": seed, "pairs": 50, "features": 3},
            # what all networks of a seed share must not matter
            "metrics": {
                "mse": 1 + seed + 0.01 * place + noise * math.sin(10 * place + seed),
                "mse_of_zero": 1.0 + seed,
                "mse_of_lstsq": 0.99 + seed,
            },
        }
        for place, rule in enumerate(order)
        for depth in (10, 20, 30, 40)
        for seed in range(seeds)
    ]


PAPER = ["AGD2", "AGD", "HB", "GD", "ADMM"]


@pytest.mark.parametrize(
    "runs, said",
    [
        (losses(PAPER), "10 are in the paper's order, 0 in the opposite one, 0 undecided"),
        (losses(PAPER[::-1]), "0 are in the paper's order, 10 in the opposite one, 0 undecided"),
        (
            losses(["AGD", "AGD2", *PAPER[2:]]),
            "9 are in the paper's order, 1 in the opposite one, 0 undecided",
        ),
        (losses(PAPER, noise=1.0), "0 are in the paper's order, 0 in the opposite one, 10 undecided"),
        (
            losses(["AGD", "AGD2", *PAPER[2:]], seeds=1),
            "9 are in the paper's order, 1 in the opposite one, 0 undecided (one seed: equal in 5 digits).",
        ),
    ],
)
def test_the_order_of_the_rules_is_compared_pair_by_pair(runs, said):
    study = NAMED["structure/depth"]
    verdict = study.verdict(Table(study, "full", {}, runs))
    assert verdict.count(said) == 2
    assert "At depth 30" in verdict
    assert "At depth 40" in verdict
    assert "least squares: -0.01000" in verdict


def test_rules_that_have_learned_a_constant_only_are_named():
    study, runs = NAMED["structure/depth"], losses(PAPER)
    for each in runs:
        if each["config"]["rule"] in ("hb", "agd2"):
            _, f = noise(each["config"]["seed"], 50, 3)
            gain = mse_loss(f.mean(0).expand_as(f), f) - mse_loss(torch.zeros_like(f), f)
            each["metrics"]["mse"] = each["metrics"]["mse_of_zero"] + gain.item()
    verdict = study.verdict(Table(study, "full", {}, runs))
    said = "No more than that constant was learned by HB (11), AGD2 (13), by the others not even that."
    assert verdict.count(said) == 2
    assert "No more" not in study.verdict(Table(study, "full", {}, losses(PAPER)))


def test_the_order_is_told_with_its_figures():
    study = NAMED["structure/depth"]
    verdict = study.verdict(Table(study, "full", {}, losses(PAPER)))
    assert "AGD2 (13) +0.00000 ± 0.00000, AGD (12) +0.01000 ± 0.00000, HB (11) +0.02000" in verdict


def test_the_growth_of_the_layers_is_told_and_who_never_arrived():
    def value(row, column, place):
        kappa = int(column.removeprefix("kappa = "))
        return (
            500
            if row == "HB (11), beta = 1"
            else 10 * kappa
            if row in ("GD (7)", "ADMM (14)")
            else 10 * kappa**0.5
        )

    found = filled("structure/convergence", value)
    missed = [
        {"config": {"rule": "hb-1"}, "metrics": {"reached": 0}},
        {"config": {"rule": "gd"}, "metrics": {}},
    ]
    verdict = found.study.verdict(Table(found.study, "smoke", found.cells, missed))
    assert "GD (7): 1.00" in verdict
    assert "AGD (12), theta_k: 0.50" in verdict
    assert "31.6 times fewer than GD, and ADMM 1.0 times as many." in verdict
    assert verdict.endswith("Never there: HB (11), beta = 1.")


@pytest.mark.parametrize("most, said", [(3.0, "holds to rounding"), (1e6, "more than rounding explains")])
def test_the_worst_difference_decides_on_the_lemma(most, said):
    found = filled(
        "structure/lemma1", lambda row, column, k: most if (row, column, k) == ("elu", "HB (11)", 1) else 1.0
    )
    verdict = found.verdict
    assert f"{most * 1e-15:.1e}" in verdict
    assert "(elu, HB (11))" in verdict
    assert said in verdict


@pytest.mark.parametrize(
    "shift, said",
    [
        (-5.0, "6 differences 4 are significantly below 0, 0 above, and 2 are no more than noise"),
        (5.0, "6 differences 0 are significantly below 0, 4 above, and 2"),
        (0.01, "6 differences 0 are significantly below 0, 0 above, and 6"),
    ],
)
def test_differences_are_counted_as_chance_allows(shift, said):
    better = {"HB-Net (16)": shift, "AGD-Net (18)": 0.0}
    found = filled("structure/cifar", lambda row, column, k: 40 + better.get(row, 0.0) + 0.1 * k)
    assert said in found.verdict
    assert f"HB-Net (16) less ResNet: CIFAR-10 {shift:+.2f} ± 0.08 (p = " in found.verdict


def test_the_share_of_runs_that_train_is_told_with_fisher_s_test():
    def value(row, column, k):
        return 0.0 if row == "ResNet-110" and k > 0 else 100.0

    verdict = filled("structure/deep", value, runs=4).verdict
    assert "ResNet-110 1 of 4, ResNet-110 without ReLU after the sum 4 of 4, HB-Net-110 4 of 4" in verdict
    assert "p = 0.14 against ResNet-110, p = 1 against ResNet-110 without ReLU after the sum" in verdict


def test_a_run_that_diverges_has_not_trained(monkeypatch):
    from relucid.studies.structure import deep

    from relucid.train import DivergedError

    def diverge(config, machine):
        raise DivergedError("the loss is nan", {"train_error": [89.0]})

    monkeypatch.setattr(deep, "train", diverge)
    result = deep.run({}, None)
    assert result.metrics == {"trained": 0.0, "train_error": 100.0}
    assert result.history == {"train_error": [89.0]}
