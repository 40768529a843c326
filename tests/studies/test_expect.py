import numpy as np
import pytest

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
    Quantity,
    Scale,
    Study,
    Table,
    table,
)
from relucid.studies.compare import (
    HOLDS,
    NO_DIFFERENCE,
    NO_EFFECT,
    REVERSED,
    UNDECIDED,
    compare,
    compare_shares,
)
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
    with pytest.raises(ValueError, match="claim 'here' of study 's'; did you mean 'new'"):
        study(Lower("newer", than="old", columns="a"))
    with pytest.raises(ValueError, match="no column 'c'"):
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
    assert unpaired.outcome == NO_DIFFERENCE


def test_cells_of_which_a_repetition_is_missing_are_not_paired():
    missing = {f"seed {place}": LOWER[place] for place in (0, 1, 2)}
    (found,) = judged([Lower("new", than="old", columns="a")], {"old": OLD, "new": missing})
    assert (found.found, found.outcome) == (None, UNDECIDED)
    assert str(found) == "new minus old, a: too few values to compare, or a run that only one side has"


def test_intervals_allow_for_the_other_comparisons_of_the_claim_but_not_for_exact_ones():
    expectations = [Lower("new", than="old", columns=("a", "b")), Lower("other", than="old", columns="a")]
    values = {
        "old": OLD,
        "new": LOWER,
        ("new", "b"): (9.0, 10.3, 11.5, 11.9),
        "other": (10.1, 10.8, 12.3, 12.9),
    }
    exact, *found = judged([Equal("old", "a", 11.5), *expectations], values)
    assert exact.certain
    assert {each.found.level for each in found} == {0.05 / 3}
    assert "(98.3%)" in str(found[0])


def test_intervals_and_outcomes_agree_whatever_the_number_of_comparisons():
    rng = np.random.default_rng(0)
    for count in (1, 2, 5):
        columns = {str(place): Column("error") for place in range(count)}
        values = {("new", column): tuple(rng.normal(10.5, 1, 4)) for column in columns}
        found = judged(
            [Lower("new", than="old", columns=tuple(columns))], {"old": OLD, **values}, columns=columns
        )
        for each in found:
            excludes = not each.found.low <= 0 <= each.found.high
            assert excludes == (each.outcome in (HOLDS, REVERSED))


def test_one_significant_comparison_among_many_is_none():
    values = {"old": OLD, "new": (9.0, 10.4, 11.2, 11.6)}
    (alone,) = judged([Lower("new", than="old", columns="a")], values)
    together = judged([Lower("new", than="old", columns="a"), Lower("other", than=9.0, columns=("a", "b") * 20)],
                      {**values, "other": (8.0, 9.9, 9.2, 10.0)})  # fmt: skip
    assert (alone.outcome, together[0].outcome) == (HOLDS, NO_DIFFERENCE)
    assert together[0].found == alone.found.at(0.05 / 41)


@pytest.mark.parametrize("relation, outcome", [(Lower, HOLDS), (Higher, REVERSED)])
def test_that_all_of_several_parts_hold_needs_no_correction_nor_that_none_does(relation, outcome):
    values = {"old": OLD, "new": (9.0, 10.7, 11.5, 11.6)}  # one of two would not hold at half the level
    found = judged([relation("new", than="old", columns=("a", "b"))], values)
    assert [each.outcome for each in found] == [outcome, outcome]
    assert [each.found.level for each in found] == [0.05, 0.05]
    assert found[0].at(0.05 / 2).outcome == NO_DIFFERENCE


SIMULATED = 2000
PUBLISHED = 1.0


def shares(effect, comparisons=1, deviation=0.5, n=4):
    """The shares of outcomes of claims about an effect, over simulated repetitions; old is 10 on average."""
    rng = np.random.default_rng(7)
    columns = {str(place): Column("error") for place in range(comparisons)}
    claim = [Lower("new", than="old", columns=tuple(columns))]
    counts = dict.fromkeys((HOLDS, REVERSED, NO_EFFECT, UNDECIDED), 0.0)
    for _ in range(SIMULATED // comparisons):
        values = {"old": (10.0,) * n}
        for column in columns:
            values["new", column] = tuple(10.0 - effect + rng.normal(0, deviation, n))
        theirs = {"old": 10.0, "new": 10.0 - PUBLISHED}
        for each in judged(claim, values, "full", theirs, columns=columns):
            counts[each.outcome] += 1 / (SIMULATED // comparisons * comparisons)
    return counts


def test_the_rule_makes_no_more_mistakes_than_its_level_allows_and_as_many_in_both_directions():
    none, there, opposite = (shares(effect) for effect in (0.0, PUBLISHED, -PUBLISHED))
    slack = 4 * (0.025 * 0.975 / SIMULATED) ** 0.5
    # Without an effect each direction is found in at most 2.5% of the trials.
    assert none[HOLDS] < 0.025 + slack
    assert none[REVERSED] < 0.025 + slack
    # The published effect is denied, by its opposite or as no such effect, in at most 2.5%.
    assert there[REVERSED] + there[NO_EFFECT] < 0.025 + slack
    # The power is the same in both directions.
    assert abs(there[HOLDS] - opposite[REVERSED]) < 4 * (2 * 0.25 / SIMULATED) ** 0.5
    assert there[HOLDS] > 0.6
    # What is left without an effect is "no such effect" where the noise allows it, else undecided.
    assert none[NO_EFFECT] > 0.5
    assert none[HOLDS] + none[REVERSED] + none[NO_EFFECT] + none[UNDECIDED] == pytest.approx(1.0)


def test_noise_leaves_claims_undecided_instead_of_deciding_them():
    noisy = {effect: shares(effect, deviation=2.0) for effect in (0.0, PUBLISHED, -PUBLISHED)}
    assert all(found[UNDECIDED] > 0.6 for found in noisy.values())


def test_among_five_comparisons_a_mistake_is_made_in_one_claim_of_twenty_at_most():
    found = shares(0.0, comparisons=5)
    assert found[HOLDS] + found[REVERSED] < 0.05 / 5 + 4 * (0.01 * 0.99 / SIMULATED) ** 0.5


@pytest.mark.parametrize(
    "largest, outcome, words", [(2.0, HOLDS, "holds"), (2.01, REVERSED, "does not hold")]
)
def test_a_bound_holds_for_every_repetition(largest, outcome, words):
    values = {"old": OLD, "new": (0.5, largest, 1.0)}
    (found,) = judged([AtMost("new", "a", 2.0)], values)
    assert (found.certain, found.outcome) == (True, outcome)
    assert str(found) == f"new, a: at most {largest:.2f}, allowed 2.00: {words}"


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
        ((10.3, 11.5, 12.3, 13.5), UNDECIDED),
        ((8.0, 14.0, 10.0, 15.0), UNDECIDED),
    ],
)
def test_not_worse_is_judged_by_the_interval_on_either_side_of_the_margin(new, outcome):
    (found,) = judged([NotWorse("new", than="old", columns="a", margin=0.5)], {"old": OLD, "new": new})
    assert found.outcome == outcome


@pytest.mark.parametrize(
    "new, outcome",
    [((2.01, 1.99, 2.02, 2.0), HOLDS), ((2.5, 2.51, 2.49, 2.5), REVERSED), ((2.0, 2.4, 1.7, 2.1), UNDECIDED)],
)
def test_near_takes_both_sides_of_a_margin(new, outcome):
    (found,) = judged([Near("new", "a", 2.0, margin=0.1)], {"old": OLD, "new": new})
    assert found.outcome == outcome


@pytest.mark.parametrize("new, outcome", [((3.004,), HOLDS), ((3.006,), REVERSED), ((), UNDECIDED)])
def test_equal_is_exact_in_the_digits_that_are_shown(new, outcome):
    (found,) = judged([Equal("new", "a", 3.0)], {"old": OLD, "new": new})
    assert (found.outcome, found.certain) == (outcome, True)


def test_quantities_are_paired_by_repetition_too():
    def twice(table):
        return {seed: 2 * value for seed, value in table.cells["new", "a"].samples.items()}

    (found,) = judged([Derived(Quantity("twice", twice), "higher", Quantity("thrice", lambda table: {
        seed: 1.5 * value for seed, value in table.cells["new", "a"].samples.items()}))],
        {"old": OLD, "new": LOWER})  # fmt: skip
    assert found.found.effect == pytest.approx(sum(LOWER) / 8)
    assert found.expected.label == "twice minus thrice"


NOISY = (10.0, 9.0, 12.5, 12.0)  # 0.63 below on average, the interval is about [-2.3, 1.1]


@pytest.mark.parametrize(
    "scale, published, outcome",
    [
        ("full", {"old": 10.0, "new": 5.0}, NO_EFFECT),
        ("full", {"old": 10.0, "new": 9.9}, UNDECIDED),
        ("small", {"old": 1.0, "new": 0.5}, NO_EFFECT),  # half of the error is 5.75 here
        ("small", {"old": 100.0, "new": 95.0}, UNDECIDED),  # a twentieth is 0.6 here
        ("full", None, NO_DIFFERENCE),
        ("small", None, NO_DIFFERENCE),
        # published the other way round: nothing to look for
        ("full", {"old": 9.9, "new": 10.0}, NO_DIFFERENCE),
    ],
)
def test_the_published_effect_counts_where_the_interval_contains_zero(scale, published, outcome):
    (found,) = judged([Lower("new", than="old", columns="a")], {"old": OLD, "new": NOISY}, scale, published)
    assert found.found.low < 0 < found.found.high
    assert found.outcome == outcome


def test_below_the_paper_s_scale_the_published_effect_is_the_same_share_of_the_error():
    expectation = [Lower("new", than="old", columns="a")]
    (small,) = judged(expectation, {"old": OLD, "new": NOISY}, "small", {"old": 100.0, "new": 95.0})
    assert small.wanted == pytest.approx(0.05 * 11.5)
    assert "published -5.00, -0.575 at this error" in str(small)
    (full,) = judged(expectation, {"old": OLD, "new": NOISY}, "full", {"old": 100.0, "new": 95.0})
    assert "published -5.00: no such effect" in str(full)


def test_an_accuracy_is_scaled_by_its_error_too():
    columns = {"a": Column("accuracy", best="highest", perfect=100.0)}
    old, new = (70.0, 71.0, 72.0, 73.0), (70.5, 70.0, 73.0, 73.5)
    (found,) = judged([Higher("new", than="old", columns="a")], {"old": old, "new": new}, "small",
                      {"old": 40.0, "new": 43.0}, columns=columns)  # fmt: skip
    assert found.wanted == pytest.approx(3.0 * 28.5 / 60.0)


def test_smoke_judges_nothing_and_shows_no_published_figures_but_says_what_it_is(tmp_path, fill):
    of_study = study(
        Lower("new", than="old", columns="a"),
        columns={"a": Column("error")},
        published={"old": {"a": (987.6, 0.1)}},
        baseline="old",
    )

    def outcome(config):
        return {"error": (5.0 + 0.2 * config["seed"]) * (config["row"] == "old") + 0.1 * config["seed"]}

    for scale in ("smoke", "full"):
        fill(of_study, tmp_path, outcome, scale)
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


@pytest.mark.parametrize(
    "expectation",
    [
        Equal("new", "error", 3),
        AtMost("new", "error", 3),
        Near("new", "error", 3, 1),
        Lower("new", than=3, columns="error"),
        Derived(Quantity("q", lambda found: {"0": 1.0, "1": 1.5}), "lower", 3),
    ],
)
def test_a_whole_number_is_a_number_to_compare_with(expectation):
    claim = Claim("Table 1", "It is so.", (expectation,))
    study = Study("s", "t", print, {"new": {}}, {"error": Column("error")}, claims=(claim,))
    cells = {("new", "error"): Cell({"0": 3.0, "1": 3.0}, 2, {"finished": 2})}
    (judged,) = Table(study, "full", cells, []).judged["Table 1"]
    assert judged.found is not None


def test_a_claim_that_a_scale_cannot_answer_is_not_made_there():
    claims = (Claim("Table 1", "It is so."), Claim("Fig. 1", "It lasts.", scales=("full",)))
    scales = {"full": Scale(), "small": Scale({"epochs": 1}), "cpu": Scale(columns=["error"])}
    study = Study("s", "t", print, {"new": {}}, {"error": Column("error")}, scales, claims=claims)
    made = {scale: [claim.where for claim in study.at(scale).claims] for scale in scales}
    assert made == {"full": ["Table 1", "Fig. 1"], "small": ["Table 1"], "cpu": ["Table 1"]}
