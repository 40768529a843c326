"""Whether A differs from B: the only code in the project that judges a difference.

A comparison is an effect with its 95% interval, the probability of as much by chance, and the *detectable* difference:
the smallest one that this design, with this noise, would find at 5% in four trials of five.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import Literal

import numpy as np

LEVEL = 0.05  # of significance, two-sided
POWER = 0.8  # with which a detectable difference is found
DRAWS = 2000  # of a bootstrap
QUANTILES = 250  # that represent a distribution: they give the power to within 0.0001

Outcome = Literal[
    "holds",
    "holds the other way round",
    "not told apart",
    "no difference found",
    "cannot be told at this scale",
]
HOLDS: Outcome = "holds"
REVERSED: Outcome = "holds the other way round"
UNTOLD: Outcome = "not told apart"  # though a difference of the size in question would have been found
OPEN: Outcome = "no difference found"  # and nothing says how large it should have been
UNABLE: Outcome = "cannot be told at this scale"


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
        low: lower end of the 95% interval of the effect.
        high: its upper end.
        p: two-sided p-value of the effect.
        n: number of values (of pairs, where they are paired).
        detectable: the smallest difference that would be found at this level with 80% power; infinity if there is none.
        error: standard error of the effect; 0 where all differences are equal, which leaves their sign to judge.
        freedom: degrees of freedom of that error.
        test: how it was judged, in words.
        sides: 2 where A and B have repetitions of their own, 1 where they share them or B is a number.
        level: of significance: 5%, or less where it is one of several comparisons (see `at`).
        shares: for shares, B's, and the numbers of values of A and B.
    """

    effect: float
    low: float
    high: float
    p: float
    n: int
    detectable: float
    error: float
    freedom: float
    test: str
    sides: int = 1
    level: float = LEVEL
    shares: tuple[float, int, int] | None = None

    def at(self, level: float) -> "Comparison":
        """The same comparison with what is detectable at another level of significance.

        >>> found = compare([1.0, 2.0, 3.0], 0.0)
        >>> round(found.detectable, 2), round(found.at(0.05 / 4).detectable, 2)
        (3.26, 6.55)
        """
        if self.shares is not None:
            detectable = 100 * _detectable_share(*self.shares, level)
        elif self.error:
            detectable = self.error * detectable_errors(self.freedom, level)
        else:
            detectable = 0.0 if self.p < level else math.inf
        return replace(self, detectable=detectable, level=level)

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
        if self.error == 0 and self.shares is None:
            return f"{number(self.effect)} in all {self.n} repetitions"
        return f"{number(self.effect)} [{number(self.low)}, {number(self.high)}]"

    def __str__(self) -> str:
        return f"{self.interval}, {chance(self.p)}"


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
    -1.50 [-1.75, -1.25], p = 0.0015 ; detectable: 0.33
    """
    if isinstance(b, int | float):
        b = Known(b)
    if isinstance(b, Known):
        return _of_one_sample(
            a, b, "t-test against a number" if not b.error else "t-test against a published mean"
        )
    if paired:
        if len(a) != len(b):
            raise ValueError(f"paired values come in pairs, not {len(a)} and {len(b)}")
        return _of_one_sample([x - y for x, y in zip(a, b, strict=True)], Known(0.0), "paired t-test")
    if min(len(a), len(b)) < 2:
        return None
    errors = [stdev(each) / math.sqrt(len(each)) for each in (a, b)]
    freedoms = (len(a) - 1, len(b) - 1)
    found = _judged(fmean(a) - fmean(b), errors, freedoms, len(a) + len(b), "Welch's t-test")
    return replace(found, sides=2)


def _of_one_sample(values: Sequence[float], known: Known, test: str) -> Comparison | None:
    if len(values) < 2:
        return None
    error = stdev(values) / math.sqrt(len(values))
    return _judged(
        fmean(values) - known.mean, (error, known.error), (len(values) - 1, math.inf), len(values), test
    )


def _judged(
    effect: float, errors: Sequence[float], freedoms: Sequence[float], n: int, test: str
) -> Comparison:
    """Perform a t-test with the degrees of freedom of Welch and Satterthwaite."""
    from scipy.special import stdtr, stdtrit

    variance = sum(error**2 for error in errors)
    if variance <= (1e-9 * effect) ** 2:  # rounding is not noise
        # Equal differences are no proof (small test sets count whole examples): all that counts is their sign, and
        # coins may all show the same side, too.
        p = 1.0 if effect == 0 else min(1.0, 2 * 0.5**n)
        return Comparison(effect, effect, effect, p, n, math.inf, 0.0, math.inf, test).at(LEVEL)
    spread = sum(error**4 / freedom for error, freedom in zip(errors, freedoms, strict=True))
    freedom = variance**2 / spread if spread else math.inf
    error = math.sqrt(variance)
    effect = 0.0 if abs(effect) < 1e-9 * error else effect  # what rounding leaves of differences that cancel
    half = error * float(stdtrit(freedom, 1 - LEVEL / 2))
    p = float(2 * stdtr(freedom, -abs(effect) / error))
    detectable = error * detectable_errors(freedom)
    return Comparison(effect, effect - half, effect + half, p, n, detectable, error, freedom, test)


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
    from scipy.stats import binomtest, fisher_exact

    if not a or not b:
        return None
    if not {*a, *b} <= {0.0, 100.0}:
        raise ValueError("shares can be compared only if every value is 0 or 100")
    counts = [(sum(value > 0 for value in each), len(each)) for each in (a, b)]
    (one, n), (other, m) = counts
    (low1, high1), (low2, high2) = (
        binomtest(count, of).proportion_ci(1 - LEVEL, "wilson") for count, of in counts
    )
    effect = one / n - other / m
    low = effect - math.hypot(one / n - low1, high2 - other / m)
    high = effect + math.hypot(high1 - one / n, other / m - low2)
    p = float(fisher_exact([[one, n - one], [other, m - other]]).pvalue)
    error = 100 * math.sqrt(sum((k / of) * (1 - k / of) / of for k, of in counts))
    shares = (other / m, n, m)
    detectable = 100 * _detectable_share(*shares, LEVEL)
    return Comparison(
        effect=100 * effect,
        low=100 * low,
        high=100 * high,
        p=p,
        n=n + m,
        detectable=detectable,
        error=error,
        freedom=math.inf,
        test="Fisher's exact test",
        sides=2,
        shares=shares,
    )


@cache
def _detectable_share(share: float, n: int, m: int, level: float) -> float:
    """The smallest difference from `share` of m that Fisher's test finds in n; infinity if it finds none."""
    from scipy.stats import binom, fisher_exact

    found = np.array(
        [[fisher_exact([[i, n - i], [j, m - j]]).pvalue < level for j in range(m + 1)] for i in range(n + 1)]
    )
    theirs = binom.pmf(range(m + 1), m, share)
    for step in range(1, 101):
        for other in (share - step / 100, share + step / 100):
            if 0 <= other <= 1 and binom.pmf(range(n + 1), n, other) @ found @ theirs >= POWER:
                return step / 100
    return math.inf


def bootstrap(statistic: Callable[[np.ndarray], np.ndarray], n: int, seed: int = 0) -> Comparison:
    """Compute a statistic of n paired repetitions and its variation under resampling.

    Args:
        statistic: maps places (draws, n), drawn with replacement, to values (draws,); 0 means no difference.
        n: number of repetitions.
        seed: seed of the draws.
    """
    effect = float(statistic(np.arange(n)[None])[0])
    draws = statistic(np.random.default_rng(seed).integers(n, size=(DRAWS, n)))
    low, high = np.quantile(draws, [LEVEL / 2, 1 - LEVEL / 2])
    below, above = float((draws <= 0).mean()), float((draws >= 0).mean())
    error = float(draws.std(ddof=1))
    p = max(min(1.0, 2 * min(below, above)), 1 / DRAWS)
    detectable = error * detectable_errors(math.inf)
    return Comparison(
        effect, float(low), float(high), p, n, detectable, error, math.inf, "bootstrap over repetitions"
    )


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of comparisons by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = running
    return adjusted


def one_sided(found: Comparison, margin: float) -> tuple[float, float]:
    """One-sided p-values of an effect this far below and this far above a margin.

    >>> below, above = one_sided(compare([1.0, 1.1, 0.9], 1.0), margin=0.5)
    >>> round(below, 3), round(above, 3)
    (0.007, 0.993)
    """
    from scipy.special import stdtr

    if found.error == 0:
        return float(found.effect >= margin), float(found.effect <= margin)
    below = float(stdtr(found.freedom, (found.effect - margin) / found.error))
    return below, 1 - below


def decide(found: Comparison, p: float, *, expected: int, allowed: float | None) -> Outcome:
    """Decide what a comparison says about a claim.

    Args:
        found: the comparison.
        p: its probability, adjusted for the other comparisons of the claim.
        expected: the sign of the effect that is claimed.
        allowed: the size of the published effect: a design that can only detect larger ones cannot tell. None if
            nothing was published.
    """
    right = found.effect * expected > 0
    if p < LEVEL and right:
        return HOLDS
    if allowed is None and math.isfinite(found.detectable):
        return REVERSED if p < LEVEL else OPEN
    # A scale that could not have detected the effect is no evidence against it.
    if allowed is None or found.detectable > allowed:
        return UNABLE
    return REVERSED if p < LEVEL else UNTOLD


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
