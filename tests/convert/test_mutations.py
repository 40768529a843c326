"""The check of conversions catches what is wrong, and passes what is right."""

import pytest

from .mutations import RIGHT, WRONG, verdict

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_conversion_passes(name):
    assert verdict(RIGHT[name]) == "passes"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_conversion_is_caught(name):
    assert verdict(WRONG[name]).startswith("caught")
