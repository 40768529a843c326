import math

import numpy as np
import pytest

from relucid.studies import Claim, Column, Lower, NotWorse, Scale, Study, compare, run
from relucid.studies.estimate import pilot, power


def noisy(config):
    noise = np.random.default_rng(config["seed"] + 7 * config["number"]).normal()
    return {"error": 10.0 + config["shift"] + noise, "val_error": config.get("lr", 0.0)}


def study(**changes):
    settings = {
        "name": "power",
        "title": "A shift in noise",
        "run": noisy,
        "rows": {"base": {"shift": 0.0, "number": 0}, "lower": {"shift": -1.0, "number": 1}},
        "columns": {"error": Column("error")},
        "scales": {"full": Scale(), "small": Scale()},
        "repeat": {"seed": range(4)},
        "published": {"base": {"error": 20.0}, "lower": {"error": 18.0}},
        "paired": True,
        "claims": (Claim("claim", "It is lower.", (Lower("lower", than="base", columns="error"),)),),
    }
    return Study(**{**settings, **changes})


def planned(found, place, seeds=None):
    """What a study would detect after so many of its seeds were run."""
    run(found, "small", store=place, jobs=1, seeds=seeds)
    return list(power(pilot(found, "small", place)))


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


def test_a_pilot_shows_how_many_seeds_the_published_effect_needs(tmp_path):
    (found,) = planned(study(), tmp_path)
    level = pilot(study(), "small", tmp_path).table.cells["base", "error"].mean
    assert found.wanted == pytest.approx(2.0 * level / 20.0)  # the same share of the level
    assert found.detectable == found.found.detectable_with(4)
    assert found.with_seeds(found.needed) <= found.wanted < found.with_seeds(found.needed - 1)


def test_two_seeds_predict_what_the_planned_ones_detect(tmp_path):
    (found,) = planned(study(repeat={"seed": range(18)}), tmp_path, seeds=2)
    assert (found.found.n, found.seeds) == (2, 18)
    assert found.error == pytest.approx(found.found.error / 3)
    assert found.detectable == found.found.detectable_with(18)


def test_a_pilot_of_two_seeds_will_do_where_rates_are_chosen(tmp_path):
    chooses = study(choose={"lr": [0.1, 0.2, 0.3]}, repeat={"seed": range(18)})
    (found,) = planned(chooses, tmp_path, seeds=2)
    assert (found.found.n, found.seeds) == (2, 18)  # not a seed for each rate


def test_seeds_count_that_have_been_run_at_all_rates_only(tmp_path):
    chooses = study(choose={"lr": [0.1, 0.2]})
    run(study(choose={"lr": [0.1]}), "small", store=tmp_path, jobs=1, seeds=3)
    (found,) = planned(chooses, tmp_path, seeds=2)
    assert (pilot(chooses, "small", tmp_path).seeds, found.found.n) == (2, 2)


def test_without_a_pilot_there_is_nothing_to_say(tmp_path):
    run(study(), "small", store=tmp_path, jobs=1, seeds=1)
    assert pilot(study(), "small", tmp_path) is None


def test_the_margin_of_a_claim_is_the_difference_to_find(tmp_path):
    claim = Claim("claim", "", (NotWorse("lower", than="base", columns="error", margin=0.5),))
    assert [each.wanted for each in planned(study(claims=(claim,)), tmp_path)] == [0.5]


def test_a_study_that_claims_nothing_compares_its_rows_with_the_first(tmp_path):
    (found,) = planned(study(claims=(), published={}), tmp_path)
    assert (found.where, found.expected.label) == ("against base", "lower minus base, error")
    assert found.needed is None
