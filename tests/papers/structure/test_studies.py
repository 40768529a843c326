import math
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import fisher_exact
from torch.nn.functional import mse_loss

from relucid.data import Data, Split, imagenet, jitter
from relucid.models import create
from relucid.papers.structure import STUDIES, images, section7_2, table2_learned, table4
from relucid.papers.structure.images import build, load
from relucid.papers.structure.lemma1 import difference
from relucid.papers.structure.section5_1 import count
from relucid.papers.structure.table2 import RULES, noise
from relucid.studies import cells, plan
from relucid.train import DivergedError

NAMED = {study.name: study for study in STUDIES}
IMAGES = Data(Split(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.zeros(1)), None, 10)


@pytest.mark.parametrize(
    "name, row",
    [
        ("structure/depth", "HB (11)"),
        ("structure/depth", "ADMM (14)"),
        ("structure/depth-learned", "AGD2 (13)"),
        ("structure/lemma1", "swish"),
        ("structure/convergence", "AGD2 (13), constant of footnote 4"),
        ("structure/cifar", "HB-Net (16)"),
        ("structure/cifar100-deeper", "AGD-Net (18)"),
        ("structure/deep", "HB-Net-110"),
        ("structure/imagenet", "HB-Net-34"),
        ("structure/imagenet", "AGD-Net-121"),
    ],
)
def test_the_smoke_scale_runs(name, row, tmp_path, smoke_tested):
    found = smoke_tested(NAMED[name], tmp_path, only=row, seeds=1)
    assert all(cell.mean is not None for cell in found.cells.values())


@pytest.mark.parametrize("name", NAMED)
def test_a_study_says_what_is_claimed_and_how_it_is_checked(name):
    study = NAMED[name]
    assert study.claims
    assert study.protocol
    assert study.source.startswith("structure ")
    assert {"full", "smoke"} <= study.scales.keys() or {"cpu", "smoke"} == study.scales.keys()


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
    study = NAMED[name]
    column = list(study.columns)[1]  # of CIFAR, the one with augmentation: no dropout
    for row, variant in zip(study.rows, PUBLISHED[name], strict=True):
        with torch.device("meta"):  # no weight is looked at
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


FULL = [
    name
    for name, study in NAMED.items()
    if name.startswith(("structure/cifar", "structure/imagenet", "structure/deep")) and "full" in study.scales
]


@pytest.mark.parametrize("name", FULL)
def test_at_full_scale_all_parameters_decay_as_in_the_source_of_densenet(name, monkeypatch):
    made = []
    monkeypatch.setattr(images, "load", lambda config: IMAGES)
    monkeypatch.setattr(images, "build", lambda config, data: None)
    monkeypatch.setattr(images, "fit", lambda network, train, recipe, *rest, **named: made.append(recipe))
    for row in NAMED[name].rows:
        images.train(plan(NAMED[name], "full", only=row)[0].config, None)
    assert {recipe.decay for recipe in made} == {"all"}
    assert len(made) == len(NAMED[name].rows)


def test_imagenet_is_augmented_as_in_fb_resnet_torch():
    assert (images.SETS["imagenet"].func, images.SETS["imagenet"].keywords) == (imagenet, {"resized": True})
    for each in plan(NAMED["structure/imagenet"], "full"):
        # ColorJitter(0.4), Lighting(0.1), HorizontalFlip(0.5), in this order
        assert each.config["recipe"]["augment"] == ["jitter", "color", "flip"]
    assert signature(jitter).parameters["strength"].default == 0.4


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
    assert difference(config)["difference"] < 100
    wrong = "relucid.papers.structure.lemma1._ObjectiveLayer.forward"
    monkeypatch.setattr(wrong, lambda self, x: torch.tanh(x))
    assert difference(config)["difference"] > 1e12


RULES_BY_NAME = {row.partition(" ")[0]: rule for row, rule in RULES.items()}
PAPER = ["AGD2", "AGD", "HB", "GD", "ADMM"]
TABLE_2 = "Eq. 15, Table 2"


def losses(order, wobble, seeds=3):
    """Cells and runs of structure/depth whose losses are in this order, best first."""
    place = {RULES_BY_NAME[name]: number for number, name in enumerate(order)}

    def loss(rule, depth, seed):  # what all networks of a seed share must not matter
        return 1 + seed + 0.01 * place[rule] + wobble * math.sin(10 * place[rule] + seed + depth)

    def values(row, column):
        return [
            loss(RULES.get(row, "agd2"), int(column.removeprefix("depth ")), seed) for seed in range(seeds)
        ]

    runs = [
        {
            "config": {"rule": rule, "depth": depth, "seed": seed, "pairs": 50, "features": 3},
            "metrics": {
                "mse": loss(rule, depth, seed),
                "mse_of_zero": 1.0 + seed,
                "mse_of_lstsq": 0.99 + seed,
            },
        }
        for rule in RULES.values()
        for depth in (10, 20, 30, 40)
        for seed in range(seeds)
    ]
    return values, runs


@pytest.mark.parametrize(
    "order, wobble, holding, opposite",
    [
        (PAPER, 1e-5, 20, 0),
        (PAPER[::-1], 1e-5, 0, 20),
        (["AGD", "AGD2", *PAPER[2:]], 1e-5, 18, 2),
        (PAPER, 1.0, 0, 0),
    ],
)
def test_the_order_of_the_rules_is_compared_pair_by_pair_at_both_depths(
    filled, standing, order, wobble, holding, opposite
):
    values, runs = losses(order, wobble)
    found = standing(filled(NAMED["structure/depth"], values, runs=runs), TABLE_2)
    outcomes = [each.outcome for each in found.judged]
    assert len(outcomes) == 20
    assert (outcomes.count("holds"), outcomes.count("the opposite holds")) == (holding, opposite)
    assert "At depth 30" in found.remark
    assert "At depth 40" in found.remark
    assert "least squares -0.01000" in found.remark


def test_the_remark_has_the_order_with_its_figures(filled, standing):
    values, runs = losses(PAPER, 0.0)
    found = standing(filled(NAMED["structure/depth"], values, runs=runs), TABLE_2)
    assert "AGD2 (13) +0.00000, AGD (12) +0.01000, HB (11) +0.02000" in found.remark


def test_depths_at_which_no_network_has_learned_more_than_a_constant_are_named(filled, standing):
    values, runs = losses(PAPER, 0.0)
    for each in runs:
        config = each["config"]
        _, f = noise(config["seed"], 50, 3)
        constant = mse_loss(f.mean(0).expand_as(f), f) - mse_loss(torch.zeros_like(f), f)
        learned = -1.0 if config["depth"] == 10 and config["rule"] == "hb" else 0.0
        each["metrics"]["mse"] = each["metrics"]["mse_of_zero"] + constant.item() + learned
    found = standing(filled(NAMED["structure/depth"], values, runs=runs), TABLE_2)
    assert found.remark.startswith(
        "At depth 20, 30, 40 no network has learned more than a constant. At depth 30"
    )


def test_the_loss_of_an_output_of_0_deviates_from_1_by_as_much_as_the_erratum_says():
    claim = next(each for each in NAMED["structure/depth"].claims if each.erratum)
    config = plan(NAMED["structure/depth"], "full")[0].config
    # of a mean of squares of normal numbers
    deviation = math.sqrt(2 / (config["pairs"] * config["features"]))
    assert f"a sample's deviates by {deviation:.4f}" in claim.erratum


LEARNABLE = {"rule": "hb", "depth": 30, "features": 16, "pairs": 50, "epochs": 2}


def test_deep_students_start_with_signals_that_keep_their_size():
    x = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    for rule in RULES.values():
        stage = table2_learned.student({**LEARNABLE, "rule": rule}, seed=0)[0]
        usual = create(f"structure/fc-{rule}", num_classes=16, depth=30)
        varied, vanished = (network(x).std(0).mean().item() for network in (stage, usual))
        assert vanished < 1e-4
        assert varied > 100 * vanished
        assert varied > 0.05 or rule == "admm"  # which averages two paths


def test_a_student_s_rates_are_chosen_on_another_seed_and_each_by_its_own_loss(monkeypatch):
    calls = []
    real = table2_learned.ensemble

    def noted(networks, train, *, rates, **rest):
        calls.append((train[0], list(rates)))
        return real(networks, train, rates=rates, **rest)

    monkeypatch.setattr(table2_learned, "ensemble", noted)
    result = table2_learned.run({**LEARNABLE, "seed": 0})
    (other, tried), (own, chosen) = calls
    expected = [table2_learned.pairs(LEARNABLE, seed).train.inputs for seed in (1000, 0)]
    assert torch.equal(other.inputs, expected[0])
    assert torch.equal(own.inputs, expected[1])
    assert tuple(tried) == table2_learned.RATES
    assert result.metrics["rate"] == chosen


def test_the_teacher_leaves_its_noise_and_least_squares_more():
    data = table2_learned.pairs({**LEARNABLE, "pairs": 1000}, 0)
    found = table2_learned.references(data.train)
    assert table2_learned.NOISE**2 < found["mse_of_lstsq"] < found["mse_of_constant"]
    assert found["mse_of_constant"] == pytest.approx(data.train.targets.var(correction=0).item(), rel=1e-4)


def test_the_growth_of_the_layers_is_judged_by_its_power_and_the_remark_names_who_never_arrived(
    filled, standing
):
    def values(row, column):
        kappa = int(column.removeprefix("kappa = "))
        power = 1.0 if row in ("GD (7)", "ADMM (14)") else 0.8 if "theta_k" in row else 0.5
        layers = 500 if row == "HB (11), beta = 1" else 10 * kappa**power
        return [layers * (1 + 0.001 * seed * math.log(kappa)) for seed in range(3)]

    study = NAMED["structure/convergence"]
    missed = [{"config": {"rule": "hb-1"}, "state": "finished", "metrics": {"reached": 0}}]
    found = standing(filled(study, values, "full", missed), "Section 5.1")
    judged = {each.expected.label.partition(":")[0]: each for each in found.judged}
    assert judged["GD (7)"].found.effect == pytest.approx(0.25, abs=0.002)
    assert judged["AGD (12), theta_k"].found.effect == pytest.approx(0.05, abs=0.002)
    assert judged["AGD (12), theta_k"].outcome == "the opposite holds"
    assert judged["AGD (12), constant of footnote 4"].outcome == "holds"
    assert found.state == "false as stated"
    assert "31.6 times fewer than GD; ADMM needs 1.0 times as many as GD." in found.remark
    assert found.remark.endswith("Not converged: HB (11), beta = 1.")


def test_an_algorithm_that_never_arrives_has_no_power(filled, standing):
    missed = [{"config": {"rule": "gd"}, "state": "finished", "metrics": {"reached": 0}}]
    found = filled(NAMED["structure/convergence"], lambda row, column: [10.0, 20.0], "full", missed)
    gd = standing(found, "Section 5.1").judged[0]
    assert (gd.found, str(gd)) == (
        None,
        "GD (7): power of kappa minus 0.75: too few values to compare, or a run that only one side has",
    )


@pytest.mark.parametrize("most, outcome", [(3.0, "holds"), (1e6, "the opposite holds")])
def test_a_difference_beyond_rounding_speaks_against_the_lemma(filled, standing, most, outcome):
    def values(row, column):
        worst = most if (row, column) == ("elu", "HB (11)") else 1.0
        return [worst, worst * 1.0001, worst * 1.0002]

    found = standing(filled(NAMED["structure/lemma1"], values, "full"), "Eq. 1, 7, 8, 9, 10, Lemma 1")
    assert len(found.judged) == 40
    outcomes = {(each.expected.a.row, each.expected.a.column): each.outcome for each in found.judged}
    assert outcomes.pop(("elu", "HB (11)")) == outcome
    assert set(outcomes.values()) == {"holds"}


@pytest.mark.parametrize(
    "shift, state", [(-5.0, "holds"), (5.0, "the opposite holds"), (-0.0001, "no such effect")]
)
def test_hb_net_is_compared_with_resnet_and_with_its_control(filled, standing, shift, state):
    def values(row, column):
        wobble, moved = (0.001, shift) if row == "HB-Net (16)" else (0.0, 0.0)
        return [40 + moved + 0.1 * seed + wobble * (-1) ** seed for seed in range(3)]

    found = filled(NAMED["structure/cifar-deeper"], values, "full")
    # The paper has no figures for the control, which would say how large a difference to expect.
    controlled = "no difference found" if state == "no such effect" else state
    for where, expected in (
        ("HB-Net, n = 18", state),
        ("HB-Net against its control, n = 18", controlled),
    ):
        entry = standing(found, f"Table 4, CIFAR-10, {where}")
        assert entry.state == expected
        assert [each.found.effect for each in entry.judged] == pytest.approx([shift] * 2, abs=1e-3)


def test_runs_that_diverge_are_counted_once_all_have_been_done(filled):
    study = table4.MOMENTUM
    whole = filled(study, lambda row, column: range(8), "cpu")
    place = table4.SAME_RATE.format(table4.CONTROL, 0.3), "CIFAR-10"
    cell = replace(whole.cells[place], samples={"seed 0": 30.0}, states={"finished": 1, "diverged": 7})
    found = table4.reaching_the_end(replace(whole, cells={**whole.cells, place: cell}))
    assert found.effect == 100 * 7 / 8
    assert found.p == fisher_exact([[8, 0], [1, 7]]).pvalue
    remark = table4.where_both_end((table4.HBNET, 0.3), (table4.CONTROL, 0.3))
    two = replace(cell, samples={"seed 0": 1.0, "seed 5": 7.0})
    assert remark(whole) == ""
    assert "in the 2 seeds in which neither diverges: -1.50 [" in remark(
        replace(whole, cells={**whole.cells, place: two})
    )
    running = replace(cell, states={"finished": 1, "diverged": 6})
    assert table4.reaching_the_end(replace(whole, cells={**whole.cells, place: running})) is None


def test_at_nine_blocks_on_cifar_10_the_paper_claims_nothing_of_hb_net():
    published = NAMED["structure/cifar"].published
    assert published["HB-Net (16)"]["CIFAR-10"] > published["ResNet"]["CIFAR-10"]
    claimed = {
        name: [claim.where for claim in study.claims if ", HB-Net, " in claim.where]
        for name, study in NAMED.items()
        if name.startswith("structure/cifar") and not name.endswith("-rates")
    }
    claimed["structure/cifar100-deeper"].remove("Table 4, HB-Net, n = 9 and 18")
    assert claimed == {
        "structure/cifar": [],
        "structure/cifar-deeper": ["Table 4, CIFAR-10, HB-Net, n = 18"],
        "structure/cifar100": ["Table 4, CIFAR-100, HB-Net, n = 9"],
        "structure/cifar100-deeper": ["Table 4, CIFAR-100, HB-Net, n = 18"],
    }


def test_the_share_of_runs_that_train_is_judged_by_fishers_test(filled, standing):
    study = NAMED["structure/deep"].at("small")

    def values(of_control):
        trained = {section7_2.RESNET: 0.0, section7_2.CONTROL: of_control}
        return lambda row, column: [trained.get(row, 100.0)] * 5

    found = filled(study, values(100.0))
    (judged,) = standing(found, "Section 7.2").judged
    assert judged.found.p == pytest.approx(0.0079, abs=1e-4)  # Fisher's exact test
    assert standing(found, "Section 7.2").outcome == "holds at small scale"
    assert standing(found, "Section 7.2").remark == (
        "Runs that trained: ResNet-110 0 of 5, ResNet-110 without ReLU after the sum 5 of 5, HB-Net-110 5 of 5."
    )
    assert standing(found, "Section 7.2, control").state == "no difference found"
    without = filled(study, values(0.0))
    assert standing(without, "Section 7.2, control").outcome == "holds at small scale"


def test_at_full_scale_resnet_is_also_warmed_up_as_he_et_al_say(monkeypatch):
    made = []
    monkeypatch.setattr(images, "load", lambda config: IMAGES)
    monkeypatch.setattr(images, "build", lambda config, data: None)
    monkeypatch.setattr(images, "fit", lambda network, train, recipe, *rest, **named: made.append(recipe))
    rows = section7_2.RESNET, section7_2.WARMED
    plain, warm = (plan(section7_2.STUDY, "full", only=row) for row in rows)
    for each in (plain[0], warm[0]):
        images.train(each.config, None)
    assert [recipe.warmup for recipe in made] == [(), [0.01, 80]]
    assert [recipe.rate_and_decay(1, [81.0])[0] for recipe in made] == [0.1, 0.01]
    assert made[1].rate_and_decay(1, [79.0]) == made[0].rate_and_decay(1, [79.0])
    for scale in ("cpu", "small"):
        assert section7_2.WARMED not in section7_2.STUDY.at(scale).rows


def test_the_cpu_scale_distinguishes_the_shares_that_its_protocol_names():
    seeds = len(section7_2.STUDY.scales["cpu"].repeat["seed"])
    p = [fisher_exact([[seeds, 0], [trained, seeds - trained]]).pvalue for trained in (3, 4)]
    assert (seeds, round(p[0], 3)) == (8, 0.026)
    assert p[1] > 0.05
    assert "three of eight (p = 0.026), not from four" in section7_2.STUDY.at("cpu").protocol


def test_forty_seeds_distinguish_the_shares_that_the_protocol_names():
    study = section7_2.STUDY.at("small-40")
    runs = plan(study, "small-40")
    assert len(runs) == 80
    assert not {run.config["seed"] for run in runs} & {
        run.config["seed"] for run in plan(section7_2.STUDY, "small")
    }
    p = [fisher_exact([[40, 0], [trained, 40 - trained]]).pvalue for trained in (34, 35)]
    assert round(p[0], 3) == 0.026
    assert p[1] > 0.05
    assert "differ from 34 (p = 0.026), not from 35" in study.protocol


@pytest.fixture
def hundred_images(monkeypatch):
    part = Split(torch.zeros(100, 3, 8, 8), torch.zeros(100))
    monkeypatch.setattr(section7_2, "load", lambda config: Data(part, None, 10))


def test_a_run_that_diverges_has_not_trained(monkeypatch, hundred_images):
    def diverge(config, machine):
        for _ in range(100):
            config["recipe"]["loss"](torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
        raise DivergedError("the loss is nan", {"train_error": [89.0]})

    monkeypatch.setattr(section7_2, "train", diverge)
    result = section7_2.run({"recipe": {"epochs": 3, "batch_size": 1}}, None)
    assert result.metrics == {"trained": 0.0, "train_error": 100.0, "steps": 300}
    assert result.history == {"train_error": [89.0]}


@pytest.mark.parametrize("resumed", [False, True])
def test_steps_are_counted_by_batches_unless_the_run_was_resumed(monkeypatch, hundred_images, resumed):
    def train(config, machine):
        for step in range(100 if resumed else 200):
            target = 0 if step >= 60 else 1  # right from the 61st step on
            config["recipe"]["loss"](torch.tensor([[1.0, 0.0]]), torch.tensor([target]))
        return SimpleNamespace(history={"train_error": [60.0, 0.0]}), None

    monkeypatch.setattr(section7_2, "train", train)
    metrics = section7_2.run({"recipe": {"epochs": 2, "batch_size": 1}}, None).metrics
    expected = {} if resumed else {"steps": 65}  # five of the last twenty are right
    assert metrics == {"trained": 100.0, "train_error": 0.0} | expected
