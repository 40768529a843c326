import pytest
import torch

from relucid.nn import CReLU
from relucid.papers import find
from relucid.papers.ours import depth, digits
from relucid.papers.ours.findings import (
    ANEW,
    CRELU,
    DEPTH,
    HALF,
    KEPT,
    LAYERS,
    MANY,
    MEND,
    MENDING,
    METHODS,
    PARAMETERS,
    TURN,
    UNCHANGED,
    boundaries,
)
from relucid.papers.ours.quickstart_page import parts
from relucid.report.study import study_page
from relucid.studies import Store, table

STUDY = find("quickstart")


@pytest.fixture(scope="module")
def found(quickstart_store):
    return table(STUDY, "smoke", store=quickstart_store)


def test_every_row_is_run(found):
    assert {record["state"] for record in found.runs} == {"finished"}, found.runs[0]["error"]


def test_conversion_doubles_what_half_the_filters_halve(found):
    size = {row: found.cells[row, PARAMETERS].mean for row in (*MENDING, HALF)}
    assert size[CRELU] == size[MANY]
    assert (size[UNCHANGED], size[ANEW], size[HALF]) == (16698, 16698, 8514)


def test_the_halved_network_has_as_many_channels():
    images = torch.zeros(2, 1, 8, 8)
    plain, half = digits.network(), digits.network(crelu=True)
    assert plain[:9](images).shape == half[:9](images).shape
    assert any(isinstance(layer, CReLU) for layer in half)


def test_a_seed_has_its_own_digits_to_train_on():
    first, other = digits.split(0), digits.split(1)
    assert (len(first.train), len(first.test)) == (750, 1047)
    assert not torch.equal(first.train.targets, other.train.targets)


def test_what_reversible_layers_keep_does_not_grow_with_depth(found):
    few, _, many = LAYERS
    kept = {side: [found.cells[row, column].mean for row in (few, many)] for side, column in KEPT.items()}
    assert kept["ordinary"][1] > 15 * kept["ordinary"][0]
    assert kept["reversible"][1] < 3 * kept["reversible"][0]
    assert (
        max(run["metrics"]["gradients"] for row in LAYERS for run in found.behind(row, KEPT["ordinary"]))
        < 1e-4
    )


def test_bytes_are_counted_once_and_without_parameters():
    layer, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.randn(8, 4)
    assert depth.kept(layer, x) == 2 * 8 * 4 * 4  # the input of the one, the output of the other


def test_no_boundary_of_a_geometric_unit_turns_as_far(found):
    turns = {row: max(found.cells[row, TURN].values) for row in METHODS}
    assert turns["geometric"] < min(turn for row, turn in turns.items() if row != "geometric")


def test_a_smoke_test_is_not_judged(found):
    assert found.verdict is None


def test_findings_are_judged_and_told_in_words(found, filled, standing):
    errors = {UNCHANGED: 5.0, CRELU: 3.7, MANY: 3.6, ANEW: 5.1}

    def values(row, column):
        level = errors.get(row, 4.8)
        return [level * (1 + 0.001 * seed) + 0.1 * seed + 0.01 * (-1) ** seed for seed in range(3)]

    scaled = STUDY.scales["smoke"].config.keys()  # what a smoke test does less of
    runs = [
        {**run, "config": {name: value for name, value in run["config"].items() if name not in scaled}}
        for run in found.runs
    ]
    made = filled(STUDY, values, "full", runs)
    entry = standing(made, MEND)
    assert [each.outcome for each in entry.judged] == ["holds"] * 3
    assert "3.81%" in entry.remark
    assert "better in 3 of 3 cases." in entry.remark
    assert entry.remark.endswith(
        "new networks of its size, trained from scratch, misclassify 3.71%, fewer in 3 of 3 cases."
    )
    assert standing(made, DEPTH).remark.startswith("With 10 layers and 200 layers")


def test_the_page_has_four_parts_each_with_its_figure_and_table(found, quickstart_store):
    results = Store(quickstart_store)
    four = parts(found, results)
    assert [len(part.figures) for part in four] == [0, 1, 1, 2]  # one seed has no intervals
    assert all(part.grid.rows for part in four)
    page = study_page(found, results, "quickstart")
    assert "Smoke test" in page
    assert "4. Depth at constant memory" in page
    results.close()


def test_the_sentence_on_boundaries_gives_the_means_of_the_table(found):
    means = {row: found.cells[row, TURN].mean for row in METHODS}
    assert all(f"{mean:.0f}°" in boundaries(found) for mean in means.values())
