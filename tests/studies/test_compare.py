import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from relucid.studies.compare import (
    HOLDS,
    NO_DIFFERENCE,
    NO_EFFECT,
    REVERSED,
    UNDECIDED,
    Known,
    bootstrap,
    compare,
    compare_share,
    compare_shares,
    compare_with_one,
    decide,
    detectable_errors,
    sign_flip,
)

seeds = st.integers(0, 10_000)


def scaled(values, error):
    """The same values with this standard error of their mean, and mean 0."""
    values = values - values.mean()
    return values * error * math.sqrt(len(values)) / values.std(ddof=1)


@settings(max_examples=40)
@given(seeds, st.integers(2, 20), st.integers(2, 20))
def test_unpaired_values_are_compared_as_scipy_does_by_welchs_test(seed, n, m):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.5, 1, n), rng.normal(0, 3, m)
    found, reference = compare([*a], [*b]), stats.ttest_ind(a, b, equal_var=False)
    interval = reference.confidence_interval()
    assert found.effect == pytest.approx(a.mean() - b.mean())
    assert found.p == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@settings(max_examples=40)
@given(seeds, st.integers(2, 20))
def test_paired_values_are_compared_as_scipy_does(seed, n):
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 1, n)
    b = a + rng.normal(0.3, 0.2, n)
    found, reference = compare([*a], [*b], paired=True), stats.ttest_rel(a, b)
    interval = reference.confidence_interval()
    assert found.p == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_one_value_that_varies_as_the_others_do_differs_as_often_as_the_level_says():
    values = np.random.default_rng(0).normal(3, 2, (4000, 5))
    differs = [not found.low <= 0 <= found.high for *a, b in values if (found := compare_with_one(a, b))]
    assert np.mean(differs) == pytest.approx(0.05, abs=0.01)
    exact = [not found.low <= 0 <= found.high for *a, b in values if (found := compare(a, b))]
    assert np.mean(exact) > 0.2  # taken for an exact number, it is far too often
    assert compare_with_one([1.0], 2.0) is None


def test_a_share_is_compared_with_a_number_by_the_jeffreys_interval():
    found = compare_share([100.0] * 7 + [0.0] * 193, 5.0)
    reference = 100 * stats.beta.ppf([0.025, 0.975], 7.5, 193.5) - 5
    assert found.effect == pytest.approx(-1.5)
    assert (found.low, found.high) == pytest.approx(tuple(reference), abs=0.02)
    assert compare_share([], 5.0) is None
    with pytest.raises(ValueError, match="0 or 100"):
        compare_share([50.0], 5.0)


def test_values_are_compared_with_a_number_as_scipy_does():
    values = [1.0, 2.5, 3.0, 2.0]
    assert compare(values, 1.5).p == pytest.approx(stats.ttest_1samp(values, 1.5).pvalue)


def test_a_published_error_widens_the_interval():
    values = [1.0, 2.5, 3.0, 2.0]
    exact, vague = compare(values, Known(1.5)), compare(values, Known(1.5, 2.0))
    assert vague.low < exact.low < exact.high < vague.high
    assert vague.p > exact.p


def test_one_value_is_too_few():
    assert compare([1.0], [2.0, 3.0]) is None
    assert compare([1.0], [2.0], paired=True) is None


def test_differences_that_are_all_alike_are_as_likely_as_coins_of_one_side():
    found = compare([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], paired=True)
    assert (found.effect, found.low, found.high, found.p) == (1.0, -math.inf, math.inf, 2 * 0.5**3)
    eight = compare([2.0] * 8, 1.0)
    assert (eight.p, eight.low, eight.high) == (2 * 0.5**8, 1.0, 1.0)
    assert (eight.at(0.001).low, eight.at(0.001).high) == (-math.inf, math.inf)
    assert str(found) == "1.00 in all 3 repetitions, p = 0.25"
    assert found.detectable == math.inf
    assert compare([2.0] * 8, 1.0).detectable == 0


@pytest.mark.parametrize("found", [compare([1.0, 2.0, 4.0], 0.0), compare_shares([100.0] * 15, [0.0] * 15)])
def test_at_a_stricter_level_the_interval_is_wider(found):
    stricter = found.at(0.001)
    assert stricter.low < found.low < found.high <= stricter.high
    assert (stricter.effect, stricter.p) == (found.effect, found.p)
    assert stricter.at(0.05) == found


def test_at_a_stricter_level_less_is_detectable():
    found = compare([1.0, 2.0, 4.0], 0.0)
    assert found.at(0.001).detectable > found.detectable


def test_the_interval_at_a_level_is_that_of_scipy():
    values = [1.0, 2.5, 3.0, 2.0]
    found, reference = compare(values, 1.5).at(0.01), stats.ttest_1samp(values, 1.5)
    interval = reference.confidence_interval(0.99)
    assert (found.low + 1.5, found.high + 1.5) == pytest.approx((interval.low, interval.high))


def test_two_equal_pairs_differ_by_nothing():
    assert compare([2.0, 2.0], [2.0, 2.0]).p == 1.0


def test_pairs_of_unequal_number_are_refused():
    with pytest.raises(ValueError, match="come in pairs, not 2 and 3"):
        compare([1.0, 2.0], [1.0, 2.0, 3.0], paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_holds_the_true_difference_in_95_of_100_trials(paired):
    rng = np.random.default_rng(0)
    trials, held = 4000, 0
    for a, b in rng.normal(size=(trials, 2, 6)):
        found = compare([*(a + 1.0)], [*(3 * b if not paired else b)], paired=paired)
        held += found.low <= 1.0 <= found.high
    # Four standard errors; Welch's interval is slightly wider than it need be for small samples.
    assert abs(held / trials - 0.95) < 4 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("n", [3, 5, 12])
def test_a_detectable_difference_is_found_in_80_of_100_trials(n):
    rng = np.random.default_rng(n)
    sample = compare([*scaled(rng.normal(size=n), 1 / math.sqrt(n))], 0.0)  # a standard deviation of 1
    trials = 4000
    found = sum(compare([*values], 0.0).p < 0.05 for values in rng.normal(sample.detectable, 1, (trials, n)))
    assert abs(found / trials - 0.8) < 4 * math.sqrt(0.8 * 0.2 / trials)


@pytest.mark.parametrize("freedom", [2, 4, 9, 30])
def test_detectable_errors_agree_with_the_noncentral_t_distribution(freedom):
    shift, critical = detectable_errors(freedom), stats.t.ppf(0.975, freedom)
    power = stats.nct.sf(critical, freedom, shift) + stats.nct.cdf(-critical, freedom, shift)
    assert power == pytest.approx(0.8, abs=1e-3)


def test_shares_are_compared_by_fishers_exact_test():
    yes, no = [100.0] * 4 + [0.0], [0.0] * 5
    found = compare_shares(yes, no)
    assert found.p == pytest.approx(stats.fisher_exact([[4, 1], [0, 5]]).pvalue)
    assert found.effect == 80
    assert found.low < 80 < found.high
    with pytest.raises(ValueError, match="0 or 100"):
        compare_shares([50.0], [0.0])


def test_the_bootstrap_of_a_mean_is_near_the_t_test():
    values = np.random.default_rng(0).normal(0.3, 1, 60)
    found, reference = bootstrap(lambda places: values[places].mean(1), 60), compare([*values], 0.0)
    assert found.effect == pytest.approx(reference.effect)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.05)
    assert found.detectable == pytest.approx(reference.detectable, rel=0.1)


@settings(max_examples=40)
@given(seeds, st.integers(2, 8))
def test_up_to_eight_pairs_have_an_exact_test_that_agrees_with_scipy(seed, n):
    values = np.random.default_rng(seed).normal(0.5, 1, n)
    reference = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert compare([*values], 0.0).exact == pytest.approx(reference.pvalue)
    assert compare([*values], [0.0] * n, paired=True).exact == pytest.approx(sign_flip([*values]))


def test_more_pairs_and_sides_of_their_own_have_no_exact_test():
    values = [*np.random.default_rng(0).normal(size=9)]
    assert compare(values, 0.0).exact is None
    assert compare(values[:4], values[4:8]).exact is None
    assert compare(values[:4], Known(0.0, 0.1)).exact is None


@pytest.mark.parametrize(
    "low, high, published, outcome",
    [
        (0.1, 2.0, None, HOLDS),
        (0.1, 0.5, 1.0, HOLDS),  # smaller than published, but above 0
        (-2.0, -0.1, None, REVERSED),
        (-2.0, -0.1, 0.05, REVERSED),  # however small the published effect is
        (-1.0, 0.5, 1.0, NO_EFFECT),
        (-1.0, 2.0, 1.0, UNDECIDED),
        (-1.0, 2.0, None, NO_DIFFERENCE),
        (-math.inf, math.inf, 1.0, UNDECIDED),
    ],
)
def test_the_interval_decides_in_both_directions(low, high, published, outcome):
    assert decide(low, high, published) == outcome
    mirrored = {HOLDS: REVERSED, REVERSED: HOLDS}.get(outcome, outcome)
    assert decide(-high, -low, None if published is None else -published) == mirrored


def test_fishers_test_and_the_interval_of_shares_agree():
    for one in range(6):
        for other in range(6):
            a, b = ([100.0] * count + [0.0] * (5 - count) for count in (one, other))
            found = compare_shares(a, b)
            assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


def test_differences_that_cancel_are_shown_as_zero():
    found = compare([0.1, 0.2, 0.3, 0.4], [0.3, 0.0, 0.4, 0.3], paired=True)
    assert found.effect == 0
    assert str(found).startswith("0 [")
