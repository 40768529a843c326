import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relucid.studies import (
    FORMATS,
    AtMost,
    Cell,
    Claim,
    Column,
    Derived,
    Equal,
    Higher,
    Lower,
    Near,
    NotWorse,
    Outcome,
    Quantity,
    Scale,
    Store,
    Study,
    Table,
    cells,
    table,
)
from relucid.studies.compare import HOLDS, OPEN, REVERSED, UNABLE, UNTOLD, compare, compare_shares, holm
from relucid.studies.formats import banner
from relucid.studies.judge import judge

ROWS = ("old", "new", "other")


def study(*expectations, **changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {row: {"row": row} for row in ROWS}, "paired": True,
        "columns": {"a": Column("error"), "b": Column("error"), "share": Column("error", summary="share")},
        "claims": (Claim("here", "It is so.", expectations),),
        "scales": {"full": Scale(), "small": Scale(), "smoke": Scale()},
    }  # fmt: skip
    return Study(**{**settings, **changes})


def judged(expectations, values, scale="full", published=None, **changes):
    """What comes of a claim; rows without values have the old row's, columns all the same."""
    of_study = study(*expectations, **changes)
    found = {}
    for row in ROWS:
        for column in of_study.columns:
            samples = values.get((row, column), values.get(row, values["old"]))
            if not isinstance(samples, dict):
                samples = {f"seed {place}": value for place, value in enumerate(samples)}
            theirs = (published or {}).get(row)
            found[row, column] = Cell(samples, len(samples), {"finished": len(samples)}, (theirs, None))
    (claim,) = of_study.claims
    return judge(Table(of_study, scale, found, []), claim)


OLD = (10.0, 11.0, 12.0, 13.0)
LOWER = (9.0, 10.01, 11.0, 11.99)


def labels(*expectations):
    return [each.label for each in Claim("", "", expectations).comparisons()]


def test_an_order_of_rows_is_a_comparison_of_each_with_each_in_every_column():
    assert labels(Lower(("new", "other"), than="old", columns=("a", "b"))) == [
        "new minus old, a",
        "new minus old, b",
        "other minus old, a",
        "other minus old, b",
    ]
    assert labels(Higher("new", than=("old", "other"), columns="a")) == [
        "new minus old, a",
        "new minus other, a",
    ]
    assert labels(NotWorse("new", than="old", columns="a", margin=1.0)) == ["new minus old, a"]


def test_rows_are_compared_with_numbers_and_with_another_column():
    assert labels(Lower("new", than=0, columns=("a", "b"))) == ["new, a", "new, b"]
    assert labels(Lower("new", than=1.5, columns="a")) == ["new, a minus 1.5"]
    assert labels(Higher("new", columns="a", than_column="b")) == ["new: a minus b"]
    assert labels(Near(("old", "new"), "a", 2.0, margin=0.1)) == ["old, a minus 2", "new, a minus 2"]
    assert labels(Equal("new", "a", 3.0)) == ["new, a minus 3"]
    assert labels(Derived(Quantity("slope", dict), "lower", 0.75)) == ["slope minus 0.75"]


def test_a_claim_that_names_what_a_study_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no row 'newer' in claim 'here' of study 's'; did you mean 'new'"):
        study(Lower("newer", than="old", columns="a"))
    with pytest.raises(ValueError, match="no column 'c' in claim 'here' of study 's'"):
        study(Lower("new", than="old", columns="c"))


def test_values_are_paired_by_repetition_whatever_their_order():
    shuffled = {f"seed {place}": LOWER[place] for place in (2, 0, 3, 1)}
    (found,) = judged([Lower("new", than="old", columns="a")], {"old": OLD, "new": shuffled})
    reference = compare(LOWER, OLD, paired=True)
    assert (found.found.effect, found.found.p) == pytest.approx((reference.effect, reference.p))
    assert found.outcome == HOLDS


def test_whether_values_are_paired_is_the_study_s_to_say_and_the_expectation_s():
    values = {"old": OLD, "new": LOWER}
    (unpaired,) = judged([Lower("new", than="old", columns="a")], values, paired=False)
    (also,) = judged([Lower("new", than="old", columns="a", paired=False)], values)
    assert unpaired.found == also.found == compare(LOWER, OLD)
    assert (unpaired.found.test, unpaired.outcome) == ("Welch's t-test", OPEN)


def test_cells_of_which_a_repetition_is_missing_are_not_paired():
    missing = {f"seed {place}": LOWER[place] for place in (0, 1, 2)}
    (found,) = judged([Lower("new", than="old", columns="a")], {"old": OLD, "new": missing})
    assert (found.found, found.p, found.outcome) == (None, None, UNABLE)
    assert str(found) == "new minus old, a: too few values to compare"


def test_probabilities_allow_for_the_other_comparisons_of_the_claim_but_not_for_exact_ones():
    expectations = [Lower("new", than="old", columns=("a", "b")), Lower("other", than="old", columns="a")]
    values = {
        "old": OLD,
        "new": LOWER,
        ("new", "b"): (9.0, 10.3, 11.5, 11.9),
        "other": (10.1, 10.8, 12.3, 12.9),
    }
    exact, *found = judged([Equal("old", "a", 11.5), *expectations], values)
    assert exact.p is None
    assert [each.p for each in found] == pytest.approx(holm([each.found.p for each in found]))


def test_one_significant_comparison_among_many_is_none():
    values = {"old": OLD, "new": (9.0, 10.4, 11.2, 11.6)}
    (alone,) = judged([Lower("new", than="old", columns="a")], values)
    together = judged([Lower("new", than="old", columns="a"), Lower("other", than=9.0, columns=("a", "b") * 20)],
                      {**values, "other": (8.0, 9.9, 9.2, 10.0)})  # fmt: skip
    assert (alone.outcome, together[0].outcome) == (HOLDS, OPEN)
    assert together[0].found == alone.found.at(0.05 / 41)
    assert "(Holm), detectable" in str(together[0])


@given(st.integers(0, 2**32 - 1))
def test_no_difference_that_was_detectable_goes_untold(seed):
    rng = np.random.default_rng(seed)
    shifts = {"new": rng.normal(0, 3), "other": rng.normal(0, 3)}
    values = {
        (row, column): (rng.normal(shift, 1, 4)).tolist() for row, shift in shifts.items() for column in "ab"
    }
    found = judged([Lower(("new", "other"), than=0.0, columns=("a", "b"))], {"old": OLD, **values})
    assert all(abs(each.found.effect) < each.found.detectable for each in found if each.outcome == OPEN)


@pytest.mark.parametrize("largest, outcome", [(2.0, HOLDS), (2.01, REVERSED)])
def test_a_bound_holds_for_every_repetition(largest, outcome):
    values = {"old": OLD, "new": (0.5, largest, 1.0)}
    (found,) = judged([AtMost("new", "a", 2.0)], values)
    assert (found.p, found.outcome) == (None, outcome)
    assert str(found) == f"new, a: at most {largest:.2f}, allowed 2.00: {outcome}"


@pytest.mark.parametrize("relation, outcome", [(Lower, REVERSED), (Higher, HOLDS)])
def test_the_other_direction_is_the_other_outcome(relation, outcome):
    (found,) = judged([relation("old", than="new", columns="a")], {"old": OLD, "new": LOWER})
    assert found.outcome == outcome


def test_shares_are_compared_by_the_exact_test():
    yes, no = (100.0,) * 5, (0.0,) * 5
    (found,) = judged([Higher("new", than="old", columns="share")], {"old": no, "new": yes})
    assert found.found == compare_shares(yes, no)
    assert found.outcome == HOLDS


@pytest.mark.parametrize(
    "new, outcome",
    [
        ((10.1, 11.12, 12.09, 13.1), HOLDS),  # a tenth worse, half a point may be
        ((8.0, 9.01, 10.0, 11.0), HOLDS),  # better is not worse
        ((11.0, 12.01, 13.0, 14.0), REVERSED),
        ((10.3, 11.5, 12.3, 13.5), UNTOLD),
        ((8.0, 14.0, 10.0, 15.0), UNABLE),  # nobody could tell half a point
    ],
)
def test_not_worse_is_judged_by_one_sided_tests_on_either_side_of_the_margin(new, outcome):
    (found,) = judged([NotWorse("new", than="old", columns="a", margin=0.5)], {"old": OLD, "new": new})
    assert found.outcome == outcome


@pytest.mark.parametrize(
    "new, outcome",
    [((2.01, 1.99, 2.02, 2.0), HOLDS), ((2.5, 2.51, 2.49, 2.5), REVERSED), ((2.0, 2.4, 1.7, 2.1), UNTOLD)],
)
def test_near_takes_both_sides_of_a_margin(new, outcome):
    (found,) = judged([Near("new", "a", 2.0, margin=0.1)], {"old": OLD, "new": new})
    assert found.outcome == outcome


@pytest.mark.parametrize("new, outcome", [((3.004,), HOLDS), ((3.006,), REVERSED), ((), UNABLE)])
def test_equal_is_exact_in_the_digits_that_are_shown(new, outcome):
    (found,) = judged([Equal("new", "a", 3.0)], {"old": OLD, "new": new})
    assert (found.outcome, found.p) == (outcome, None)


def test_quantities_are_paired_by_repetition_too():
    def twice(table):
        return {seed: 2 * value for seed, value in table.cells["new", "a"].samples.items()}

    (found,) = judged([Derived(Quantity("twice", twice), "higher", Quantity("thrice", lambda table: {
        seed: 1.5 * value for seed, value in table.cells["new", "a"].samples.items()}))],
        {"old": OLD, "new": LOWER})  # fmt: skip
    assert found.found.effect == pytest.approx(sum(LOWER) / 8)
    assert found.expected.label == "twice minus thrice"


NOISY = (10.0, 9.0, 12.5, 12.0)  # 0.6 below on average, detectable at about 2


@pytest.mark.parametrize(
    "scale, published, outcome",
    [
        ("full", {"old": 10.0, "new": 5.0}, UNTOLD),  # five points would have been seen
        ("full", {"old": 10.0, "new": 9.9}, UNABLE),  # a tenth would not
        ("small", {"old": 1.0, "new": 0.5}, UNTOLD),  # half of the level is 5.75 here
        ("small", {"old": 100.0, "new": 95.0}, UNABLE),  # a twentieth is 0.6 here
        ("full", None, OPEN),
        ("small", None, OPEN),  # nothing says what this scale should have shown
    ],
)
def test_a_design_that_could_not_have_seen_the_published_effect_cannot_tell(scale, published, outcome):
    (found,) = judged([Lower("new", than="old", columns="a")], {"old": OLD, "new": NOISY}, scale, published)
    assert 1.5 < found.found.detectable < 3
    assert found.outcome == outcome


def test_below_the_paper_s_scale_shares_of_the_level_are_told():
    expectation = [Lower("new", than="old", columns="a")]
    (small,) = judged(expectation, {"old": OLD, "new": NOISY}, "small", {"old": 100.0, "new": 95.0})
    detectable = small.found.detectable
    assert f"detectable {detectable:.2f} ({detectable / 11.5:.1%}), published -5.00 (5.0%)" in str(small)
    (full,) = judged(expectation, {"old": OLD, "new": NOISY}, "full", {"old": 100.0, "new": 95.0})
    assert f"detectable {detectable:.2f}, published -5.00: not told apart" in str(full)


def test_a_scale_that_could_not_have_shown_an_effect_does_not_contradict_it():
    (found,) = judged([Lower("old", than="new", columns="a")], {"old": OLD, "new": LOWER}, "small",
                      {"old": 100.0, "new": 100.1})  # fmt: skip
    assert found.found.p < 0.05
    assert found.outcome == UNABLE


def test_smoke_judges_nothing_and_shows_no_published_figures_but_says_what_it_is(tmp_path):
    of_study = study(
        Lower("new", than="old", columns="a"),
        columns={"a": Column("error")},
        published={"old": {"a": (987.6, 0.1)}},
        baseline="old",
    )
    store = Store(tmp_path)
    for scale in ("smoke", "full"):
        for runs in cells(of_study, scale).values():
            for run in runs:
                value = (5.0 + 0.2 * run.config["seed"]) * (run.config["row"] == "old") + 0.1 * run.config[
                    "seed"
                ]
                store.put(run, Outcome("finished", {"error": value}))
    store.close()
    smoke, full = (table(of_study, scale, store=tmp_path) for scale in ("smoke", "full"))
    assert (smoke.judged, smoke.verdict) == ({}, None)
    assert {cell.better for cell in smoke.cells.values()} == {None}
    assert (full.cells["new", "a"].better, full.cells["old", "a"].confirms) == (True, False)
    for name, write in FORMATS.items():
        assert "987.6" not in write(smoke), name
        assert "987.6" in write(full), name
    assert banner(full) == ""
    assert FORMATS["markdown"](smoke).startswith(banner(smoke))
    assert "The numbers mean nothing." in FORMATS["latex"](smoke)
