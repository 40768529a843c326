import pandas as pd
import pytest

from relucid._improve import GIVEN, TRAINED
from relucid_reproductions.ours import calibration
from relucid_reproductions.ours.calibration import ALLOWED, CALIBRATION, announced, improved, shares

pytestmark = pytest.mark.filterwarnings("ignore:With 2 seeds")


def test_the_same_network_in_every_row_is_not_announced_as_better(tmp_path, smoked):
    results = smoked(CALIBRATION, tmp_path)
    assert list(shares(results)) == [0.0] * len(calibration.SIZES)
    errors = [record["metrics"]["error"] for record in results.records.values()]
    assert len(set(errors)) == len(calibration.SIZES)


def test_a_network_that_was_hardly_trained_is_announced_as_improved_by_training():
    assert improved(seeds=4, test=500, draw=0, steps=1).row == TRAINED


def test_rows_are_trained_apart_so_that_they_differ_as_the_given_network_does():
    outcome = improved(seeds=2, test=500, draw=0)
    rows = outcome.results.study.rows
    assert len({value for row in rows for value in outcome.values(row)}) > 5
    assert rows.keys() >= {GIVEN, TRAINED, "CReLU", "from scratch", "CReLU from scratch"}


@pytest.mark.parametrize("count, low, high", [(2, -5, 0), (10, -5, 5), (30, 0, 100)])
def test_the_share_is_judged_by_its_interval_against_five_percent(count, low, high):
    comparison = announced(pd.Series([100.0] * count), pd.Series([0.0] * (200 - count)))
    assert comparison.effect == pytest.approx(count / 2 - ALLOWED)
    assert low < comparison.interval(0.95)[0] < comparison.interval(0.95)[1] < high
