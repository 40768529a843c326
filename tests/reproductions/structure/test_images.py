from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import fisher_exact

from relucid.data import Data, Split, imagenet, jitter
from relucid.models import create
from relucid.train import DivergedError
from relucid_reproductions.structure import TABLES, images, section7_2, table4
from relucid_reproductions.structure.images import build, load

STUDIES = {study.name: study for table in TABLES for study in table.STUDIES}
SIZES = ("structure/cifar", "structure/cifar-deeper", "structure/cifar100", "structure/cifar100-deeper")
IMAGES = Data(Split(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.zeros(1)), None, 10)


@pytest.mark.parametrize(
    "name, row",
    [
        ("structure/lemma1", "swish"),
        ("structure/convergence", "AGD2 (13), constant of footnote 4"),
        ("structure/depth", "ADMM (14)"),
        ("structure/depth-learned", "AGD2 (13)"),
        ("structure/cifar", "HB-Net (16)"),
        ("structure/cifar100-deeper", "AGD-Net (18)"),
        ("structure/cifar-rates", "AGD-Net (18)"),
        ("structure/growth", "HB-Net (16), n = 18"),
        ("structure/deep", "HB-Net-110"),
        ("structure/imagenet", "AGD-Net-121"),
    ],
)
def test_the_smoke_scale_runs(name, row, tmp_path, smoked):
    results = smoked(STUDIES[name], tmp_path, only=row, seeds=1)
    assert results.table()["mean"].notna().all()
    assert not results.unknown_metrics()


def built(settings):
    """The network of a run."""
    torch.manual_seed(settings["seed"])
    return build(IMAGES, settings[settings["family"]], settings["design"], settings.get("pool", 1))


PUBLISHED = {
    "structure/cifar": (
        *("resnet56", "resnet56-unrectified", "hbnet56", "densenet40", "agdnet40"),
        *("admmnet56", "dmrnet56"),
    ),
    "structure/cifar-deeper": ("resnet110", "resnet110-unrectified", "hbnet110", "densenet52", "agdnet52"),
    "structure/imagenet": ("resnet34", "resnet34-unrectified", "hbnet34", "densenet121", "agdnet121"),
    "structure/deep": ("resnet110", "resnet110-unrectified", "hbnet110", "resnet110"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_at_full_scale_the_rows_are_the_published_networks(name):
    study = STUDIES[name]
    column = list(study.columns)[1]  # of CIFAR, the one with augmentation: no dropout
    first = {planned.row: planned.run for planned in study.plan("full") if planned.column == column}
    for row, variant in zip(study.rows, PUBLISHED[name], strict=True):
        with torch.device("meta"):  # no weight is looked at
            ours, theirs = built(first[row].config), create(f"structure/{variant}", num_classes=10)
        assert list(map(repr, ours.children())) == list(map(repr, theirs.children()))


@pytest.mark.parametrize("row", ["ResNet", "DenseNet", "AGD-Net (18)"])
def test_dense_networks_have_dropout_exactly_where_nothing_is_augmented(row):
    runs = {planned.column: planned.run for planned in STUDIES["structure/cifar"].plan("full", only=row)}
    for column, augment in {"CIFAR-10": [], "CIFAR-10 (+)": ["flip", "crop"]}.items():
        config = runs[column].config
        rates = {layer.p for layer in built(config).modules() if isinstance(layer, torch.nn.Dropout)}
        assert rates == (set() if augment or row == "ResNet" else {0.2})
        assert config["recipe"]["augment"] == augment


def test_the_full_scale_is_the_papers_setting():
    shared = {"optimizer": "nesterov", "lr": 0.1, "weight_decay": 1e-4}
    cifar = shared | {"epochs": 300, "batch_size": 64, "steps": [0.5, 0.75]}
    photographs = shared | {"epochs": 100, "batch_size": 256, "steps": [30, 60, 90]}
    for name, recipe in (("structure/cifar100", cifar), ("structure/imagenet", photographs)):
        for run in STUDIES[name].runs("full"):
            assert recipe.items() <= run.config["recipe"].items()
            assert not {"images", "pool"} & run.config.keys()
    for run in STUDIES["structure/depth"].runs("full"):
        assert {"features": 100, "pairs": 10_000, "epochs": 1000}.items() <= run.config.items()


@pytest.fixture
def recipes(monkeypatch):
    """A function that returns the recipes of runs, without running them."""
    made = []
    monkeypatch.setattr(images, "load", lambda data, images: IMAGES)
    monkeypatch.setattr(images, "trained", lambda build, train, recipe, *rest, **named: made.append(recipe))

    def make(runs):
        made.clear()
        for run in runs:
            images.train(**run.config)
        return list(made)

    return make


@pytest.mark.parametrize("name", [*PUBLISHED, "structure/cifar100", "structure/cifar100-deeper"])
def test_at_full_scale_all_parameters_decay_as_in_the_source_of_densenet(name, recipes):
    assert {recipe.decay for recipe in recipes(STUDIES[name].runs("full"))} == {"all"}


def test_at_full_scale_resnet_is_also_warmed_up_as_he_et_al_say(recipes):
    rows = section7_2.RESNET, section7_2.WARMED
    plain, warm = recipes(section7_2.deep.runs("full", only=row)[0] for row in rows)
    assert [plain.warmup, warm.warmup] == [(), [0.01, 80]]
    assert [recipe.rate_and_decay(1, [81.0])[0] for recipe in (plain, warm)] == [0.1, 0.01]
    assert warm.rate_and_decay(1, [79.0]) == plain.rate_and_decay(1, [79.0])
    for scale in ("cpu", "small"):
        assert section7_2.WARMED not in section7_2.deep.scales[scale].rows


def test_imagenet_is_augmented_as_in_fb_resnet_torch():
    assert (images.SETS["imagenet"].func, images.SETS["imagenet"].keywords) == (imagenet, {"resized": True})
    for run in STUDIES["structure/imagenet"].runs("full"):
        # ColorJitter(0.4), Lighting(0.1), HorizontalFlip(0.5), in this order
        assert run.config["recipe"]["augment"] == ["jitter", "color", "flip"]
    assert signature(jitter).parameters["strength"].default == 0.4


def test_a_part_of_the_images_is_their_first_ones():
    whole, part = load("digits"), load("digits", 5)
    assert torch.equal(part.train.inputs, whole.train.inputs[:5])
    assert torch.equal(part.test.inputs, whole.test.inputs)


def test_pooled_images_give_a_network_a_quarter_of_the_pixels():
    networks = []
    for pool in (1, 2):
        torch.manual_seed(0)
        networks.append(build(IMAGES, {"name": "resnet8", "width": 0.25}, {}, pool).eval())
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(networks[1](x), networks[0](torch.nn.functional.avg_pool2d(x, 2)))


def test_runs_that_diverge_are_counted_once_all_have_been_done(filled, found):
    large = table4.CONTROL_LARGE

    def diverged(run):
        return (
            run.config["design"] == {"rectify": "nowhere"}
            and run.config["recipe"]["lr"] == 0.3
            and run.config["seed"] > 11
        )

    results = filled(
        table4.momentum, lambda row, column, seed: 20.0 + seed**2 * (row == large), "cpu", missing=diverged
    )
    (share,) = found(results, "Table 4, divergence without momentum").verdicts
    assert share.comparison.effect == 100 * 6 / 8
    assert share.comparison.p == pytest.approx(fisher_exact([[8, 0], [2, 6]]).pvalue)
    seeds, difference = table4.where_both_end(results, table4.HB_LARGE, large)
    assert (seeds, difference.effect) == (2, -0.5)
    assert {
        verdict.comparison for verdict in found(results, "Table 4, the rate without momentum").verdicts
    } == {None}


def test_at_nine_blocks_on_cifar_10_the_paper_claims_nothing_of_hb_net():
    claimed = {
        name: [claim.where for claim in study.claims if ", HB-Net, n" in claim.where]
        for name, study in STUDIES.items()
        if name in SIZES
    }
    assert STUDIES["structure/cifar"].published["HB-Net (16)", "CIFAR-10"] > 10.05
    assert claimed == {
        "structure/cifar": [],
        "structure/cifar-deeper": ["Table 4, CIFAR-10, HB-Net, n = 18"],
        "structure/cifar100": ["Table 4, CIFAR-100, HB-Net, n = 9"],
        "structure/cifar100-deeper": ["Table 4, CIFAR-100, HB-Net, n = 18"],
    }


@pytest.mark.parametrize("control, outcome", [(100.0, "no detectable difference"), (0.0, "confirmed")])
def test_the_share_of_runs_that_train_is_judged_by_fishers_test(filled, found, control, outcome):
    shares = {section7_2.RESNET: 0.0, section7_2.CONTROL: control}
    results = filled(section7_2.deep, lambda row, column, seed: shares.get(row, 100.0), "small")
    (verdict,) = found(results, "Section 7.2").verdicts
    assert verdict.comparison.p == pytest.approx(0.0079, abs=1e-4)  # Fisher's exact test
    assert found(results, "Section 7.2").outcome == "confirmed"
    assert found(results, "Section 7.2, control").outcome == outcome
    assert section7_2.trained(results)[section7_2.CONTROL] == f"{5 if control else 0} of 5"


@pytest.mark.parametrize("scale, detected, missed", [("cpu", 3, 4), ("small-40", 34, 35)])
def test_a_scale_distinguishes_the_shares_that_the_page_names(scale, detected, missed):
    seeds = section7_2.deep.scales[scale].repeat["seed"]
    n = len(seeds)
    p = [fisher_exact([[n, 0], [trained, n - trained]]).pvalue for trained in (detected, missed)]
    assert round(p[0], 3) == 0.026
    assert p[1] > 0.05


@pytest.fixture
def hundred_images(monkeypatch):
    part = Split(torch.zeros(100, 3, 8, 8), torch.zeros(100))
    monkeypatch.setattr(section7_2, "load", lambda data, images: Data(part, None, 10))


def test_a_run_that_diverges_has_not_trained(monkeypatch, hundred_images):
    def diverge(data, recipe, **settings):
        for _ in range(100):
            recipe["loss"](torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
        raise DivergedError("the loss is nan", {"train_error": [89.0]})

    monkeypatch.setattr(section7_2, "train", diverge)
    metrics = section7_2.run(data="", recipe={"epochs": 3, "batch_size": 1})
    assert metrics == {"trained": 0.0, "train_error": 100.0, "steps": 300, "history": {"train_error": [89.0]}}


@pytest.mark.parametrize("resumed", [False, True])
def test_steps_are_counted_by_batches_unless_the_run_was_resumed(monkeypatch, hundred_images, resumed):
    def train(data, recipe, **settings):
        for step in range(100 if resumed else 200):
            target = 0 if step >= 60 else 1  # right from the 61st step on
            recipe["loss"](torch.tensor([[1.0, 0.0]]), torch.tensor([target]))
        return SimpleNamespace(history={"train_error": [60.0, 0.0]}), None

    monkeypatch.setattr(section7_2, "train", train)
    metrics = section7_2.run(data="", recipe={"epochs": 2, "batch_size": 1})
    assert metrics.get("steps") == (None if resumed else 65)  # five of the last twenty are right
    assert (metrics["trained"], metrics["train_error"]) == (100.0, 0.0)


def test_the_growth_of_hb_nets_gain_is_judged_on_the_runs_of_the_table(filled, found):
    growth = STUDIES["structure/growth"]
    table = {run.key for name in SIZES for run in STUDIES[name].runs("full")}
    assert {run.key for run in growth.runs("full")} <= table
    assert all(growth.published[cell] for cell in growth.published)

    def values(row, column, seed):
        n = 18 if "18" in row else 9
        return 30.0 + 0.1 * seed - (row.startswith("HB") * n * (1 + 0.01 * seed))

    finding = found(filled(growth, values), "Table 4, HB-Net, n = 9 and 18")
    assert finding.outcome == "confirmed"
    assert [verdict.comparison.effect for verdict in finding.verdicts] == pytest.approx([9.09] * 4)
