import json

import numpy as np
import pytest
from plotly import graph_objects as go
from plotly.subplots import make_subplots

from relucid.papers import find
from relucid.papers.gmp.drawing import lines, play
from relucid.report.page import plotly
from relucid.studies import Cell, Store, Table, plan

ONLY = {"gmp/vgg6": "GmP+IMN", "gmp/resnet50": "BN"}  # a row will do: the others would be drawn alike


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, smoke_tested):
    """A function that runs a study at smoke scale, a row of it if one is named, and draws its figures.

    All tests share one store, so that a study is run once.
    """
    tmp_path, rng = tmp_path_factory.mktemp("figures"), np.random.default_rng(0)
    points = [f"{x},{y},{(-1) ** (x > y)}" for x, y in rng.normal(size=(5300, 2)).round(3)]
    (tmp_path / "banana.csv").write_text("\n".join(["At1,At2,Class", *points]) + "\n")

    def draw(name, only=None):
        study = find(name)
        found = smoke_tested(study, tmp_path / "runs", only=only)
        store = Store(tmp_path / "runs")
        figures = study.figures(found, store)
        store.close()
        return figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELUCID_DATA", str(tmp_path))
        yield draw


@pytest.mark.parametrize("name, panels", [("gmp/levy", 3), ("gmp/banana", 4)])
def test_training_can_be_played_in_four_panels_side_by_side(name, panels, drawn):
    moving, *others = drawn(name)
    plot = moving.plot
    assert [text.text for text in plot.layout.annotations] == [
        *("SP, rate 0.01", "WN, rate 0.01", "BN, rate 0.01", "GmP, rate 0.1")
    ]
    assert len(plot.data) == 4 * panels
    steps = [int(frame.name.removeprefix("step ")) for frame in plot.frames]
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    for frame in plot.frames:
        assert len(frame.data) == len(frame.traces) == 4 * (panels - 1)
        kinds = [plot.data[place].type for place in frame.traces]
        assert [trace.type for trace in frame.data] == kinds
        assert len(json.dumps(frame.to_plotly_json(), default=lambda array: array.tolist())) < 60_000
    first, last = (frame.data[0].y for frame in (plot.frames[0], plot.frames[-1]))
    assert list(first) != list(last)
    assert all(figure.alt.endswith(".") and json.loads(plotly(figure)) for figure in (moving, *others))


def test_a_panel_whose_training_has_ended_stays_as_it_was():
    plot = make_subplots(1, 2)
    short, long = ({"step": np.arange(count)} for count in (2, 4))

    def draw(arrays, frame, colour):
        return [go.Scatter(x=[frame], y=[0], line_color=colour)]

    play(plot, {"SP": short, "GmP": long}, draw)
    assert [[trace.x[0] for trace in frame.data] for frame in plot.frames] == [[0, 0], [1, 1], [1, 2], [1, 3]]


@pytest.mark.parametrize("name", ["gmp/levy", "gmp/banana", "gmp/perturbation"])
def test_what_is_there_is_drawn_before_all_runs_are_done(name, drawn):
    for figure in drawn(name, only="GmP"):
        panels = [note.text.partition(",")[0] for note in figure.plot.layout.annotations]
        assert panels or [line.name for line in figure.plot.data] == ["GmP"]
        assert set(panels) <= {"GmP"}
        assert json.loads(plotly(figure))


def test_steps_are_drawn_at_the_large_rate_for_all_parameterizations(drawn):
    _, steps = drawn("gmp/levy")
    assert [line.name for line in steps.plot.data] == ["SP", "WN", "BN", "GmP"]
    assert max(steps.plot.data[3].y) < 1 < max(steps.plot.data[0].y)
    assert steps.plot.layout.yaxis.type == "log"


def test_turns_are_drawn_in_degrees(drawn):
    *_, turns = drawn("gmp/banana")
    assert max(turns.plot.data[0].y) > 4 > np.pi


def test_one_boundary_per_perturbation_and_parameterization(drawn):
    figure, larger = drawn("gmp/perturbation")
    assert len(larger.plot.data) == len(figure.plot.data)
    assert len(figure.plot.data) == 3 * 6
    assert sum(bool(line.showlegend) for line in figure.plot.data) == 6


@pytest.mark.parametrize("name", ONLY)
def test_training_curves_are_drawn_for_both_splits(name, drawn):
    (figure,) = drawn(name, only=ONLY[name])
    drawn_lines = [line for line in figure.plot.data if line.y]
    assert [line.name for line in drawn_lines] == [ONLY[name]] * 2
    for line, images in zip(drawn_lines, plan(find(name), "smoke")[0].config["images"], strict=True):
        wrong = np.array(line.y) * images / 100  # of so many images, hence whole numbers
        assert wrong == pytest.approx(wrong.round())
        assert (wrong > 0).all()


def filled(name, values=(1.0, 2.0)):
    study = find(name)
    return Table(
        study,
        "full",
        {
            (row, column): Cell(dict(zip("ab", values, strict=False)), 1, {"finished": 1})
            for row in study.rows
            for column in study.columns
        },
        [],
    )


def test_errors_are_divided_by_the_published_ones():
    found = filled("gmp/uci")
    (figure,) = found.study.figures(found, None)
    assert [dots.name for dots in figure.plot.data] == list(found.study.rows)
    for dots in figure.plot.data:
        theirs = found.study.published[dots.name.partition(",")[0]]
        assert dots.y == pytest.approx([1.5 / theirs[name][0] for name in dots.x])
        assert dots.error_y.array == pytest.approx([0.5 / theirs[name][0] for name in dots.x])


def test_rates_have_a_panel_a_problem_and_a_line_a_parameterization():
    (figure,) = find("gmp/rates").figures(filled("gmp/rates"), None)
    assert len(figure.plot.layout.annotations) == 8
    assert len(figure.plot.data) == 8 * 4
    assert figure.plot.data[0].x == (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


@pytest.mark.parametrize("values", [(), (1.0,)])
@pytest.mark.parametrize("name", ["gmp/uci", "gmp/rates"])
def test_tables_without_errors_or_figures_are_drawn(name, values):
    (figure,) = find(name).figures(filled(name, values), None)
    assert json.loads(plotly(figure))


def test_lines_lie_where_units_switch():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 7, 5)
    direction, radius = np.stack([np.cos(angles), np.sin(angles)], 1), rng.normal(size=5)
    xs, ys = lines(direction, radius)
    assert xs[2::3] == ys[2::3] == [None] * 5
    for unit in range(5):
        for end in (3 * unit, 3 * unit + 1):
            assert direction[unit] @ [xs[end], ys[end]] + radius[unit] == pytest.approx(0, abs=2e-3)
