import math

import numpy as np
import pytest

from relucid.studies import Claim, Column, Lower, Scale, Study, compare, run, table
from relucid.studies.power import power


def noisy(config):
    return {
        "error": 10.0
        + config["shift"]
        + np.random.default_rng(config["seed"] + 7 * config["number"]).normal()
    }


STUDY = Study(
    name="power",
    title="A shift in noise",
    run=noisy,
    rows={"base": {"shift": 0.0, "number": 0}, "lower": {"shift": -1.0, "number": 1}},
    columns={"error": Column("error")},
    scales={"full": Scale(), "small": Scale()},
    repeat={"seed": range(4)},
    published={"base": {"error": 20.0}, "lower": {"error": 18.0}},
    paired=True,
    claims=(Claim("claim", "It is lower.", (Lower("lower", than="base", columns="error"),)),),
)


@pytest.mark.parametrize(
    "a, b, paired", [([1.0, 2.0, 4.0], [0.0, 3.0, 3.5], True), ([1.0, 2.0, 4.0], [0.0, 3.0, 3.5], False)]
)
def test_as_many_repetitions_as_there_were_detect_about_what_they_did(a, b, paired):
    found = compare(a, b, paired=paired)
    assert found.detectable_with(3) == pytest.approx(found.detectable, rel=0.05)


def test_four_times_the_repetitions_detect_half_the_difference_or_less():
    found = compare([1.0, 2.0, 4.0, 2.0], 0.0)
    assert found.detectable_with(16) < found.detectable / 2
    assert found.detectable_with(1) == math.inf


def test_a_pilot_tells_how_many_repetitions_the_published_effect_needs(tmp_path):
    run(STUDY, "small", store=tmp_path, jobs=1)
    cells = table(STUDY, "small", store=tmp_path)
    (planned,) = power(cells, 9)
    level = cells.cells["base", "error"].mean
    assert planned.wanted == pytest.approx(2.0 * level / 20.0)  # the same share of the level
    assert planned.detectable == planned.judged.found.detectable_with(9)
    assert planned.judged.found.detectable_with(planned.needed) <= planned.wanted
    assert planned.judged.found.detectable_with(planned.needed - 1) > planned.wanted
    assert str(planned).startswith("claim: lower less base, error: detects ")


def test_without_a_pilot_there_is_nothing_to_say(tmp_path):
    run(STUDY, "small", store=tmp_path, jobs=1, seeds=1)
    assert not list(power(table(STUDY, "small", store=tmp_path), 9))
