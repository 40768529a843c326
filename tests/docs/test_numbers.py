"""Numbers in pages about how things work, which come from code and from records."""

import re
from pathlib import Path

import pytest

from relucid.experiments import Results
from relucid.experiments._catalog import built_in, find, rooms, tables
from relucid_reproductions.crelu import theorem_c1
from relucid_reproductions.gmp.evolution import ADAM
from relucid_reproductions.ours.calibration import shares

DOCS = Path(__file__).parents[2] / "docs"


def quoted(page, pattern):
    """The number that a page states."""
    (number,) = re.findall(pattern, (DOCS / page).read_text(encoding="utf-8"))
    return number


@pytest.fixture(scope="module")
def results(records):
    """A function that returns the results of a study at its default scale."""

    def of(name):
        study = find(name)
        return Results(study, study.default_scale, records)

    return of


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
    count, of = quoted(
        "tutorials/improve.md", rf"[Ii]n (\d+) of \[(\d+) {what}\]\(\.\./results/calibration\.md\)"
    )
    announced = shares(results(study))
    assert (int(count), int(of)) == (sum(announced > 0), len(announced))


def test_the_fall_of_table_s1_is_divided_as_the_study_does(results):
    text = quoted(
        "how/crelu.md", r"Of the fall in energy, ([\d.]+ points are the second phase, [\d.]+) the selection"
    )
    second, selection = map(float, re.findall(r"[\d.]+", text))
    both = float(quoted("how/crelu.md", r"√\(1 - 2K/D\) is (0\.\d+) with the true D"))
    for layer, (filters, channels) in theorem_c1.LAYERS.items():
        of_one, of_two = (phases * filters / (25 * channels) for phases in (1, 2))
        assert both == round((1 - of_two) ** 0.5, 3)
        assert second == pytest.approx(100 * (of_two - of_one))
        pooled = results("crelu/random")[layer, theorem_c1.POOLED].mean()
        assert 100 * (1 - of_two - pooled**2) == pytest.approx(selection, abs=0.15)


def test_the_weights_of_convpool_are_those_counted(results):
    counted = results("crelu/parameters")
    weights = counted["ConvPool, baseline", "weights"].mean()
    assert quoted("how/crelu.md", r"\| ([\d,]+) as printed in Table S2") == f"{weights:,.0f}"
    millions = counted["All-CNN-B, CReLU (all)", "millions of weights"].mean()
    assert quoted("how/crelu.md", r"the published (\d\.\d)M weights") == f"{millions:.1f}"


def test_the_bound_on_steps_of_adam_is_that_of_the_code():
    assert quoted("how/gmp.md", r"never exceed (\d\.\d+) learning rates") == f"{ADAM:.2f}"


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
        for text in [Path(table.__file__).with_suffix(".md").read_text(encoding="utf-8")]
        if "re-encoded as JPEG" not in " ".join(text.split()) and "(table1.md)" not in text
    ]
    assert len(used) > 5
    assert silent == []


def test_how_the_refitted_networks_failed_is_what_their_runs_show(results):
    found = results("crelu/convpool-refitted")
    runs = [run for run in found.records.values() if run["config"]["variant"] == "half"]
    dead = [run for run in runs if run["metrics"].get("train_error", 0.0) > 80]
    learned = [run for run in dead if run["history"]["train_loss"][49] < 2]
    assert (len(runs), len(dead), len(learned)) == (10, 7, 6)
    assert [run["state"] for run in runs].count("diverged") == 1
    page = " ".join((DOCS / "results" / "crelu-convpool-fitted.md").read_text(encoding="utf-8").split())
    assert (
        "seven of ten networks with CReLU end at chance, six of them after learning for fifty epochs" in page
    )
