import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Scale,
    Study,
    at_most,
    bootstrap,
    compare,
    compare_shares,
    equal,
    higher,
    lower,
    near,
    not_worse,
)
from relucid.experiments._judge import Comparison, decide, judge, outcome, sign_flip
from relucid.experiments._page import findings

seeds = st.integers(0, 10_000)


def series(values):
    return pd.Series([*values], dtype=float)


@settings(max_examples=40)
@given(seeds, st.integers(2, 20), st.integers(2, 20))
def test_unpaired_values_are_compared_by_welchs_test(seed, n, m):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.5, 1, n), rng.normal(0, 3, m)
    comparison, reference = compare(series(a), series(b)), stats.ttest_ind(a, b, equal_var=False)
    assert comparison.effect == pytest.approx(a.mean() - b.mean())
    assert comparison.p == pytest.approx(reference.pvalue)
    assert comparison.interval(0.99) == pytest.approx(tuple(reference.confidence_interval(0.99)))


@settings(max_examples=40)
@given(seeds, st.integers(2, 20))
def test_pairs_are_compared_by_their_differences_with_an_exact_test_where_there_are_few(seed, n):
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 1, n)
    b = a + rng.normal(0.3, 0.2, n)
    comparison, reference = compare(series(a), series(b), paired=True), stats.ttest_rel(a, b)
    assert comparison.p == pytest.approx(reference.pvalue)
    assert comparison.interval(0.95) == pytest.approx(tuple(reference.confidence_interval()))
    if n > 8:
        assert comparison.exact is None
    else:
        flips = stats.permutation_test((a - b,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert comparison.exact == pytest.approx(flips.pvalue) == pytest.approx(sign_flip(series(a - b)))


def test_values_are_compared_with_a_number():
    values = [1.0, 2.5, 3.0, 2.0]
    assert compare(series(values), 1.5).p == pytest.approx(stats.ttest_1samp(values, 1.5).pvalue)


@pytest.mark.parametrize(
    "a, b, paired",
    [
        ([1.0], [2.0, 3.0], False),
        ([1.0], [2.0], True),
        ([1.0, 2.0], [1.0, 2.0, 3.0], True),
        ([1.0, math.nan], [2.0, 3.0], False),
        ([1.0, math.nan], [2.0, 3.0], True),
        ([1.0, math.inf], [2.0, 3.0], False),
        ([], [], False),
    ],
)
def test_what_cannot_be_compared_is_not(a, b, paired):
    assert compare(series(a), series(b), paired) is None
    assert compare_shares(series([math.nan, 100.0]), series([0.0])) is None


def test_nan_is_no_effect_no_p_value_and_no_interval():
    with pytest.raises(ValueError, match="cannot be judged: leave out NaN"):
        Comparison(math.nan, 0.5, 3, lambda sure: (0.0, 1.0))
    with pytest.raises(ValueError, match="cannot be judged"):
        Comparison(0.5, math.nan, 3, lambda sure: (0.0, 1.0))
    for ends in ((math.nan, 1.0), (0.0, math.nan), (2.0, 1.0)):
        with pytest.raises(ValueError, match="is no interval"):
            decide(*ends, None)
    with pytest.raises(ValueError, match="must be a number for every sample"):
        bootstrap(lambda places: np.full(len(places), math.nan), 5)


def test_equal_differences_are_as_likely_as_coins_of_one_side():
    comparison = compare(series([2.0, 3.0, 4.0]), series([1.0, 2.0, 3.0]), paired=True)
    assert (comparison.effect, comparison.p, comparison.spread) == (1.0, 2 * 0.5**3, False)
    assert comparison.interval(0.95) == (-math.inf, math.inf)
    eight = compare(series([2.0] * 8), 1.0)
    assert (eight.p, eight.interval(0.95), eight.interval(0.999)) == (
        2 * 0.5**8,
        (1.0, 1.0),
        (-math.inf, math.inf),
    )
    assert compare(series([2.0, 2.0]), series([2.0, 2.0])).p == 1.0


def test_differences_that_cancel_are_zero():
    pairs = series([0.1, 0.2, 0.3, 0.4]), series([0.3, 0.0, 0.4, 0.3])
    assert compare(*pairs, paired=True).effect == 0


@pytest.mark.parametrize("paired", [True, False])
def test_an_interval_contains_the_true_difference_in_95_of_100_trials(paired):
    rng, trials = np.random.default_rng(0), 1000
    held = 0
    for a, b in rng.normal(size=(trials, 2, 6)):
        low, high = compare(series(a + 1.0), series(b if paired else 3 * b), paired).interval(0.95)
        held += low <= 1.0 <= high
    # Four standard errors; Welch's interval is slightly wider than it need be for small samples.
    assert abs(held / trials - 0.95) < 4 * math.sqrt(0.05 * 0.95 / trials)


def yes(count, of):
    return series([100.0] * count + [0.0] * (of - count))


def test_shares_are_compared_by_fishers_test_and_an_interval_that_agrees_with_it():
    for one in range(6):
        for other in range(6):
            comparison = compare_shares(yes(one, 5), yes(other, 5))
            table = [[one, 5 - one], [other, 5 - other]]
            assert comparison.p == pytest.approx(stats.fisher_exact(table).pvalue)
            assert comparison.effect == pytest.approx(20 * (one - other))
            low, high = comparison.interval(0.95)
            assert (comparison.p < 0.05) == (not low <= 0 <= high)


def test_a_share_is_compared_with_a_number_by_the_jeffreys_interval():
    comparison = compare_shares(yes(7, 200), 5.0)
    reference = 100 * stats.beta.ppf([0.025, 0.975], 7.5, 193.5) - 5
    assert comparison.effect == pytest.approx(-1.5)
    assert comparison.interval(0.95) == pytest.approx(tuple(reference))


def test_the_bootstrap_of_a_mean_is_near_the_t_test():
    values = np.random.default_rng(0).normal(0.3, 1, 60)
    comparison, reference = (
        bootstrap(lambda places: values[places].mean(-1), 60),
        compare(series(values), 0.0),
    )
    assert comparison.effect == pytest.approx(reference.effect)
    assert comparison.interval(0.95) == pytest.approx(reference.interval(0.95), abs=0.05)


@pytest.mark.parametrize(
    "low, high, published, decided",
    [
        (0.1, 2.0, None, "confirmed"),
        (0.1, 0.5, 1.0, "confirmed"),  # smaller than published, but above 0
        (-2.0, -0.1, None, "reversed"),
        (-2.0, -0.1, 0.05, "reversed"),  # however small the published effect is
        (-1.0, 0.5, 1.0, "absent"),
        (-1.0, 2.0, 1.0, "inconclusive"),
        (-1.0, 2.0, None, "no detectable difference"),
        (-math.inf, math.inf, 1.0, "inconclusive"),
    ],
)
def test_the_interval_decides_in_both_directions(low, high, published, decided):
    assert decide(low, high, published) == decided
    mirrored = {"confirmed": "reversed", "reversed": "confirmed"}.get(decided, decided)
    assert decide(-high, -low, None if published is None else -published) == mirrored


VALUES = {"old": (10.0, 10.1, 10.3, 10.2), "new": (5.0, 5.2, 5.1, 5.4), "same": (10.1, 10.0, 10.3, 10.2)}


def study(*contrasts, kind="experiment", **changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {row: {"row": row} for row in VALUES},
        "columns": {"a": Column("a"), "b": Column("b", digits=1)}, "repeat": {"seed": range(4)},
        "claims": [Claim("Table 1", "New is lower.", contrasts, kind)],
        "scales": {"full": Scale({}), "cpu": Scale({"less": True}), "smoke": Scale({"no": True})},
    }  # fmt: skip
    return Study(**{**settings, **changes})


@pytest.fixture
def judged(filled):
    """A function that judges the claim of a study by made-up values."""

    def judged(study, scale="full", values=VALUES):
        results = filled(study, lambda at: dict.fromkeys(("a", "b"), values[at["row"]][at["seed"]]), scale)
        return judge(results, study.claims[0])

    return judged


@pytest.mark.parametrize(
    "contrasts, decided",
    [
        (lower("new", "old", "a"), "confirmed"),
        (higher("new", "old", "a"), "reversed"),
        (lower("same", "old", "a"), "no detectable difference"),
        (lower("new", 5.0, "a"), "no detectable difference"),
        (not_worse("new", "old", "a", 1.0), "confirmed"),
        (not_worse("old", "new", "a", 1.0), "reversed"),
        (not_worse("same", "old", "a", 0.05), "inconclusive"),
        (near("old", 10.0, "a", 1.0), "confirmed"),
        (near("old", 12.0, "a", 1.0), "reversed"),
        (near("old", 10.0, "a", 0.2), "inconclusive"),
        (equal("old", 10.2, "b"), "reversed"),  # 10.15 is shown as 10.2 or 10.1, by its bits as 10.1
        (equal("new", 5.2, "b"), "confirmed"),
        (at_most("new", 5.4, "a"), "confirmed"),
        (at_most("new", 5.3, "a"), "reversed"),
    ],
)
def test_each_relation_is_decided_as_it_says(judged, contrasts, decided):
    ((verdict),) = judged(study(*contrasts))
    if contrasts[0].relation == "equal" and contrasts[0].a.row == "old":
        decided = "confirmed" if round(float(np.mean(VALUES["old"])), 1) == 10.2 else "reversed"
    assert verdict.outcome == decided


def test_the_level_is_divided_among_contrasts_unless_all_agree(judged):
    agreeing = judged(study(*lower("new", "old", ("a", "b"))))
    assert {(verdict.level, verdict.outcome) for verdict in agreeing} == {(0.05, "confirmed")}
    split = judged(study(*lower(("new", "same"), "old", ("a", "b"))))
    assert {verdict.level for verdict in split} == {0.05 / 4}
    counted = judged(study(*lower(("new", "same"), "old", "a"), *at_most("new", 6, "a")))
    assert {verdict.level for verdict in counted} == {0.05 / 2}  # a bound is no test


def test_a_published_effect_is_taken_as_the_same_share_of_the_error_below_full_scale(judged):
    published = {("same", "a"): 4.0, ("old", "a"): 5.0}
    found = study(*lower("same", "old", "a"), published=published)
    assert judged(found)[0].published == -1.0
    assert judged(found)[0].outcome == "absent"
    assert judged(found, "cpu")[0].published == pytest.approx(-1.0 * 10.15 / 5.0)


@pytest.mark.parametrize("missing", ["new", "old"])
def test_a_repetition_that_one_side_lacks_is_no_verdict_and_said(filled, missing):
    found = study(*lower("new", "old", "a"))
    results = filled(
        found,
        lambda at: None if (at["row"], at["seed"]) == (missing, 3) else {"a": VALUES[at["row"]][at["seed"]]},
        "full",
    )
    (verdict,) = judge(results, found.claims[0])
    assert (verdict.comparison, verdict.outcome) == (None, "inconclusive")
    assert str(verdict).endswith(
        "too few values to compare, a repetition that only one side has, or two precisions"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a - b.iloc[:3],  # what pandas aligns becomes NaN
        lambda a, b: (a - b) / 0.0 * 0.0,
        lambda a, b: pd.Series([math.nan] * 4),
        lambda a, b: a[:0],
        lambda a, b: None,
    ],
)
def test_nan_in_a_quantity_never_ends_as_no_detectable_difference(judged, function):
    quantity = Quantity("a strange quantity", [Cell("same", "a"), Cell("old", "a")], function)
    (verdict,) = judged(study(Contrast(quantity, 0.0, "lower")))
    assert (verdict.comparison, verdict.outcome) == (None, "inconclusive")


def test_a_quantity_names_its_cells_and_may_be_a_comparison(judged):
    cells = [Cell("new", "a"), Cell("old", "a")]
    gap = Quantity("gap", cells, lambda new, old: new - old)
    shares = Quantity("share", cells, lambda new, old: compare_shares(yes(5, 5), yes(0, 5)))
    one, other = judged(study(Contrast(gap, 0.0, "lower"), Contrast(shares, 0.0, "higher")))
    assert (one.contrast.label, one.outcome) == ("gap", "confirmed")
    assert other.comparison.effect == 100.0
    assert one.contrast.cells() == cells


def verdicts(*outcomes):
    from relucid.experiments._judge import Verdict

    return [Verdict(Contrast(Cell("new", "a"), 0.0, "lower"), None, word) for word in outcomes]


@pytest.mark.parametrize(
    "outcomes, decided",
    [
        (["confirmed", "confirmed", "absent"], "confirmed"),
        (["confirmed", "reversed"], "inconclusive"),
        (["reversed", "absent", "inconclusive"], "inconclusive"),
        (["confirmed"] * 3 + ["no detectable difference"] * 15, "no detectable difference"),
    ],
)
def test_a_claim_has_the_outcome_of_more_than_half_of_its_contrasts(outcomes, decided):
    assert outcome(Claim("", ""), verdicts(*outcomes)) == decided


def test_one_contrast_refutes_a_theorem():
    theorem = Claim("", "", kind="mathematics")
    assert outcome(theorem, verdicts("confirmed", "confirmed", "reversed")) == "reversed"


def test_smoke_tests_are_never_judged_and_a_claim_waits_for_the_cells_behind_it(filled):
    found = study(*lower("new", "old", "a"))
    whole = {
        scale: filled(found, lambda at: {"a": VALUES[at["row"]][at["seed"]]}, scale) for scale in found.scales
    }
    assert [len(findings(whole[scale])) for scale in ("full", "cpu", "smoke")] == [1, 1, 0]
    half = filled(found, lambda at: {"a": 1.0} if at["row"] == "new" else None, "full")
    assert findings(half) == []
    others = filled(
        found, lambda at: {"a": VALUES[at["row"]][at["seed"]]} if at["row"] != "same" else None, "full"
    )
    assert [finding.outcome for finding in findings(others)] == ["confirmed"]


def test_runs_of_different_precision_are_not_compared_and_it_is_said(filled):
    def outcome(at, mixed=("new",)):
        used = {"precision": ["bf16-mixed" if at["row"] in mixed else "32-true"]}
        return {"metrics": dict.fromkeys("ab", VALUES[at["row"]][at["seed"]]), "environment": used}

    compared = study(*lower("new", "old", "a"))
    (finding,) = findings(filled(compared, outcome))
    assert finding.outcome == "inconclusive"
    assert "bf16-mixed" in finding.caveats["precision"]
    (finding,) = findings(filled(compared, lambda at: outcome(at, mixed=VALUES)))
    assert (finding.outcome, dict(finding.caveats)) == ("confirmed", {})
