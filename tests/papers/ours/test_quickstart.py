import pytest
import torch
from torch import nn

from relucid.papers import find
from relucid.papers.ours import depth
from relucid.papers.ours.findings import (
    BOUNDARIES,
    DEPTH,
    FITTED,
    KEPT,
    LAYERS,
    LEARNING,
    MEND,
    METHODS,
    TURN,
    boundaries,
    findings,
)
from relucid.papers.ours.mend import CONVERTED, NEW, NEW_CRELU, RENEWED, UNCHANGED, WITHOUT
from relucid.papers.ours.plasticity import HALF, RELU
from relucid.papers.ours.quickstart_page import parts
from relucid.report.study import study_page
from relucid.studies import Store, cells, table

STUDY = find("quickstart")


@pytest.fixture(scope="module")
def found(quickstart_store):
    return table(STUDY, "smoke", store=quickstart_store)


def test_every_row_is_run(found):
    assert {record["state"] for record in found.runs} == {"finished"}, found.runs[0]["error"]
    assert len(found.runs) == len(STUDY.rows)


def test_the_conversion_moves_no_output(found):
    (record,) = found.behind(CONVERTED, FITTED)
    assert max(record["metrics"]["moved"]) < 1e-4


def test_what_reversible_layers_need_does_not_grow_with_depth(found):
    few, _, many = LAYERS
    needed = {side: [found.cells[row, column].mean for row in (few, many)] for side, column in KEPT.items()}
    assert needed["ordinary"][1] > 50 * needed["ordinary"][0]
    assert needed["checkpointed"][1] > 5 * needed["checkpointed"][0]
    assert needed["reversible"][1] < 5 * needed["reversible"][0]
    assert all(max(run["metrics"]["gradients"]) < 1e-4 for row in LAYERS for run in found.behind(row))


def test_all_ways_through_the_layers_agree():
    torch.manual_seed(0)
    sides, x = depth.stages(depth.transforms(10, 4)), torch.randn(2, 4, 8, 8)
    expected = sides["ordinary"](x)
    for stage in sides.values():
        torch.testing.assert_close(stage(x), expected)
        torch.testing.assert_close(depth.step(stage, x), depth.step(sides["ordinary"], x))


def test_bytes_are_counted_once_and_without_parameters():
    layer, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(8, 4)
    # the input of the one, the output of the other
    assert depth.kept(layer, x, layer.parameters()) == 2 * 8 * 4 * 4


def test_checkpoints_need_the_ends_of_all_segments_and_one_segment():
    stage, x = depth.stages(depth.transforms(9, 4))["checkpointed"], torch.randn(2, 4, 8, 8)
    state = x.numel() * 4
    assert stage.length == 3
    # The first segment starts from one state, the others from two; a layer keeps its rectified input.
    assert depth.needed(stage, x) == (1 + 2 + 2) * state + 3 * state


def test_no_boundary_of_a_geometric_unit_turns_as_far(found):
    turns = {row: max(found.cells[row, TURN].values) for row in METHODS}
    assert turns["geometric"] < min(turn for row, turn in turns.items() if row != "geometric")


def test_a_smoke_test_is_not_judged(found):
    assert found.verdict is None


def test_findings_are_judged_and_put_in_words(found, filled, standing):
    levels = {
        UNCHANGED: 20.0,
        RENEWED: 25.0,
        CONVERTED: 40.0,
        WITHOUT: 35.0,
        NEW: 25.0,
        NEW_CRELU: 50.0,
        HALF: 70.0,
        RELU: 60.0,
    }

    def values(row, column):
        level = levels.get(row, 4.8)
        return [level * (1 + 0.001 * seed) + 0.1 * seed + 0.01 * (-1) ** seed for seed in range(3)]

    planned = {row: runs[0] for (row, _), runs in cells(STUDY, "full").items()}
    runs = [{**found.behind(row)[0], "key": run.key, "config": run.config} for row, run in planned.items()]
    made = filled(STUDY, values, "full", runs)
    assert [each.outcome for each in standing(made, LEARNING).judged] == ["holds"]
    assert [each.outcome for each in standing(made, MEND).judged] == ["holds"] * 4
    against_new = standing(made, f"{MEND}: against new networks").judged
    assert [each.outcome == "holds" for each in against_new] == [True, False, True, False]
    assert "fits 40% of the labels (35% with a new optimizer), unchanged 20%" in standing(made, MEND).remark
    assert "That is not the error: on test points it is 4." in standing(made, BOUNDARIES).remark
    assert standing(made, DEPTH).remark.startswith("The backward pass through 1000 layers needs")
    assert findings(made).count("\n") == 3


def test_the_page_has_four_parts_each_with_its_figure_and_table(found, quickstart_store):
    results = Store(quickstart_store)
    four = parts(found, results)
    assert [part.title for part in four] == [
        "Keeps learning",
        "Mended without forgetting",
        "See what units do",
        "A thousand layers in constant memory",
    ]
    assert [len(part.figures) for part in four] == [1, 1, 1, 2]
    assert all(part.grid.rows for part in four)
    assert len(four[2].figures[0].plot.frames) > 2  # the slider moves through training
    assert [part.wide for part in four] == [False, False, True, True]
    learning = four[0].figures[0].plot
    assert {trace.legendgroup.partition(", rate")[0] for trace in learning.data} == {RELU, HALF}
    page = study_page(found, results, "quickstart")
    assert "Smoke test" in page
    assert "4. A thousand layers in constant memory" in page
    results.close()


def test_the_sentence_on_boundaries_gives_the_means_of_the_table(found):
    means = {row: found.cells[row, TURN].mean for row in METHODS}
    assert all(f"{mean:.0f}°" in boundaries(found) for mean in means.values())
