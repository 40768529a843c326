"""Numbers that the documentation takes from results or from code."""

import re
from pathlib import Path

import pytest

from relucid.experiments import Results
from relucid.experiments._catalog import built_in, rooms, tables
from relucid_reproductions.crelu import theorem_c1
from relucid_reproductions.gmp.evolution import ADAM
from relucid_reproductions.ours.calibration import shares

DOCS = Path(__file__).parents[2] / "docs"


def quoted(page, pattern):
    """The number that a page states."""
    (found,) = re.findall(pattern, (DOCS / page).read_text())
    return found


@pytest.fixture(scope="module")
def results(records):
    """A function that reads the results of a study."""
    return lambda name, scale="full": Results(built_in()[name], scale, records)


@pytest.mark.parametrize(
    "column, pattern",
    [
        (theorem_c1.POOLED, r"one pooling region loses (0\.\d+) of its input"),
        (theorem_c1.PRINTED, r"the printed D gives (0\.\d+)"),
        (theorem_c1.TRUE, r"\| (0\.\d+) for random filters \|"),
    ],
)
@pytest.mark.parametrize("layer", theorem_c1.LAYERS)
def test_what_random_filters_lose_is_what_the_study_measured(results, column, pattern, layer):
    text = quoted("how/crelu.md", pattern)
    mean = results("crelu/random")[layer, column].mean()
    assert float(text) == pytest.approx(mean, abs=0.6 * 10.0 ** -len(text.partition(".")[2]))


@pytest.mark.parametrize("study, what", [("calibration", "trials"), ("calibration-default", "others")])
def test_the_improvements_that_were_announced_without_a_difference_are_those_of_the_study(
    results, study, what
):
    page = "tutorials/improve.md"
    count, of = quoted(page, rf"[Ii]n (\d+) of \[(\d+) {what}\]\(\.\./results/calibration\.md\)")
    found = shares(results(study))
    assert (int(count), int(of)) == ((found > 0).sum(), len(found))


def test_the_fall_of_table_s1_is_divided_as_the_study_does(results):
    text = quoted(
        "how/crelu.md", r"Of the fall in energy, ([\d.]+ points are the second phase, [\d.]+) the selection"
    )
    second, selection = map(float, re.findall(r"[\d.]+", text))
    both = float(quoted("how/crelu.md", r"√\(1 - 2K/D\) is (0\.\d+) with the true D"))
    for layer, (filters, channels) in theorem_c1.LAYERS.items():
        one, two = (phases * filters / (25 * channels) for phases in (1, 2))
        assert both == round((1 - two) ** 0.5, 3)
        assert second == pytest.approx(100 * (two - one))
        pooled = results("crelu/random")[layer, theorem_c1.POOLED].mean()
        assert 100 * (1 - two - pooled**2) == pytest.approx(selection, abs=0.15)


def test_the_weights_of_convpool_are_those_counted(results):
    counted = results("crelu/parameters")
    weights = counted["ConvPool, baseline", "weights"].mean()
    assert quoted("how/crelu.md", r"\| ([\d,]+) as printed in Table S2") == f"{weights:,.0f}"
    millions = counted["All-CNN-B, CReLU (all)", "millions of weights"].mean()
    assert quoted("how/crelu.md", r"the published (\d\.\d)M weights") == f"{millions:.1f}"


def test_the_bound_on_steps_of_adam_is_that_of_the_code():
    assert quoted("how/gmp.md", r"never exceed (\d\.\d+) learning rates") == f"{ADAM:.2f}"


def test_the_memory_against_checkpointing_in_segments_is_that_of_the_benchmark():
    table = (DOCS / "benchmarks.md").read_text()
    (ratio,) = re.findall(r"\| 16 channels, 16x16 \| 200 \|.*, ([\d.]+) \|\n", table)
    readme = (DOCS.parent / "README.md").read_text()
    assert f"200 reversible layers take {ratio} of the memory" in readme
    assert "keeps about four times as much at 200 layers" in (DOCS / "choose.md").read_text()
    assert round(1 / float(ratio)) == 4


def test_wherever_cifar_10_was_used_its_encoding_is_mentioned(records):
    pages = {study.name: table for room in rooms() for table in tables(room) for study in table.STUDIES}
    used = {
        pages[name]
        for name, study in built_in().items()
        for scale in study.scales
        if any(run.config.get("data") == "cifar10" for run in study.runs(scale) if run.key in records)
    }
    silent = [
        table.__name__
        for table in used
        for text in [Path(table.__file__).with_suffix(".md").read_text()]
        if "re-encoded as JPEG" not in " ".join(text.split()) and "(table1.md)" not in text
    ]
    assert len(used) > 5
    assert silent == []


def test_how_the_refitted_networks_failed_is_what_their_runs_show(results):
    found = results("crelu/convpool-refitted", "cpu")
    runs = [run for run in found.records.values() if run["config"]["variant"] == "half"]
    dead = [run for run in runs if run["metrics"].get("train_error", 0.0) > 80]
    learned = [run for run in dead if run["history"]["train_loss"][49] < 2]
    assert (len(runs), len(dead), len(learned)) == (10, 7, 6)
    assert [run["state"] for run in runs].count("diverged") == 1
    page = " ".join((DOCS / "results" / "crelu-convpool-fitted.md").read_text().split())
    assert (
        "seven of ten networks with CReLU end at chance, six of them after learning for fifty epochs" in page
    )


def test_what_crelu_costs_and_gains_is_what_the_studies_measured(ledger):
    found = quoted(
        "../README.md",
        r"errs (\d\.\d) points less than ReLU where.*\n.* (\d\.\d) points more where.*VGG, (\d\.\d) points more",
    )
    claims = ("Table 1, CIFAR-10, whole batches", "Table 1, CIFAR-10", "Tables 2, 3, CIFAR-10")
    effects = [ledger[f"crelu {where}"].finding.verdicts[0].comparison.effect for where in claims]
    assert [f"{sign * effect:.1f}" for sign, effect in zip((-1, 1, 1), effects, strict=True)] == [*found]
