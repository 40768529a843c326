import math

import pytest

from relucid.report.curves import averaged, over_epochs, recorded, training
from relucid.studies import Column, Result, Study, table


def test_courses_are_averaged_up_to_the_end_of_the_shortest():
    assert averaged([[1.0, 2.0, 3.0], [3.0, 6.0]]) == [2.0, 4.0]
    assert averaged([]) == []


def test_what_the_store_could_not_hold_is_not_a_number():
    first, second = averaged([[1.0, None], [3.0, 6.0]])
    assert (first, math.isnan(second)) == (2.0, True)


def test_rows_without_a_course_have_no_line():
    figure = over_epochs("Curves", "loss", {"one": [2.0, 1.0], "none": []})
    assert [trace.name for trace in figure.plot.data] == ["one"]
    assert "one from 2 to 1" in figure.alt


def test_what_runs_recorded_is_drawn_as_the_mean_of_a_row(squares, done):
    (figure,) = recorded(done(squares())[0])
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
def test_rows_without_a_single_course_are_not_drawn(squares, done, changes):
    assert recorded(done(squares(published={}, **changes))[0]) == []


def drifting(config):
    error = {"train_error": [float(config["seed"]), 0.0]}
    return Result({"value": 1.0}, {**error, "gain": [1.0, 2.0]} if config["seed"] else error)


def test_a_quantity_is_averaged_over_the_runs_that_recorded_it(done):
    study = Study("s", "", drifting, {"one": {}}, {"value": Column("value")}, repeat={"seed": range(3)})
    error, gain = recorded(done(study)[0])
    assert [error.plot.data[0].y, gain.plot.data[0].y] == [(1.0, 0.0), (1.0, 2.0)]


def test_curves_are_those_of_the_seeds_in_the_table(done, tmp_path):
    study = Study("s", "", drifting, {"one": {}}, {"value": Column("value")}, repeat={"seed": range(5)})
    _, store = done(study)
    (figure,) = training(table(study, seeds=2, store=tmp_path), store)
    assert figure.plot.data[0].y == (0.5, 0.0)
