from types import SimpleNamespace

import pytest
import torch

from relucid.data import Data, Moments, Split
from relucid.inspect import reconstruct
from relucid.models import create
from relucid.papers.crelu import (
    STUDIES,
    fig2,
    fig4,
    table1,
    table1_fitted,
    table2,
    table4,
    table6,
    table_s1,
    theorem_c1,
)
from relucid.papers.crelu.images import images
from relucid.papers.crelu.measures import LAYERS, measured, random_mu
from relucid.studies import plan, table

BY_NAME = {study.name: study for study in STUDIES}
LEARNED = [  # what is measured of networks that crelu/convpool trains
    study.name
    for room in (fig2, fig4, table6, table_s1)
    for study in room.STUDIES
    if "100" not in study.name and "imagenet" not in study.name
]


def wrong(percent, images):
    """How many of so many images an error stands for; it must be a whole number."""
    count = percent * images / 100
    assert count == pytest.approx(round(count), abs=1e-6)
    assert 0 <= round(count) <= images
    return round(count)


@pytest.mark.parametrize("row", ["Baseline", "CReLU (half)"])
def test_convpool_runs_and_leaves_what_the_other_studies_show(tmp_path, row, smoke_tested):
    found = smoke_tested(BY_NAME["crelu/convpool"], tmp_path, only=row)
    images = {"Single, train %": "train", "Single, test %": "test", "Average %": "test", "Vote %": "test"}
    for column, part in images.items():
        assert all(wrong(value, found.runs[0]["config"][part]) for value in found.cells[row, column].values)
    for study in map(BY_NAME.get, LEARNED):
        if row in study.rows:
            assert all(
                each.mean is not None
                for each in table(study, "smoke", only=row, store=tmp_path).cells.values()
            )


@pytest.mark.parametrize(
    "study, row",
    [("crelu/vgg", "(conv1,3,5)"), ("crelu/imagenet", "CReLU (all)"), ("crelu/imagenet", "AVR (conv1-4)")],
)
def test_recipes_that_need_a_gpu_run_on_a_few_digits(tmp_path, study, row, smoke_tested):
    found = smoke_tested(BY_NAME[study], tmp_path, only=row)
    for (_, column), each in found.cells.items():
        assert all(wrong(value, 200 if "train" in column else 20) for value in each.values)
    errors = {column: each.mean for (_, column), each in found.cells.items()}
    assert all(errors[five] < errors[five.replace("5", "1")] for five in errors if "top-5" in five)


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("study", LEARNED)
def test_what_networks_have_learned_is_measured_on_the_networks_of_table_1(study, scale):
    trained = {each.key for each in plan(BY_NAME["crelu/convpool"], scale)}
    assert {each.key for each in plan(BY_NAME[study], scale)} <= trained


@pytest.mark.parametrize(
    "study, trained",
    [
        ("invariance-100", "convpool-100"),
        ("reconstruction-100", "convpool-100"),
        *((f"{what}-imagenet", "imagenet") for what in ("pairing", "invariance", "reconstruction", "phase")),
    ],
)
def test_other_data_are_measured_on_networks_of_the_tables_too(study, trained):
    known = {each.key for each in plan(BY_NAME[f"crelu/{trained}"], "full")}
    assert {each.key for each in plan(BY_NAME[f"crelu/{study}"], "full")} <= known


SHOWN = {  # crelu 4.2, 4.3: which network a figure or table shows
    "CReLU (conv1-4)": ("pairing", "reconstruction"),
    "CReLU (conv1-7)": ("invariance", "phase"),
}


@pytest.mark.parametrize("row", SHOWN)
def test_a_run_on_imagenet_leaves_pairs_invariance_reconstructions_and_phases(tmp_path, row, smoke_tested):
    smoke_tested(BY_NAME["crelu/imagenet"], tmp_path, only=row)
    for what in SHOWN[row]:
        assert set(BY_NAME[f"crelu/{what}-imagenet"].rows) <= {row, "Baseline"}
        found = table(BY_NAME[f"crelu/{what}-imagenet"], "smoke", only=row, store=tmp_path)
        missing = [column for (_, column), cell in found.cells.items() if cell.mean is None]
        assert len(missing) < len(found.cells) if what == "invariance" else not missing  # some never fire


def test_invariance_on_imagenet_is_that_to_the_corners_of_random_validation_images(monkeypatch):
    config = plan(BY_NAME["crelu/invariance-imagenet"], "full")[0].config
    assert config["measured"] == 5000
    whole = Split(
        torch.arange(600).repeat(3, 1).T[:, :, None, None].expand(600, 3, 72, 72).float(), torch.zeros(600)
    )
    measured = []

    def fit(network, train, recipe, **named):
        identity = Moments(torch.zeros(3), torch.eye(3, dtype=torch.float64))
        return SimpleNamespace(moments=identity, history={}, evaluate=lambda *examples: {})

    def invariant(network, batches, layers, crop):
        shapes, seen = {batch.shape[1:] for batch in batches}, torch.cat([b[:, 0, 0, 0] for b in batches])
        measured.append((crop, shapes, seen.tolist()))
        return {}

    centre = Split(whole.inputs[..., 4:-4, 4:-4], whole.targets)
    monkeypatch.setattr(table4, "_photos", lambda name: (centre, centre, whole))
    monkeypatch.setattr(table4, "fit", fit)
    monkeypatch.setattr(table4, "invariant", invariant)
    monkeypatch.setattr(table4, "paired", lambda *rest: ({}, {}))
    for seed in (0, 0, 1):
        table4.run({**config, "width": 1 / 16, "measured": 500, "seed": seed}, None)
    (crop, shapes, first), (*_, again), (*_, other) = measured
    assert (crop, shapes) == (64, {(3, 72, 72)})
    assert len(set(first)) == 500  # each once
    assert first == again
    assert sorted(first) != sorted(other)
    assert max(first) > 550  # from all over the split


def test_the_local_maxima_of_invariance_are_named(filled, standing):
    scores = dict(zip(LAYERS, (5.0, 4.0, 3.0, 6.0, 2.0, 1.0, 3.0), strict=True))
    found = filled(BY_NAME["crelu/invariance-imagenet"], lambda row, layer: [scores[layer]], "full")
    assert standing(found, "Fig. 4, ImageNet").remark == (
        "Local maxima of the ReLU network's scores: conv1, conv4, conv7."
    )


def test_the_full_scale_of_cifar_100_is_that_of_cifar_10_but_for_the_data():
    ours, other = (plan(BY_NAME[f"crelu/{name}"], "full")[0].config for name in ("convpool", "convpool-100"))
    assert ours | {"data": "cifar100"} == other


def test_single_trains_three_networks_at_small_scale_and_folds_are_three_of_ten():
    configs = [each.config for each in plan(BY_NAME["crelu/convpool"], "small", only="CReLU")]
    for lr in (0.05, 0.01):
        of_rate = [each for each in configs if each["lr"] == lr]
        assert sorted(each["seed"] for each in of_rate if each["protocol"] == "single") == [0, 1, 2]
        assert sorted(each["fold"] for each in of_rate if each["protocol"] == "folds") == [0, 1, 2]
    assert {each["folds"] for each in configs} == {10}


@pytest.fixture
def vgg(monkeypatch):
    """A function that returns the network and the recipe of a study of VGG at a scale."""
    trained = []
    monkeypatch.setattr(table2, "trained", lambda build, data, recipe, *_: trained.append((build(), recipe)))
    monkeypatch.setattr(table2, "tested", lambda *_: None)

    def train(study, scale, **changes):
        few = {"data": "digits", "train": 10, "test": 10, "protocol": "folds"}
        table2.run(plan(BY_NAME[study], scale)[0].config | few | changes, None)
        return trained.pop()

    return train


def test_vgg_has_the_dropout_of_the_tables_at_full_scale_and_none_at_small(vgg):
    ratios = {}
    for scale in ("full", "small"):
        network, _ = vgg("crelu/vgg", scale)
        ratios[scale] = {m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)}
    assert ratios == {"full": {0.3, 0.4, 0.5}, "small": {0.0}}


def test_the_rate_of_vgg_is_the_source_s_at_full_scale_and_chosen_for_each_network_at_small():
    full, small = ([each.config for each in plan(BY_NAME["crelu/vgg"], scale)] for scale in ("full", "small"))
    assert {(each["lr"], each["halved"], each["epochs"], each["batch_size"]) for each in full} == {
        (1.0, 25, 300, 128)
    }
    first, *others = ([each | {"lr": None} for each in small if each["lr"] == lr] for lr in (0.1, 0.03, 0.01))
    assert len(first) == 24
    for other in others:
        assert len(other) == 24
        assert all(each in other for each in first)


@pytest.mark.parametrize("study", ["crelu/vgg", "crelu/vgg-100", "crelu/vgg-footnotes"])
def test_at_full_scale_vgg_takes_the_steps_of_its_source(study, vgg):
    _, recipe = vgg(study, "full")
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    source = torch.optim.SGD(theirs.parameters(), lr=1, momentum=0.9, dampening=0.9, weight_decay=5e-4)
    optimizers = {ours: recipe.make_optimizer(ours), theirs: source}
    for x in torch.randn(20, 8, 5):
        for network, optimizer in optimizers.items():
            optimizer.zero_grad()
            network(x).logsumexp(1).mean().backward()
            optimizer.step()
        assert all(a.equal(b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert "dampening 0.9" in BY_NAME[study].protocol


def test_at_full_scale_vgg_begins_as_its_source_does(vgg):
    torch.manual_seed(0)
    found = {scale: vgg("crelu/vgg", scale, width=1)[0] for scale in ("full", "small")}
    # szagoruyko/cifar.torch, vgg_bn_drop.lua: epsilon 1e-3, deviation sqrt(2 / (kW kH nOutputPlane))
    kinds = (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)
    eps = {scale: {m.eps for m in net.modules() if isinstance(m, kinds[0])} for scale, net in found.items()}
    assert eps == {"full": {1e-3}, "small": {1e-5}}
    assert {m.eps for m in found["full"].modules() if isinstance(m, kinds[1])} == {1e-5}
    for name, fan in {"conv3": 9 * 128, "conv5": 9 * 256}.items():  # conv3 has 64 inputs, conv5 128
        deviations = {scale: net.get_submodule(name).weight.std().item() for scale, net in found.items()}
        assert deviations["full"] == pytest.approx((2 / fan) ** 0.5, rel=0.02)
        assert deviations["small"] == pytest.approx((4 / fan) ** 0.5, rel=0.02)


def test_crops_of_imagenet_are_from_the_central_square_and_ten_of_them_from_all_of_it(monkeypatch):
    monkeypatch.setattr(table4, "imagenet", lambda **options: Data(options, options))
    train, centre, whole = table4._photos("imagenet")
    assert (train["central"], centre.get("test_size", 224), whole["test_size"]) == (True, 224, 256)


def test_shrunk_pictures_have_the_means_of_squares_for_pixels():
    whole, shrunk = (images("digits", train=5, test=5, pool=pool) for pool in (1, 8))
    squares = whole.train.inputs.unfold(2, 8, 8).unfold(3, 8, 8).float().mean((-2, -1))
    torch.testing.assert_close(shrunk.train.inputs.float(), squares, atol=0.5, rtol=0)
    assert shrunk.train.inputs.dtype == whole.train.inputs.dtype
    assert torch.equal(shrunk.train.targets, whole.train.targets)


def test_dropout_is_where_the_source_of_convpool_has_it():
    config = plan(BY_NAME["crelu/convpool"], "full")[0].config
    data = images("digits", 10)
    ratios = {
        name: module.p
        for name, module in table1.network(config, data).named_children()
        if isinstance(module, torch.nn.Dropout)
    }
    assert ratios == {"dropout0": 0.2, "dropout_pool1": 0.5, "dropout_pool2": 0.5}


@pytest.mark.parametrize("study", ["crelu/convpool", "crelu/invariance"])
def test_dropout_is_chosen_with_the_rate_at_full_scale_and_none_below_it(study):
    tried = {
        scale: {(each.config["lr"], *each.config["dropout"]) for each in plan(BY_NAME[study], scale)}
        for scale in ("full", "small", "cpu")
    }
    rates, ratios = (0.25, 0.1, 0.05, 0.01), ((0.2, 0.5), (0.1, 0.25), (0, 0))
    assert tried["full"] == {(rate, *pair) for rate in rates for pair in ratios}
    assert {(of_input, of_pooled) for _, of_input, of_pooled in tried["small"] | tried["cpu"]} == {(0, 0)}


def test_the_mean_of_random_filters_is_that_of_a_simulation():
    torch.manual_seed(0)
    filters = torch.nn.functional.normalize(torch.randn(2000, 9, 5, dtype=torch.float64), dim=2)
    cosines = filters @ filters.transpose(1, 2) + 2 * torch.eye(9)
    least = cosines.amin(2).flatten()
    assert random_mu(5, 8) == pytest.approx(
        float(least.mean()), abs=4 * float(least.std()) / len(least) ** 0.5
    )


def test_networks_at_initialisation_pair_no_more_than_random_ones():
    network = create("crelu/convpool-crelu", num_classes=10, width=0.25)
    metrics, arrays = measured(network, torch.randn(8, 3, 32, 32), samples=2)
    assert all(abs(metrics[f"{layer} excess"]) < 0.05 for layer in LAYERS)
    assert all(len(arrays[f"{layer} mu"]) == len(network.get_submodule(layer).weight) for layer in LAYERS)
    assert arrays["reconstructions"].shape == (4, 4, 3, 32, 32)
    assert metrics["conv2 learned"] == pytest.approx(metrics["conv2 random"], abs=0.05)  # two random draws


def test_random_filters_lose_what_theorem_c1_says_but_for_max_pooling(tmp_path, smoke_tested):
    (study,) = theorem_c1.STUDIES
    cells = smoke_tested(study, tmp_path).cells
    for row in study.rows:
        assert cells[row, theorem_c1.PROJECTED].mean == pytest.approx(
            cells[row, theorem_c1.TRUE].mean, abs=0.01
        )
        of_a_map, pooled, printed = (
            cells[row, column].mean for column in (theorem_c1.MAP, theorem_c1.POOLED, theorem_c1.PRINTED)
        )
        assert of_a_map < pooled < printed


def test_parameters_are_those_of_the_notes(tmp_path, smoke_tested):
    study = BY_NAME["crelu/parameters"]
    found = smoke_tested(study, tmp_path)
    assert [found.cells[row, "weights"].mean for row in study.rows] == [
        *(1_285_536, 5_133_120, 1_285_536, 2_568_480, 643_728),
        *(9_367_584, 4_683_792, 8_600_592, 10_139_680),
    ]


def same(rows):
    """Values that are the same in all columns of a row."""
    return lambda row, column: rows.get(row, (0.5, 0.6, 0.7))


@pytest.mark.parametrize(
    "half, state", [(8.0, "holds"), (12.0, "the opposite holds"), (10.05, "no such effect")]
)
def test_table_1_stands_as_its_figures_say(filled, standing, half, state):
    rows = {"Baseline": (10.0, 10.1, 9.8), "CReLU (half)": (half, half + 0.2, half - 0.3)}
    found = standing(filled(BY_NAME["crelu/convpool"], same(rows), "full"), "Table 1, CIFAR-10")
    assert found.state == state
    assert [each.expected.label for each in found.judged] == [
        "CReLU (half) minus Baseline, Single, test %",
        "CReLU (half) minus Baseline, Average %",
    ]


def test_the_remark_on_table_1_has_votes_and_by_how_much_tests_exceed_training(filled, standing):
    def values(row, column):
        return (4.0 if column == table1.TRAIN else 9.0 if row == "Baseline" else 8.0,)

    found = standing(filled(BY_NAME["crelu/convpool"], values), "Table 1, CIFAR-10")
    assert found.remark == (
        "The error of votes is 8.00 against 9.00%. Test error exceeds training error by 4.0 points with CReLU (half), "
        "by 5.0 with the baseline."
    )


@pytest.mark.parametrize("half, holds", [(10.2, True), (11.0, False), (12.0, False)])
def test_half_the_parameters_may_cost_a_point(filled, standing, half, holds):
    rows = {"Baseline": (10.0, 10.1, 9.8), "CReLU (half)": (half, half + 0.2, half - 0.3)}
    found = standing(filled(BY_NAME["crelu/convpool"], same(rows)), "Table 1, CIFAR-10, half the parameters")
    assert (found.state == "holds") is holds


def single(variant, seed, **metrics):
    """A run of "Single" at the rate that was chosen."""
    config = {"variant": variant, "seed": seed, "protocol": "single"}
    return {"config": config, "metrics": metrics, "state": "finished"}


def test_pairing_is_compared_with_random_filters_and_with_crelu(filled, standing):
    runs = [
        single(variant, 0, **{f"{layer} mu": mu for layer in LAYERS}, **{"conv1 random mu": -0.3})
        for variant, mu in (("baseline", -0.8), ("crelu", -0.3))
    ]
    rows = {
        "Baseline": (-0.5, -0.51, -0.49),
        "CReLU": (0.0, 0.01, -0.01),
        "CReLU (half)": (-0.1, 0.01, -0.01),
    }
    found = filled(BY_NAME["crelu/pairing"], same(rows), runs=runs)
    random_ones = standing(found, "Section 2.1, Fig. 2")
    assert random_ones.outcome == "holds (2 of 2 hold) at small scale"
    assert random_ones.remark == (
        "Baseline: mean cosine -0.80 in conv1, of random filters -0.30; "
        "CReLU: mean cosine -0.30 in conv1, of random filters -0.30."
    )
    with_crelu, with_half = standing(found, "Fig. 3").judged
    assert str(with_crelu).startswith("Baseline minus CReLU, conv1: -0.500 [-0.5")
    assert with_half.expected.b.row == "CReLU (half)"


def test_phases_are_compared_within_units_and_between_them(filled, standing):
    def phases(within, between):
        return [
            single(
                variant,
                seed,
                **{f"{layer} pair": within + 0.001 * seed for layer in LAYERS},
                **{f"{layer} non-pair": between for layer in LAYERS},
            )
            for variant in ("crelu", "half")
            for seed in range(3)
        ]

    study = BY_NAME["crelu/phase"]
    found = standing(filled(study, same({}), runs=phases(0.5, 0.1)), "Table 6")
    assert found.outcome == "holds (14 of 14 hold) at small scale"
    assert standing(filled(study, same({}), runs=phases(0.1, 0.5)), "Table 6").state == "the opposite holds"
    assert (
        standing(filled(study, same(dict.fromkeys(study.rows, (0.5, 0.51, 0.52)))), "Table 6, below 1").state
        == "true"
    )


@pytest.mark.parametrize("crelu, state", [(2.0, "holds"), (0.5, "the opposite holds")])
def test_invariance_is_compared_layer_by_layer(filled, standing, crelu, state):
    rows = {"Baseline": (1.0, 1.1, 1.2), "CReLU": (crelu, crelu + 0.1, crelu + 0.21)}
    found = standing(filled(BY_NAME["crelu/invariance"], same(rows), "full"), "Fig. 4")
    assert (found.state, len(found.judged)) == (state, 7)
    mean = f"{crelu + 0.1:.1f}"
    assert found.remark == f"From conv1 to conv7: Baseline from 1.1 to 1.1, CReLU from {mean} to {mean}."


def test_reconstruction_compares_learned_filters_with_random_ones_of_the_same_row(filled, standing):
    def values(row, column):
        return (0.9, 0.91, 0.93) if "learned" in column else (0.95, 0.96, 0.97)

    found = standing(filled(BY_NAME["crelu/reconstruction"], values, "full"), "Table S1, CIFAR-10")
    assert found.state == "holds"
    assert [each.expected.label for each in found.judged] == [
        "CReLU (half): conv2 learned, one region minus conv2 random, one region",
        "CReLU (half): conv5 learned, one region minus conv5 random, one region",
    ]


def test_every_variant_of_vgg_is_compared_with_vgg(filled, standing):
    rows = dict.fromkeys(BY_NAME["crelu/vgg"].rows, (6.4, 6.41, 6.42)) | {"VGG": (6.9, 6.91, 6.93)}
    found = standing(filled(BY_NAME["crelu/vgg"], same(rows)), "Tables 2, 3, CIFAR-10")
    assert found.outcome == "holds (6 of 6 hold) at small scale"
    assert found.remark == "Votes: VGG 6.91, (conv1) 6.41, (conv1,3) 6.41, (conv1,3,5) 6.41."


def test_on_two_cores_one_variant_of_vgg_is_compared_and_nothing_votes(filled, standing):
    rows = {"VGG": (28.0, 28.3, 28.1), "(conv1,3)": (27.0, 27.2, 27.1)}
    found = standing(filled(BY_NAME["crelu/vgg"].at("cpu"), same(rows), "cpu"), "Tables 2, 3, CIFAR-10")
    assert [each.expected.label for each in found.judged] == ["(conv1,3) minus VGG, Single %"]
    assert found.remark == ""


def test_one_run_of_each_network_on_imagenet_decides_nothing(filled, standing):
    study = BY_NAME["crelu/imagenet"]
    found = filled(study, lambda row, column: table4.TABLE4[row][:1], "full")
    assert standing(found, "Table 4").state == "undecided"
    assert {str(each).rpartition(": ")[2] for each in standing(found, "Table 4").judged} == {
        "too few values to compare, or a run that only one side has"
    }


def test_counts_of_table_5_are_compared_exactly(filled, standing):
    def values(row, column):
        return (study.published[row]["millions of weights"] + (0.06 if "1-4" in row else 0.04),)

    study = BY_NAME["crelu/parameters"]
    found = standing(filled(study, values, "full"), "Table 5")
    assert [each.outcome for each in found.judged] == ["holds", "holds", "the opposite holds"]
    assert found.state == "false as stated"
    assert str(found.judged[-1]).endswith(": does not hold")
    # it was read by its count
    assert all(each.expected.a.row != "All-CNN-B, CReLU (all)" for each in found.judged)


def test_imagenet_is_trained_as_appendix_e_says():
    configs = {
        row: plan(BY_NAME["crelu/imagenet"], "full", only=row)[0].config
        for row in ("Baseline", "CReLU (all)")
    }
    first, second = (config["recipes"][config["optimizer"]] for config in configs.values())
    assert (first["epochs"], first["table"][0], first["table"][-1]) == (45, [10, 0.01, 0.0005], [45, 1e-6, 0])
    assert second == {"epochs": 100, "optimizer": "adam", "lr": 0.0002}


def test_photographs_are_reconstructed_from_conv1_to_conv4_by_the_pseudoinverse_of_each():
    net = create("crelu/all_cnn_b-crelu-1-4", num_classes=10, width=0.0625).double().eval()
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    metrics, stages = table4.reconstructed(net, images)
    assert stages.shape == (2, 5, 3, 64, 64)
    first = reconstruct(net.conv1, net.act1(net.conv1(images)), images.shape[1:]).input
    apart = (first - images).flatten(1).norm(dim=1) / images.flatten(1).norm(dim=1)
    assert metrics["conv1 lost"] == pytest.approx(float(apart.detach().mean()))
    assert list(metrics) == [f"conv{number} lost" for number in range(1, 5)]


@pytest.mark.parametrize("study", [table1_fitted.FITTED, table1_fitted.REFITTED])
@pytest.mark.parametrize("baseline, half", [(4.0, 4.0), (6.0, 4.0), (4.0, 6.0)])
def test_nothing_is_judged_unless_the_baseline_is_fitted_or_since_a_design_failed_both(
    filled, standing, study, baseline, half
):
    def values(row, column):
        if column == table1.TRAIN:
            error = half if row == table1.HALF else baseline
            return [error - 0.1, error, error + 0.1]
        return [
            40.0 + seed - 3 * (row == table1.HALF) + 0.1 * (row == table1.HALF) * seed for seed in range(3)
        ]

    found = filled(study.at("cpu"), values, "cpu")
    fitted = (baseline if study is table1_fitted.FITTED else max(baseline, half)) < table1_fitted.FITS
    assert standing(found, study.claims[0].where).state == ("holds" if fitted else "undecided")


def test_a_network_that_learns_nothing_leaves_the_other_pairs_to_be_judged(filled, standing):
    def values(row, column):
        dead = row == table1.HALF
        if column == table1.TRAIN:
            return [1.0, 2.0, 90.0 if dead else 0.0, 3.0]
        return [40.0 - 3 * dead, 42.0 - 4 * dead, 90.0 if dead else 41.0, 43.0 - 5 * dead]

    found = filled(table1_fitted.REFITTED.at("cpu"), values, "cpu")
    assert standing(found, "Table 1, CIFAR-10, both fitted").state == "undecided"
    pairs = standing(found, "Table 1, CIFAR-10, pairs that fit")
    assert pairs.state == "holds"
    assert (pairs.judged[0].found.effect, pairs.judged[0].found.n) == (pytest.approx(-4.0), 3)


@pytest.mark.parametrize("fit, state", [(8, "holds"), (7, "undecided")])
def test_in_whole_batches_nothing_is_judged_unless_most_pairs_fit(filled, standing, fit, state):
    def values(row, column):
        half = row == table1.HALF
        if column == table1.TRAIN:
            return [90.0 if half and seed >= fit else 1.0 for seed in range(10)]
        return [40.0 + seed - half * (3 + seed % 2) for seed in range(10)]

    found = filled(table1_fitted.WHOLE.at("cpu"), values, "cpu")
    assert standing(found, "Table 1, CIFAR-10, whole batches").state == state


def test_every_batch_is_whole_where_the_study_says_so():
    for study, whole in ((table1_fitted.WHOLE, True), (table1_fitted.REFITTED, False)):
        (config,) = {run.config["train"]: run.config for run in plan(study, "cpu")}.values()
        assert (config["train"] % config["batch_size"] == 0) == whole


def test_runs_that_try_a_rate_three_times_differ_in_their_fold_and_include_the_one_tried_before():
    once, three = (
        plan(BY_NAME[f"crelu/{name}-rates"], "cpu") for name in ("convpool-fitted", "convpool-refitted")
    )
    assert {run.key for run in once} <= {run.key for run in three}
    assert {len(cell) for cell in three.cells.values()} == {3}
    assert {run.config["fold"] for run in three} == {2, 3, 4}
    assert {column.examples for column in three.study.columns.values()} == {3 * 500}
