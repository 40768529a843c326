import pytest
import torch
from relucid.studies.crelu import STUDIES, convpool, imagenet, learned, random, vgg
from relucid.studies.crelu.measures import LAYERS, measured, random_mu
from relucid.studies.crelu.pictures import pictures
from relucid.studies.words import difference

from relucid.models import create
from relucid.studies import plan, run, table
from relucid.studies.table import Cell, Table

BY_NAME = {study.name: study for study in STUDIES}


def cell(*values):
    return Cell(tuple(map(float, values)), runs=len(values), states={"finished": len(values)})


def filled(study, rows, runs=()):
    """A table of a study with the same values in all columns of a row."""
    cells = {(row, column): cell(*values) for row, values in rows.items() for column in study.columns}
    return Table(study, "small", cells, list(runs))


def finished(study, store, only=None):
    run(study, "smoke", only=only, store=store, jobs=1)
    found = table(study, "smoke", only=only, store=store)
    assert {each["state"] for each in found.runs} == {"finished"}, found.runs[0]["error"]
    return found


@pytest.mark.parametrize("row", ["Baseline", "CReLU (half)"])
def test_convpool_runs_and_leaves_what_the_other_studies_show(tmp_path, row):
    found = finished(BY_NAME["crelu/convpool"], tmp_path, row)
    assert all(0 <= each.mean <= 100 for each in found.cells.values())
    for study in learned.STUDIES:
        if row in study.rows and "100" not in study.name:
            assert all(
                each.mean is not None
                for each in table(study, "smoke", only=row, store=tmp_path).cells.values()
            )


@pytest.mark.parametrize(
    "study, row",
    [("crelu/vgg", "(conv1,3,5)"), ("crelu/imagenet", "CReLU (all)"), ("crelu/imagenet", "AVR (conv1-4)")],
)
def test_recipes_that_need_a_gpu_run_on_a_few_digits(tmp_path, study, row):
    found = finished(BY_NAME[study], tmp_path, row)
    assert all(0 <= each.mean <= 100 for each in found.cells.values())


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("study", [study.name for study in learned.STUDIES if "100" not in study.name])
def test_what_networks_have_learned_is_measured_on_the_networks_of_table_1(study, scale):
    trained = {each.key for each in plan(BY_NAME["crelu/convpool"], scale)}
    assert {each.key for each in plan(BY_NAME[study], scale)} <= trained


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


def test_vgg_has_the_dropout_of_the_tables_at_full_scale_and_none_at_small(monkeypatch):
    built = {}
    monkeypatch.setattr(vgg, "trained", lambda build, *rest: built.setdefault("network", build()))
    monkeypatch.setattr(vgg, "tested", lambda *rest: None)
    ratios = {}
    for scale in ("full", "small"):
        config = plan(BY_NAME["crelu/vgg"], scale)[0].config | {"data": "digits", "train": 10, "test": 10}
        vgg.run(config, None)
        ratios[scale] = {m.p for m in built.pop("network").modules() if isinstance(m, torch.nn.Dropout)}
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


def test_shrunk_pictures_have_the_means_of_squares_for_pixels():
    whole, shrunk = (pictures("digits", train=5, test=5, pool=pool) for pool in (1, 8))
    squares = whole.train.inputs.unfold(2, 8, 8).unfold(3, 8, 8).float().mean((-2, -1))
    torch.testing.assert_close(shrunk.train.inputs.float(), squares, atol=0.5, rtol=0)
    assert shrunk.train.inputs.dtype == whole.train.inputs.dtype
    assert torch.equal(shrunk.train.targets, whole.train.targets)


def test_dropout_is_where_the_source_of_convpool_has_it():
    config = plan(BY_NAME["crelu/convpool"], "full")[0].config
    data = convpool.pictures("digits", 10)
    ratios = {
        name: module.p
        for name, module in convpool.network(config, data).named_children()
        if isinstance(module, torch.nn.Dropout)
    }
    assert ratios == {"dropout0": 0.2, "dropout_pool1": 0.5, "dropout_pool2": 0.5}


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
    for kind in ("learned", "random"):
        assert 0 < metrics[f"conv2 {kind}"] < 1


def test_random_filters_lose_what_theorem_c1_says_but_for_max_pooling(tmp_path):
    (study,) = random.STUDIES
    cells = finished(study, tmp_path).cells
    for row in study.rows:
        assert cells[row, random.PROJECTED].mean == pytest.approx(cells[row, random.TRUE].mean, abs=0.01)
        assert cells[row, random.MAP].mean < cells[row, random.POOLED].mean < cells[row, random.PRINTED].mean


def test_parameters_are_those_of_the_notes(tmp_path):
    study = BY_NAME["crelu/parameters"]
    found = finished(study, tmp_path)
    assert [found.cells[row, "weights"].mean for row in study.rows] == [
        *(1_285_536, 5_133_120, 1_285_536, 2_568_480, 643_728),
        *(9_367_584, 4_683_792, 8_600_592, 10_139_680),
    ]
    assert found.verdict is not None
    assert "4 of 9 counts are those printed. Not: ConvPool, baseline (1.29, printed 1.4)" in found.verdict


@pytest.mark.parametrize(
    "half, words",
    [
        (
            (8.0, 8.1, 7.9),
            "At equal neurons CReLU (half) errs on 8.00%, the baseline on 10.00%: -2.00 ± 0.08",
        ),
        ((8.0, 8.1, 7.9), "the claim holds here"),
        ((12.0, 12.1, 11.9), "the opposite of the claim"),
        ((9.0, 10.0, 10.9), "no more than noise"),
        ((9.0,), "-1.00 (one value each), too few runs to tell"),
    ],
)
def test_the_verdict_on_table_1_follows_its_figures(half, words):
    study = BY_NAME["crelu/convpool"]
    found = convpool.verdict(filled(study, {"Baseline": (10.0, 10.1, 9.9), "CReLU (half)": half}))
    assert words in found.replace(' ("Single")', "")


def test_the_verdict_on_pairing_compares_with_random_filters_and_with_crelu():
    study = BY_NAME["crelu/pairing"]
    runs = [
        {"config": {"variant": variant}, "metrics": {"conv1 mu": mu, "conv1 random mu": -0.3}}
        for variant, mu in (("baseline", -0.8), ("crelu", -0.3))
    ]
    found = learned.pairing_verdict(
        filled(study, {"Baseline": (-0.5, -0.51, -0.49), "CReLU": (0.0, 0.01, -0.01)}, runs)
    )
    assert "Baseline: mean mu -0.80 in conv1, random filters -0.30; difference -0.50" in found
    assert "more than random ones: the claim holds here" in found
    assert "more than those of CReLU networks: -0.50 ± 0.01" in found


def test_the_verdict_on_phases_says_when_the_claim_does_not_hold():
    study = BY_NAME["crelu/phase"]
    assert "does not hold" in learned.phase_verdict(filled(study, {"CReLU": (0.5,), "CReLU (half)": (0.5,)}))
    table = filled(study, {"CReLU": (0.5,), "CReLU (half)": (0.6,)})
    apart = {**table.cells, **{(row, learned.NON_PAIR): cell(0.1) for row in study.rows}}
    found = learned.phase_verdict(Table(study, "small", apart, []))
    assert "largest correlation is 0.60 (conv1, CReLU (half))" in found
    assert "0.55 between the phases of a unit and 0.10" in found
    assert "claim holds" in found


def test_the_verdicts_on_reconstruction_and_invariance_count_layers():
    study = BY_NAME["crelu/invariance"]
    found = learned.invariance_verdict(filled(study, {"Baseline": (1.0, 1.1), "CReLU": (2.0, 2.1)}))
    assert "higher than the baseline's in 7 of 7 layers, in 7 by more than noise" in found
    found = learned.invariance_verdict(filled(study, {"Baseline": (1.0, 1.1), "CReLU": (0.5, 0.6)}))
    assert "in 0 of 7 layers, in 0 by more than noise (none)" in found
    study = BY_NAME["crelu/reconstruction"]
    found = learned.reconstruction_verdict(filled(study, {"CReLU": (0.9, 0.91), "CReLU (half)": (0.9, 0.91)}))
    assert found.count("no more than noise") == 4


def test_the_verdict_on_vgg_compares_every_variant_with_vgg():
    study = BY_NAME["crelu/vgg"]
    lower = dict.fromkeys(study.rows, (6.4, 6.41)) | {"VGG": (6.9, 6.91)}
    found = vgg.verdict(filled(study, lower))
    for column in ("Single", "Average"):
        assert found.count(f'"{column}" -0.50 ± 0.01 (p = 0.0002), the claim holds here') == 3


def test_the_verdict_on_imagenet_ranks_the_networks():
    study = BY_NAME["crelu/imagenet"]
    errors = {row: (figures[0],) for row, figures in imagenet.TABLE4.items()}
    found = imagenet.errors_verdict(filled(study, errors))
    assert found.startswith("Top-1 error: CReLU (conv1-4) 39.82, CReLU (conv1-7) 39.97")
    assert found.endswith("5 of 5 CReLU networks err less than the baseline.")


def test_differences_are_welch_s():
    found = difference(cell(1, 2, 3), cell(2, 3, 4))
    assert (found.mean, found.error, found.chance) == pytest.approx((-1, (2 / 3) ** 0.5, 0.2879), abs=1e-4)


def test_imagenet_is_trained_as_appendix_e_says():
    configs = {
        row: plan(BY_NAME["crelu/imagenet"], "full", only=row)[0].config
        for row in ("Baseline", "CReLU (all)")
    }
    first, second = (config["recipes"][config["optimizer"]] for config in configs.values())
    assert (first["epochs"], first["table"][0], first["table"][-1]) == (45, [10, 0.01, 0.0005], [45, 1e-6, 0])
    assert second == {"epochs": 100, "optimizer": "adam", "lr": 0.0002}
