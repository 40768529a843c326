from dataclasses import replace

import pytest
import torch
from relucid.report.quickstart import figures
from relucid.studies.quickstart import UNCHANGED, Digits

from relucid.studies import Cell, Store, Table, find, run, table

STUDY = find("quickstart")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def found(store):
    run(STUDY, "smoke", store=store, jobs=1)
    return table(STUDY, "smoke", store=store)


def made_up(found: Table, errors: dict[str, tuple[float, ...]], better: dict[str, bool]) -> Table:
    cells = dict(found.cells)
    for row, values in errors.items():
        cells[row, "test error %"] = Cell(values, len(values), {}, better=better.get(row))
    return replace(found, cells=cells)


def test_every_row_is_trained_and_conversions_move_no_output_visibly(found):
    assert {record["state"] for record in found.runs} == {"finished"}, found.runs[0]["error"]
    moved = {row: found.cells[row, "moved 10⁻⁶"].mean for row in STUDY.rows}
    assert moved[UNCHANGED] == 0
    assert all(value < 100 for value in moved.values())


def test_the_networks_of_a_seed_are_the_same_before_they_are_converted(found):
    assert len({record["metrics"]["error_before"] for record in found.runs}) == 1


def test_conversions_add_parameters_where_they_should(found):
    count = {row: found.cells[row, "parameters"].mean for row in STUDY.rows}
    assert count["geometric"] == count[UNCHANGED] < count["heavy ball"] < count["CReLU"]
    assert count["all three"] - count["CReLU"] == count["heavy ball"] - count[UNCHANGED] == 5


def test_the_verdict_of_one_seed_is_that_it_cannot_tell(found):
    assert "heavy ball and all three made cannot be told from one seed" in found.verdict


def test_the_verdict_tells_better_from_worse_and_from_chance(found):
    errors = dict.fromkeys(STUDY.rows, (4.0, 4.2)) | {"CReLU": (2.0, 2.2), "geometric": (8.0, 8.2)}
    said = made_up(found, errors, {"CReLU": True, "geometric": False}).verdict
    assert "unchanged it errs on 4.10 %" in said
    assert "CReLU ended better (2.10 %)" in said
    assert "geometric ended worse (8.10 %)" in said
    assert said.endswith("the difference that heavy ball and all three made is within what chance explains.")


def test_the_figures_show_every_unit_and_the_course_of_training(found, store):
    activity, *courses = figures(found, Store(store))
    units = 4 * 7  # of the smoke scale's seven layers
    assert len(activity.plot.data[0].y) == units
    assert f"Of {units} units" in activity.alt
    assert any("train_loss" in figure.title for figure in courses)


def test_the_network_takes_digits():
    assert Digits(4)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
