import math

import pytest

from relucid.experiments import Column, Results, Store, Study
from relucid.report.plots import averaged, curves, over_epochs, points, recorded


def test_curves_are_averaged_up_to_the_end_of_the_shortest():
    assert averaged([[1.0, 2.0, 3.0], [3.0, 6.0]]) == [2.0, 4.0]
    assert averaged([]) == []


def test_what_the_store_could_not_hold_is_not_a_number():
    first, second = averaged([[1.0, None], [3.0, 6.0]])
    assert (first, math.isnan(second)) == (2.0, True)


def test_rows_without_a_curve_have_no_line():
    figure = over_epochs("Curves", "loss", {"one": [2.0, 1.0], "none": []})
    assert [trace.name for trace in figure.plot.data] == ["one"]
    assert "one from 2 to 1" in figure.alt


def test_what_runs_recorded_is_drawn_as_the_mean_of_a_row(squares, done):
    (figure,) = recorded(done(squares()))
    one, two = figure.plot.data
    assert one.y == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert two.y == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6])
    assert figure.title == "loss during training"


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"a": Column("value"), "b": Column("value", {"more": 1})}},
        {"choose": {"seed": [0, 1]}, "repeat": {}, "by": "value"},
    ],
)
def test_rows_without_a_single_curve_are_not_drawn(squares, done, changes):
    assert recorded(done(squares(published={}, **changes))) == []


def drifting(seed):
    history = {"train_error": [float(seed), 0.0]}
    return {"value": 1.0, "history": {**history, "gain": [1.0, 2.0]} if seed else history}


def test_a_quantity_is_averaged_over_the_runs_that_recorded_it(done):
    study = Study("s", "", drifting, {"one": {}}, {"value": Column("value")}, repeat={"seed": range(3)})
    error, gain = recorded(done(study))
    assert [error.plot.data[0].y, gain.plot.data[0].y] == [(1.0, 0.0), (1.0, 2.0)]


def test_curves_are_those_of_the_seeds_in_the_table(done, tmp_path):
    study = Study("s", "", drifting, {"one": {}}, {"value": Column("value")}, repeat={"seed": range(5)})
    done(study)
    with Store(tmp_path) as store:
        (figure,) = curves(Results(study, "full", store, seeds=2))
    assert figure.plot.data[0].y == (0.5, 0.0)


def test_columns_are_drawn_with_errors_and_published_figures(squares, done):
    (figure,) = points(done(squares()))
    planted = '<script>alert("planted")</script>'
    assert figure.title == "value (lowest is best)"
    assert figure.alt == f"Means with standard errors, ours: one 1.15, {planted} 4.13; published: one 1.20."
    ours, theirs = figure.plot.data
    assert ours.x == pytest.approx((1.15, 4.1333), abs=1e-4)
    assert ours.y[1].startswith("&lt;script&gt;")  # Plotly reads some HTML
    assert theirs.error_x.array == (0.1,)
