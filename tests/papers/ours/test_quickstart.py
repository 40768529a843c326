import pytest
import torch

from relucid.papers import find
from relucid.papers.ours.quickstart import UNCHANGED, Digits, figures
from relucid.studies import Store, run, table

STUDY = find("quickstart")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def found(store):
    run(STUDY, "smoke", store=store, jobs=1)
    return table(STUDY, "smoke", store=store)


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


def test_a_smoke_test_is_not_judged(found):
    assert found.verdict is None


def test_conversions_are_judged_and_what_the_examination_found_is_told(found, filled, standing):
    errors = {"CReLU": 2.0, "geometric": 8.0}

    def values(row, column):
        wobble = 0.01 if row in errors else 0.0
        return [errors.get(row, 4.0) + 0.1 * seed + wobble * (-1) ** seed for seed in range(3)]

    entry = standing(filled(STUDY, values, runs=found.runs), "quickstart")
    outcomes = {each.expected.a.row: each.outcome for each in entry.judged}
    assert (outcomes["CReLU"], outcomes["geometric"]) == ("holds", "holds the other way round")
    assert "were dead" in entry.remark
    assert entry.remark.startswith("Conversions moved no output by more than ")


def test_the_figures_show_every_unit_and_the_course_of_training(found, store):
    activity, *courses = figures(found, Store(store))
    units = 4 * 7  # of the smoke scale's seven layers
    assert len(activity.plot.data[0].y) == units
    assert f"Of {units} units" in activity.alt
    assert any("train_loss" in figure.title for figure in courses)


def test_the_network_takes_digits():
    assert Digits(4)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
