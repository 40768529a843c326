import pytest

from relucid._improve import GIVEN, TRAINED
from relucid.papers.ours import calibration

pytestmark = pytest.mark.filterwarnings("ignore:With 2 seeds")
STUDY = calibration.STUDIES[0]


def test_the_same_network_in_every_row_is_not_announced_as_better(tmp_path, smoke_tested):
    found = smoke_tested(STUDY, tmp_path)
    assert len(found.runs) == 4
    assert calibration.shares(found) == [0.0] * 4
    assert len({record["metrics"]["error"] for record in found.runs}) == 4


def test_a_network_that_was_hardly_trained_is_announced_as_improved_by_training():
    found = calibration.improved({"seeds": 4, "test": 500, "draw": 0}, steps=1)
    assert found.row == TRAINED


def test_rows_are_trained_apart_so_that_they_differ_as_the_given_network_does():
    found = calibration.improved({"seeds": 2, "test": 500, "draw": 0})
    errors = [value for row in found.results.study.rows for value in found.values(row)]
    assert len(set(errors)) > 5
    assert found.results.study.rows.keys() >= {GIVEN, TRAINED, "CReLU", "from scratch", "CReLU from scratch"}


@pytest.mark.parametrize("count, low, high", [(2, -5, 0), (10, -5, 5), (30, 0, 100)])
def test_the_share_is_judged_by_its_interval_against_five_percent(monkeypatch, count, low, high):
    monkeypatch.setattr(calibration, "shares", lambda table: [100.0] * count + [0.0] * (200 - count))
    found = calibration.announced(None)
    assert found.effect == pytest.approx(count / 2 - 5)
    assert low < found.low < found.high < high
