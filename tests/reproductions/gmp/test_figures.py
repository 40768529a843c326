import json

import numpy as np
import pytest
from plotly import graph_objects as go
from plotly.subplots import make_subplots

from relucid.report.page import plotly
from relucid_reproductions.gmp import fig1, fig2, fig3, rates, section4_3, table1, table2, table3
from relucid_reproductions.gmp.drawing import lines, play
from relucid_reproductions.gmp.problems import METHODS

TABLES = {"gmp/levy": fig2.levy, "gmp/banana": fig3.banana, "gmp/perturbation": fig1.perturbed}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, smoked):
    """A function that runs a study at smoke scale, a row of it if one is named, and draws its figures."""
    directory, rng = tmp_path_factory.mktemp("figures"), np.random.default_rng(0)
    points = [f"{x},{y},{(-1) ** (x > y)}" for x, y in rng.normal(size=(5300, 2)).round(3)]
    (directory / "banana.csv").write_text("\n".join(["At1,At2,Class", *points]) + "\n")

    def draw(study, **part):
        results = smoked(study, directory / "runs", **part)
        assert not results.unknown_metrics()
        return [figure for draw in study.figures for figure in draw(results)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELUCID_DATA", str(directory))
        yield draw


@pytest.mark.parametrize("study, panels", [(fig2.levy, 3), (fig3.banana, 4)])
def test_training_can_be_played_in_four_panels_side_by_side(study, panels, drawn):
    moving, *others = drawn(study)
    plot = moving.plot
    titles = ["SP, rate 0.01", "WN, rate 0.01", "BN, rate 0.01", "GmP, rate 0.1"]
    assert [text.text for text in plot.layout.annotations] == titles
    assert len(plot.data) == 4 * panels
    steps = [int(frame.name.removeprefix("step ")) for frame in plot.frames]
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    for frame in plot.frames:
        assert len(frame.data) == len(frame.traces) == 4 * (panels - 1)
        assert [trace.type for trace in frame.data] == [plot.data[place].type for place in frame.traces]
        assert len(json.dumps(frame.to_plotly_json(), default=lambda array: array.tolist())) < 60_000
    first, last = (frame.data[0].y for frame in (plot.frames[0], plot.frames[-1]))
    assert list(first) != list(last)
    largest = others[-1].plot.data  # over training, at the large rate
    assert [line.name for line in largest] == list(METHODS)
    # On Levy a step of a point, below 1 under GmP; on Banana a turn in degrees.
    assert max(largest[3].y) < 1 < max(largest[0].y) if study is fig2.levy else max(largest[0].y) > 4 > np.pi
    assert all(figure.alt.endswith(".") and json.loads(plotly(figure)) for figure in (moving, *others))


def test_a_panel_whose_training_has_ended_stays_as_it_was():
    plot = make_subplots(1, 2)
    short, long = ({"step": np.arange(count)} for count in (2, 4))

    def draw(arrays, frame, color):
        return [go.Scatter(x=[frame], y=[0], line_color=color)]

    play(plot, {"SP": short, "GmP": long}, draw)
    assert [[trace.x[0] for trace in frame.data] for frame in plot.frames] == [[0, 0], [1, 1], [1, 2], [1, 3]]


@pytest.mark.parametrize("study", TABLES.values(), ids=TABLES)
def test_what_is_there_is_drawn_before_all_runs_are_done(study, drawn):
    for figure in drawn(study, only="GmP"):
        panels = [note.text.partition(",")[0] for note in figure.plot.layout.annotations]
        assert panels or [line.name for line in figure.plot.data] == ["GmP"]
        assert set(panels) <= {"GmP"}
        assert json.loads(plotly(figure))


@pytest.mark.parametrize("study, shown", [*zip(fig1.STUDIES, (fig1.SHOWN, fig1.AUTHORS), strict=True)])
def test_one_boundary_per_perturbation_and_parameterization(study, shown, drawn):
    for figure in drawn(study):
        assert len(figure.plot.data) == len(fig1.KINDS) * len(shown)
        assert sum(bool(line.showlegend) for line in figure.plot.data) == len(shown)


@pytest.mark.parametrize("study, row", [(table2.vgg6, "GmP+IMN"), (table1.resnet50, "BN")])
def test_training_curves_are_drawn_for_both_splits(study, row, drawn):
    figures = drawn(study, only=row)
    assert [figure.title for figure in figures] == ["Top-5 error, training", "Top-5 error, validation"]
    for figure, images in zip(figures, study.runs("smoke")[0].config["images"], strict=True):
        (line,) = figure.plot.data
        assert line.name == row
        wrong = np.array(line.y) * images / 100  # of so many images, hence whole numbers
        assert wrong == pytest.approx(wrong.round())
        assert (wrong > 0).all()


def test_rates_have_a_panel_per_problem_and_a_line_per_parameterization(filled):
    (figure,) = rates.figures(filled(rates.by_rate, lambda row, column, place: [1.0, 2.0]))
    assert len(figure.plot.layout.annotations) == 8
    assert len(figure.plot.data) == 8 * 4
    assert list(figure.plot.data[0].x) == [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]


def test_widths_and_depths_have_a_line_per_parameterization_and_initialization(filled):
    (figure,) = section4_3.figures(filled(section4_3.initialization, lambda row, column, place: [1.0, 2.0]))
    assert len(figure.plot.data) == 2 * 12
    assert {tuple(line.x) for line in figure.plot.data} == {section4_3.WIDTHS, section4_3.DEPTHS}


def test_both_protocols_of_table_3_and_a_deep_network_run_at_smoke_scale(tmp_path, monkeypatch, smoked):
    rng = np.random.default_rng(0)
    (tmp_path / "uci").mkdir()
    np.savetxt(tmp_path / "uci" / "yacht.txt", rng.normal(size=(308, 7)))
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    uci = table3.uci.variant("uci", columns={"Yacht": table3.uci.columns["Yacht"]}, claims=[])
    for record in smoked(uci, tmp_path / "runs").records.values():
        tried = 6 if record["config"]["stop_on"] == "validation" else 1
        assert sum(name.startswith("error at") for name in record["metrics"]) == tried
    deep = section4_3.initialization.variant(
        "deep", columns={"depth 5": section4_3.SHAPES["depth 5"]}, claims=[]
    )
    for record in smoked(deep, tmp_path / "runs", only="GmP, unscaled").records.values():
        errors, trained = (record["metrics"][name] for name in ("error", "trained"))
        assert trained == [100.0 * (error < 50) for error in errors]


def test_lines_lie_where_units_switch():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 7, 5)
    direction, radius = np.stack([np.cos(angles), np.sin(angles)], 1), rng.normal(size=5)
    xs, ys = lines(direction, radius)
    assert xs[2::3] == ys[2::3] == [None] * 5
    for unit in range(5):
        for end in (3 * unit, 3 * unit + 1):
            assert direction[unit] @ [xs[end], ys[end]] + radius[unit] == pytest.approx(0, abs=2e-3)
