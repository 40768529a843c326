import pytest
import torch
from torch import nn

from relucid.experiments import Results, read
from relucid.report.study import study_page
from relucid_reproductions.ours import depth
from relucid_reproductions.ours.quickstart import (
    BLOCKS,
    BOUNDARIES,
    KEPT,
    LAYERS,
    LIKED,
    METHODS,
    STUDIES,
    TURN,
    sentences,
    worst,
)
from relucid_reproductions.ours.quickstart_page import RECOMMENDERS, parts
from relucid_reproductions.ours.recommender import CONVERTED, SEEDS, drawn, recommender

(STUDY,) = STUDIES


@pytest.fixture(scope="module")
def results(tmp_path_factory, smoked):
    return smoked(STUDY, tmp_path_factory.mktemp("quickstart"))


def test_every_row_is_run_and_the_conversion_moves_no_output(results):
    assert len(results.records) == len(STUDY.rows)
    assert results[CONVERTED, LIKED, "moved"].max() < 1e-4


def test_its_recommenders_are_those_of_the_study_with_other_seeds():
    for row in RECOMMENDERS:
        settings = {name: STUDY.rows[row][name] for name in ("arm", "rates")}
        assert settings == recommender.rows[row]
    planned = [each.run.config["recommender"]["seeds"] for each in STUDY.plan("full")]
    assert not {seed for seeds in planned for seed in seeds} & {*SEEDS, 100, 101, 102}


def test_what_reversible_layers_need_does_not_grow_with_depth(results):
    few, _, many = LAYERS
    growth = {
        side: results[many, column].mean() / results[few, column].mean() for side, column in KEPT.items()
    }
    assert growth["ordinary"] > 50
    assert growth["checkpointed"] > 5 > growth["reversible"]
    assert worst(results) < 1e-4


def test_all_ways_through_the_layers_agree():
    torch.manual_seed(0)
    sides, x = depth.stages(depth.transforms(10, 4)), torch.randn(2, 4, 8, 8)
    for stage in sides.values():
        torch.testing.assert_close(stage(x), sides["ordinary"](x))
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


def test_no_boundary_of_a_geometric_unit_turns_as_far(results):
    *others, geometric = (results[row, TURN].max() for row in METHODS)
    assert geometric < min(others)


def test_each_part_has_a_sentence_whose_numbers_are_those_of_the_table(results):
    texts = sentences(results)
    assert texts.keys() == BLOCKS.keys()
    assert all(f"{results[row, TURN].mean():.0f}°" in texts[BOUNDARIES][0] for row in METHODS)
    assert all(text.endswith(".") and "{" not in text for both in texts.values() for text in both)


def test_without_all_runs_there_is_no_sentence(results):
    some = dict(list(results.records.items())[1:])
    assert sentences(Results(STUDY, "smoke", some)) == {}


def test_the_page_has_three_parts_each_with_its_figure_and_table(results):
    three = parts(results, sentences(results))
    assert [len(part.figures) for part in three] == [1, 1, 2]
    assert all(part.grid.rows and part.sentence for part in three)
    assert len(three[1].figures[0].plot.frames) > 2  # the slider moves through training
    assert [trace.name for trace in three[0].figures[0].plot.data] == [*RECOMMENDERS]
    page = study_page(results, "quickstart")
    assert all(f"{number}. {part.title}" in page for number, part in enumerate(three, start=1))
    assert len(page) < 3_000_000


def test_recorded_runs_are_judged_on_the_page_and_the_conversion_is_marked(request):
    results = Results(STUDY, "full", read(request.config.rootpath / "results"))
    three = parts(results, {})
    assert [len(part.findings) for part in three] == [3, 2, 1]
    assert all(finding.verdicts for part in three for finding in part.findings)
    first, last = results[CONVERTED, LIKED, "repaired"].agg(["min", "max"])
    (mark,) = three[0].figures[0].plot.layout.shapes
    assert first < mark.x0 < last + 1


def test_without_the_converted_network_nothing_is_drawn():
    assert drawn(Results(STUDY, "full", {}), RECOMMENDERS, LIKED, CONVERTED) == []
