"""Whether A differs from B: the only code in the project that judges a difference.

A comparison is an effect with its interval at a level that allows for the number of comparisons; `decide` says what the
interval means for a claim, by the same rule in both directions. The *detectable* difference is for planning: the
smallest one that a design with this noise would find in four trials of five.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from statistics import fmean, stdev
from typing import Literal

import numpy as np

LEVEL = 0.05  # of significance, two-sided
POWER = 0.8  # with which a detectable difference is found
DRAWS = 10_000  # of a bootstrap
QUANTILES = 250  # that represent a distribution: they give the power to within 0.0001
FEW = 8  # repetitions up to which a t-test has an exact test beside it

Verdict = Literal["holds", "the opposite holds", "no such effect", "undecided", "no difference found"]
HOLDS: Verdict = "holds"
REVERSED: Verdict = "the opposite holds"
NO_EFFECT: Verdict = "no such effect"  # the interval contains 0 and excludes the published effect
UNDECIDED: Verdict = "undecided"  # the interval contains 0 and the published effect
NO_DIFFERENCE: Verdict = "no difference found"  # the interval contains 0, and no effect was published


@dataclass(frozen=True)
class Known:
    """A published mean with its standard error; the number of values behind it is unknown."""

    mean: float
    error: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """The difference A - B and its uncertainty.

    Args:
        effect: the mean of A minus that of B.
        p: two-sided p-value of the effect.
        n: number of values (of pairs, where they are paired).
        error: standard error of the effect; 0 where all differences are equal, which leaves their sign to judge.
        freedom: degrees of freedom of that error.
        sides: 2 where A and B have repetitions of their own, 1 where they share them or B is a number.
        level: of significance: 5%, or less where it is one of several comparisons.
        exact: the p-value of the exact sign-flip test, for eight pairs or fewer.
        counts: for shares, the counts and numbers of values of A and of B.
        draws: values of the effect that represent its distribution: of a bootstrap, or quantiles.
    """

    effect: float
    p: float
    n: int
    error: float
    freedom: float = math.inf
    sides: int = 1
    level: float = LEVEL
    exact: float | None = None
    counts: tuple[int, int, int, int] | None = None
    draws: np.ndarray | None = field(default=None, repr=False, compare=False)

    def at(self, level: float) -> "Comparison":
        """The same comparison at another level of significance.

        >>> found = compare([1.0, 2.0, 3.0], 0.0)
        >>> print(found.interval, "|", found.at(0.05 / 4).interval)
        2.00 [-0.484, 4.48] | 2.00 [-3.12, 7.12]
        """
        return replace(self, level=level)

    def among(self, comparisons: int) -> "Comparison":
        """The same comparison at the level that allows for so many of them."""
        return self.at(LEVEL / comparisons)

    @property
    def low(self) -> float:
        """The lower end of the effect's interval at this level."""
        return self._ends[0]

    @property
    def high(self) -> float:
        """The upper end of the effect's interval at this level."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The interval; it excludes 0 only where the test rejects it at this level."""
        from scipy.special import stdtrit

        if self.draws is not None:
            low, high = np.quantile(self.draws, [self.level / 2, 1 - self.level / 2])
            return float(low), float(high)
        if self.counts is not None:
            low, high = _newcombe(*self.counts, self.level)
            return (low, high) if self.p < self.level else (min(low, 0.0), max(high, 0.0))
        if self.error == 0:
            return (self.effect, self.effect) if self.p < self.level else (-math.inf, math.inf)
        half = self.error * float(stdtrit(self.freedom, 1 - self.level / 2))
        return self.effect - half, self.effect + half

    @property
    def detectable(self) -> float:
        """The smallest difference of means that would be found at this level with 80% power; infinity if none would."""
        if self.error:
            return self.error * detectable_errors(self.freedom, self.level)
        return 0.0 if self.p < self.level else math.inf

    def detectable_with(self, repetitions: int) -> float:
        """The difference that this many repetitions per side would detect, given the noise seen here.

        >>> round(compare([1.0, 2.0, 3.0], 0.0).detectable_with(12), 2)
        0.89
        """
        more = repetitions * self.sides / self.n
        freedom = self.sides * (repetitions - 1)
        if freedom <= 0:
            return math.inf
        return self.error / math.sqrt(more) * detectable_errors(freedom, self.level)

    @property
    def interval(self) -> str:
        """The effect with its interval, which differences that are all equal do not give."""
        if self.error == 0 and self.counts is None:
            return f"{number(self.effect)} in all {self.n} repetitions"
        return f"{number(self.effect)} [{number(self.low)}, {number(self.high)}]"

    @property
    def confidence(self) -> str:
        """The confidence of the interval, in per cent.

        >>> compare([1.0, 2.0, 3.0], 0.0).at(0.05 / 18).confidence
        '99.7%'
        """
        return f"{100 * (1 - self.level):.3g}%"

    @property
    def chance(self) -> str:
        """The p-value of the t-test, and that of the exact test if there is one."""
        return chance(self.p) + ("" if self.exact is None else f", exact {chance(self.exact)}")

    def __str__(self) -> str:
        return f"{self.interval}, {self.chance}"


def compare(
    a: Sequence[float], b: Sequence[float] | float | Known, *, paired: bool = False
) -> Comparison | None:
    """Compare A with B by a t-test: paired, one sample against a number, or Welch's. None for fewer than two values.

    Args:
        a: values (n,).
        b: values (m,), m = n where they are paired; a number; or a published mean.
        paired: values at the same index belong together: same data, same seed.

    >>> found = compare([1.0, 2.0, 3.0], [2.5, 3.4, 4.6], paired=True)
    >>> print(found, "; detectable:", round(found.detectable, 2))
    -1.50 [-1.75, -1.25], p = 0.0015, exact p = 0.25 ; detectable: 0.33
    """
    if isinstance(b, int | float):
        b = Known(b)
    if isinstance(b, Known):
        return _of_one_sample(a, b)
    if paired:
        if len(a) != len(b):
            raise ValueError(f"paired values come in pairs, not {len(a)} and {len(b)}")
        return _of_one_sample([x - y for x, y in zip(a, b, strict=True)], Known(0.0))
    if min(len(a), len(b)) < 2:
        return None
    errors = [stdev(each) / math.sqrt(len(each)) for each in (a, b)]
    found = _t_test(fmean(a) - fmean(b), errors, (len(a) - 1, len(b) - 1), len(a) + len(b))
    return replace(found, sides=2)


def compare_with_one(a: Sequence[float], b: float) -> Comparison | None:
    """Compare the mean of A with one value that varies as those of A do: Student's t-test, with A's deviation.

    >>> print(compare_with_one([1.0, 2.0, 3.0], 9.0), "|", compare([1.0, 2.0, 3.0], 9.0).interval)
    -7.00 [-12.0, -2.03], p = 0.026 | -7.00 [-9.48, -4.52]
    """
    if len(a) < 2:
        return None
    error = stdev(a) * math.sqrt(1 + 1 / len(a))
    return _t_test(fmean(a) - b, (error,), (len(a) - 1,), len(a))


def _of_one_sample(values: Sequence[float], known: Known) -> Comparison | None:
    if len(values) < 2:
        return None
    errors = stdev(values) / math.sqrt(len(values)), known.error
    found = _t_test(fmean(values) - known.mean, errors, (len(values) - 1, math.inf), len(values))
    if known.error or found.error == 0 or len(values) > FEW:
        return found
    return replace(found, exact=sign_flip([value - known.mean for value in values]))


def sign_flip(differences: Sequence[float]) -> float:
    """The exact p-value of a mean if each difference may as well have the other sign: no distribution is assumed.

    >>> sign_flip([1.0, 2.0, 3.0, 4.0])
    0.125
    """
    sums = np.array(list(product((-1, 1), repeat=len(differences)))) @ np.array(differences)
    least = abs(sum(differences)) * (1 - 1e-12)  # rounding does not decide between equal sums
    return float((np.abs(sums) >= least).mean())


def _t_test(effect: float, errors: Sequence[float], freedoms: Sequence[float], n: int) -> Comparison:
    """Perform a t-test with the degrees of freedom of Welch and Satterthwaite."""
    from scipy.special import stdtr

    variance = sum(error**2 for error in errors)
    if variance <= (1e-9 * effect) ** 2:  # rounding is not noise
        # Equal differences are no proof (small test sets count whole examples): all that counts is their sign, and
        # coins may all show the same side, too.
        p = 1.0 if effect == 0 else min(1.0, 2 * 0.5**n)
        return Comparison(effect, p, n, error=0.0)
    spread = sum(error**4 / freedom for error, freedom in zip(errors, freedoms, strict=True))
    freedom = variance**2 / spread if spread else math.inf
    error = math.sqrt(variance)
    effect = 0.0 if abs(effect) < 1e-9 * error else effect  # what rounding leaves of differences that cancel
    p = float(2 * stdtr(freedom, -abs(effect) / error))
    return Comparison(effect, p, n, error, freedom)


def detectable_errors(freedom: float, level: float = LEVEL) -> float:
    """How many standard errors a difference must measure for a t-test at this level to find it with 80% power.

    >>> round(detectable_errors(math.inf), 2), round(detectable_errors(4), 2)
    (2.8, 3.76)
    """
    return _detectable_errors(round(freedom, 2), level)


@cache
def _detectable_errors(freedom: float, level: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import chdtri, ndtr, stdtrit

    critical = float(stdtrit(freedom, 1 - level / 2))
    # The test's error has a chi distribution, represented by its quantiles.
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    errors = np.sqrt(chdtri(freedom, 1 - places) / freedom) if math.isfinite(freedom) else np.ones(1)

    def missing(shift: float) -> float:
        found = ndtr(shift - critical * errors) + ndtr(-shift - critical * errors)
        return float(found.mean()) - POWER

    return float(brentq(missing, 0, 10 * critical))


def compare_shares(a: Sequence[float], b: Sequence[float]) -> Comparison | None:
    """Compare A with B where every value is 0 or 100 (per cent): Fisher's exact test, and Newcombe's interval.

    >>> print(compare_shares([100, 100, 100, 100, 100], [0, 0, 0, 0, 0]))
    100 [38.6, 100], p = 0.0079
    """
    from scipy.stats import fisher_exact

    if not a or not b:
        return None
    if not {*a, *b} <= {0.0, 100.0}:
        raise ValueError("shares can be compared only if every value is 0 or 100")
    (one, n), (other, m) = counts = [(sum(value > 0 for value in each), len(each)) for each in (a, b)]
    effect = 100 * (one / n - other / m)
    p = float(fisher_exact([[one, n - one], [other, m - other]]).pvalue)
    error = 100 * math.sqrt(sum((k / of) * (1 - k / of) / of for k, of in counts))
    return Comparison(effect, p, n + m, error, sides=2, counts=(one, n, other, m))


def compare_share(a: Sequence[float], b: float) -> Comparison | None:
    """Compare A, where every value is 0 or 100 (per cent), with a number: the Jeffreys interval of its share.

    >>> print(compare_share([100] * 5 + [0] * 195, 0.0).interval)
    2.50 [0.961, 5.39]
    """
    from scipy.stats import beta

    if not a:
        return None
    if not {*a} <= {0.0, 100.0}:
        raise ValueError("a share takes values of 0 or 100 only")
    count = sum(value > 0 for value in a)
    places = (np.arange(DRAWS) + 0.5) / DRAWS
    draws = 100 * beta.ppf(places, count + 0.5, len(a) - count + 0.5) - b
    p = 2 * min(float((draws > 0).mean()), float((draws < 0).mean()))
    return Comparison(fmean(a) - b, p, len(a), float(draws.std()), draws=draws)


def _newcombe(one: int, n: int, other: int, m: int, level: float) -> tuple[float, float]:
    """Newcombe's interval of one / n - other / m, in per cent, from Wilson's intervals of both."""
    from scipy.stats import binomtest

    (low1, high1), (low2, high2) = (
        binomtest(count, of).proportion_ci(1 - level, "wilson") for count, of in ((one, n), (other, m))
    )
    a, b = one / n, other / m
    low, high = a - b - math.hypot(a - low1, high2 - b), a - b + math.hypot(high1 - a, b - low2)
    return 100 * low, 100 * high


def bootstrap(statistic: Callable[[np.ndarray], np.ndarray], n: int, seed: int = 0) -> Comparison:
    """Compute a statistic of n paired repetitions and its variation under resampling.

    Args:
        statistic: maps places (draws, n), drawn with replacement, to values (draws,); 0 means no difference.
        n: number of repetitions.
        seed: seed of the draws.
    """
    effect = float(statistic(np.arange(n)[None])[0])
    draws = statistic(np.random.default_rng(seed).integers(n, size=(DRAWS, n)))
    below, above = float((draws <= 0).mean()), float((draws >= 0).mean())
    p = max(min(1.0, 2 * min(below, above)), 1 / DRAWS)
    return Comparison(effect, p, n, float(draws.std(ddof=1)), draws=draws)


def differ(a: float, b: float, n: int) -> bool:
    """Whether two shares in per cent, each of n examples, differ by more than chance explains.

    >>> differ(30.0, 29.98, 5000), differ(30.0, 27.0, 5000)
    (False, True)
    """
    from scipy.special import ndtri

    error = math.sqrt(sum(share * (100 - share) / n for share in (a, b)))
    return abs(a - b) > error * float(ndtri(1 - LEVEL / 2))


def differ_by_repetition(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    """Whether values by repetition differ by more than chance explains, repetition by repetition."""
    both = [each for each in a if each in b]
    found = compare([a[each] for each in both], [b[each] for each in both], paired=True)
    return found is not None and not found.low <= 0 <= found.high


def decide(low: float, high: float, published: float | None) -> Verdict:
    """Decide what the interval of an effect, taken in the claimed direction, means for a claim.

    Args:
        low: lower end of the interval; above 0 is what is claimed.
        high: its upper end.
        published: the published effect in the claimed direction, None if there is none.

    >>> decide(0.1, 2.0, None), decide(-2.0, -0.1, 1.0), decide(-1.0, 0.5, 1.0), decide(-1.0, 2.0, 1.0)
    ('holds', 'the opposite holds', 'no such effect', 'undecided')
    """
    if low > 0:
        return HOLDS
    if high < 0:
        return REVERSED
    if published is None:
        return NO_DIFFERENCE
    return UNDECIDED if low <= published <= high else NO_EFFECT


def chance(p: float) -> str:
    """Format a p-value.

    >>> chance(0.0123), chance(1e-9)
    ('p = 0.012', 'p < 1e-6')
    """
    return "p < 1e-6" if p < 1e-6 else f"p = {p:.2g}"


def number(value: float) -> str:
    """Format a number with at least three digits, and an exponent only if it is very large or small.

    >>> number(-0.01234), number(123.4), number(1234567.0), number(0.5)
    ('-0.0123', '123', '1234567', '0.500')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(2 - size, 0), 6)}f}" if size >= -6 else f"{value:.2e}"
