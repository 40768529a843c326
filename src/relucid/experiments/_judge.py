"""Whether A is better than B: the only place where that is decided, on top of scipy.stats.

A claim is a sentence with contrasts; a contrast compares cells of a table, or what is computed from cells. Its interval
decides, at 5% divided by the number of contrasts, so that all intervals of a claim are right at once.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from relucid.experiments._frame import Cell, Results

LEVEL = 0.05
DRAWS = 10_000  # of a bootstrap
FEW = 8  # pairs up to which a t-test has an exact test beside it
Outcome = Literal["confirmed", "reversed", "absent", "inconclusive", "no detectable difference"]
Relation = Literal["lower", "higher", "not worse", "near", "equal", "at most"]
Names = str | Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """A minus B: the effect, its two-sided p-value, and its interval at any confidence."""

    effect: float
    p: float
    n: int
    interval: Callable[[float], tuple[float, float]]
    spread: bool = True  #: False if all differences are equal, which leaves their sign to judge
    exact: float | None = None  #: the p-value of the sign-flip test, for few pairs


def compare(a: pd.Series, b: pd.Series | float, paired: bool = False) -> Comparison | None:
    """Compare A with B by a t-test: paired, against a number, or Welch's; None for fewer than two values.

    >>> found = compare(pd.Series([1.0, 2.0, 3.0]), pd.Series([2.5, 3.4, 4.6]), paired=True)
    >>> round(found.effect, 2), round(found.p, 4), [round(end, 2) for end in found.interval(0.95)]
    (-1.5, 0.0015, [-1.75, -1.25])
    """
    alone = paired or not isinstance(b, pd.Series)
    samples = [a - b] if alone else [a, b]
    if min(map(len, samples)) < 2 or any(sample.isna().any() for sample in samples):
        return None  # too few values, or a repetition that only one side has: the rest would not be a fair sample
    n, effect = sum(map(len, samples)), float(samples[0].mean() - (0.0 if alone else b.mean()))
    error = math.hypot(*(sample.sem() for sample in samples))
    effect = 0.0 if abs(effect) < 1e-9 * error else effect  # what rounding leaves of differences that cancel
    if error <= 1e-9 * abs(effect):  # with no spread only the sign is evidence
        p = 1.0 if effect == 0 else min(1.0, 2 * 0.5**n)
        return Comparison(
            effect,
            p,
            n,
            lambda sure: (effect, effect) if p < 1 - sure else (-math.inf, math.inf),
            spread=False,
        )
    test = stats.ttest_1samp(samples[0], 0.0) if alone else stats.ttest_ind(*samples, equal_var=False)
    exact = sign_flip(samples[0]) if alone and n <= FEW else None
    return Comparison(
        effect, float(test.pvalue), n, lambda sure: _ends(test.confidence_interval(sure)), exact=exact
    )


def sign_flip(differences: pd.Series) -> float:
    """The exact p-value of a mean if each difference may as well have the other sign: no distribution is assumed.

    >>> sign_flip(pd.Series([1.0, 2.0, 3.0, 4.0]))
    0.125
    """
    sums = np.array(list(product((-1, 1), repeat=len(differences)))) @ differences.to_numpy()
    return float(
        (np.abs(sums) >= abs(differences.sum()) * (1 - 1e-12)).mean()
    )  # rounding does not decide between equal sums


def compare_shares(a: pd.Series, b: pd.Series | float) -> Comparison | None:
    """Compare percentages of yes (100) and no (0): Fisher's test and Newcombe's interval, or Jeffreys' against a number."""
    if not len(a) or (isinstance(b, pd.Series) and not len(b)):
        return None
    yes, n = int((a > 0).sum()), len(a)
    if not isinstance(b, pd.Series):
        posterior = stats.beta(yes + 0.5, n - yes + 0.5)
        p = 2 * min(posterior.cdf(b / 100), posterior.sf(b / 100))
        return Comparison(
            100 * yes / n - b,
            float(p),
            n,
            lambda sure: _ends([100 * end - b for end in posterior.interval(sure)]),
        )
    other, m = int((b > 0).sum()), len(b)
    p = float(stats.fisher_exact([[yes, n - yes], [other, m - other]]).pvalue)

    def newcombe(sure: float) -> tuple[float, float]:
        (low1, high1), (low2, high2) = (
            stats.binomtest(k, of).proportion_ci(sure, "wilson") for k, of in ((yes, n), (other, m))
        )
        one, two = yes / n, other / m
        low, high = (
            one - two - math.hypot(one - low1, high2 - two),
            one - two + math.hypot(high1 - one, two - low2),
        )
        return (100 * low, 100 * high) if p < 1 - sure else (min(100 * low, 0.0), max(100 * high, 0.0))

    return Comparison(100 * (yes / n - other / m), p, n + m, newcombe)


def bootstrap(statistic: Callable[[np.ndarray], np.ndarray], n: int) -> Comparison:
    """A statistic of repetitions 0 to n-1, given as places (draws, n): its percentile interval under resampling."""
    found = stats.bootstrap(
        (np.arange(n),), lambda places, axis: statistic(places), n_resamples=DRAWS, method="percentile", rng=0
    )
    draws = found.bootstrap_distribution
    p = max(min(1.0, 2 * min(float((draws <= 0).mean()), float((draws >= 0).mean()))), 1 / DRAWS)
    return Comparison(
        float(statistic(np.arange(n)[None])[0]),
        p,
        n,
        lambda sure: _ends(np.quantile(draws, [(1 - sure) / 2, (1 + sure) / 2])),
    )


def _ends(ends: Any) -> tuple[float, float]:
    low, high = ends
    return float(low), float(high)


@dataclass(frozen=True)
class Quantity:
    """What is computed from cells: a function of their series, by repetition. `of`: the cell whose published value counts."""

    label: str
    cells: Sequence[Cell]
    function: Callable[..., Any]
    of: Cell | None = None


@dataclass(frozen=True)
class Contrast:
    """A is lower or higher than B, not worse by more than a margin, within a margin of it, equal to it, or at most it."""

    a: Cell | Quantity
    b: Cell | Quantity | float
    relation: Relation
    margin: float = 0.0
    paired: bool | None = None  #: by default as the study says

    @property
    def sign(self) -> int:
        """1 if a higher value is claimed, -1 if a lower one is."""
        return 1 if self.relation == "higher" else -1

    @property
    def label(self) -> str:
        """What is compared, in words."""
        if isinstance(self.a, Cell) and isinstance(self.b, Cell):
            (row, column), (other, beside) = self.a[:2], self.b[:2]
            if row == other:
                return f"{row}: {column} minus {beside}"
            return (
                f"{row} minus {other}, {column}"
                if column == beside
                else f"{row}, {column}, minus {other}, {beside}"
            )
        a, b = (side if isinstance(side, float) else _label(side) for side in (self.a, self.b))
        return (
            a
            if not b or self.relation == "at most"
            else f"{a} minus {b:g}"
            if isinstance(b, float)
            else f"{a} minus {b}"
        )

    def cells(self) -> list[Cell]:
        """Every cell behind it."""
        sides = (side for side in (self.a, self.b) if not isinstance(side, float))
        return [cell for side in sides for cell in (side.cells if isinstance(side, Quantity) else [side])]


def _label(side: Cell | Quantity) -> str:
    return side.label if isinstance(side, Quantity) else f"{side.row}, {side.column}"


def _names(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def contrasts(
    relation: Relation, rows: Names, than: Names | float, columns: Names, **more: Any
) -> list[Contrast]:
    """Rows against other rows, or against a number, in each of these columns."""
    others = [float(than)] if isinstance(than, int | float) else _names(than)
    return [
        Contrast(Cell(row, column), other if isinstance(other, float) else Cell(other, column), relation, **more)
        for row in _names(rows) for column in _names(columns) for other in others
    ]  # fmt: skip


def lower(rows: Names, than: Names | float, columns: Names, **more: Any) -> list[Contrast]:
    """Rows that are lower than others, in each of these columns.

    >>> [each.label for each in lower("GmP", ["SP", "WN"], "Boston")]
    ['GmP minus SP, Boston', 'GmP minus WN, Boston']
    """
    return contrasts("lower", rows, than, columns, **more)


def higher(rows: Names, than: Names | float, columns: Names, **more: Any) -> list[Contrast]:
    """Rows that are higher than others, in each of these columns."""
    return contrasts("higher", rows, than, columns, **more)


def not_worse(rows: Names, than: Names | float, columns: Names, margin: float, **more: Any) -> list[Contrast]:
    """Rows that are worse than others by less than a margin, in each of these columns."""
    return contrasts("not worse", rows, than, columns, margin=margin, **more)


def near(rows: Names, value: float, columns: Names, margin: float) -> list[Contrast]:
    """Cells with a mean within a margin of a number: the interval lies inside it."""
    return contrasts("near", rows, value, columns, margin=margin)


def equal(rows: Names, value: float, columns: Names) -> list[Contrast]:
    """Cells that equal a number in the digits that their column shows, for counts."""
    return contrasts("equal", rows, value, columns)


def at_most(rows: Names, value: float, columns: Names) -> list[Contrast]:
    """Cells in which no repetition is above a number: bounds that hold for certain, not on average."""
    return contrasts("at most", rows, value, columns)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, or of ours, and the contrasts that decide it. `stated`: its date, if its data were in view."""

    where: str
    says: str
    contrasts: Sequence[Contrast] = ()
    kind: Literal["experiment", "mathematics", "construction"] = "experiment"
    stated: str = ""
    scales: Sequence[str] = ()

    def within(self, cells: Collection[tuple[str, str]]) -> "Claim":
        """The claim about these cells alone: a smaller scale may lack rows and columns."""
        return replace(
            self,
            contrasts=[each for each in self.contrasts if all(cell[:2] in cells for cell in each.cells())],
        )


@dataclass(frozen=True)
class Statement:
    """A theorem, definition or count of a paper: no records, but tests. `holds`: False if the tests show that it does not."""

    where: str
    says: str
    tests: Sequence[str] = ()  #: "nn/test_sphere.py::test_name", below tests/
    holds: bool = True
    kind: Literal["experiment", "mathematics", "construction"] = "mathematics"


@dataclass(frozen=True)
class Verdict:
    """A contrast, what was found, and the outcome."""

    contrast: Contrast
    found: Comparison | None
    outcome: Outcome
    published: float | None = None  #: the published effect, taken as the same share of the error here
    level: float = LEVEL

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.contrast.label}: too few values to compare, or a run that only one side has"
        effect = number(self.found.effect)
        if not self.found.spread:
            return f"{self.contrast.label}: {effect} in all {self.found.n} repetitions: {self.outcome}"
        low, high = map(number, self.found.interval(1 - self.level))
        sure = "" if self.level == LEVEL else f" ({100 * (1 - self.level):.3g}%)"
        exact = "" if self.found.exact is None else f", exact p = {self.found.exact:.2g}"
        theirs = "" if self.published is None else f", published {number(self.published)}"
        return f"{self.contrast.label}: {effect} [{low}, {high}]{sure}, p = {self.found.p:.2g}{exact}{theirs}: {self.outcome}"


def number(value: float) -> str:
    """A number with at least three digits, and an exponent only if it is very large or small.

    >>> number(-0.01234), number(123.4), number(0.5)
    ('-0.0123', '123', '0.500')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(2 - size, 0), 6)}f}" if size >= -6 else f"{value:.2e}"


def judge(results: Results, claim: Claim) -> list[Verdict]:
    """Decide every contrast of a claim, at a level that allows for their number unless all agree."""
    found = [
        (contrast, _compared(results, contrast), _published(results, contrast))
        for contrast in claim.contrasts
    ]
    made = [_decided(*each, LEVEL) for each in found]
    if {verdict.outcome for verdict in made} in ({"confirmed"}, {"reversed"}):
        return made
    tested = sum(
        verdict.found is not None and verdict.contrast.relation not in ("equal", "at most")
        for verdict in made
    )
    return [_decided(*each, LEVEL / max(1, tested)) for each in found]


def outcome(claim: Claim, verdicts: Sequence[Verdict]) -> Outcome:
    """The outcome of more than half of a claim's contrasts; of a theorem or a count, one that fails refutes it."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    if claim.kind != "experiment" and counts["reversed"]:
        return "reversed"
    (most, count), *_ = counts.most_common(1)
    return most if count > len(verdicts) / 2 else "inconclusive"


def decide(low: float, high: float, published: float | None) -> Outcome:
    """What the interval of an effect means, taken in the claimed direction: above 0 is what is claimed.

    >>> decide(0.1, 2.0, None), decide(-2.0, -0.1, 1.0), decide(-1.0, 0.5, 1.0), decide(-1.0, 2.0, 1.0)
    ('confirmed', 'reversed', 'absent', 'inconclusive')
    """
    if low > 0 or high < 0:
        return "confirmed" if low > 0 else "reversed"
    if published is None:
        return "no detectable difference"
    return "inconclusive" if low <= published <= high else "absent"


def _decided(contrast: Contrast, found: Comparison | None, published: float | None, level: float) -> Verdict:
    verdict = Verdict(contrast, found, "inconclusive", published, level)
    if found is None:
        return verdict
    low, high = found.interval(1 - level)
    if contrast.relation in ("equal", "at most"):
        holds = found.effect <= 0 if contrast.relation == "at most" else found.effect == 0
        return replace(verdict, outcome="confirmed" if holds else "reversed")
    if contrast.relation == "near":
        nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        low, high = contrast.margin - max(abs(low), abs(high)), contrast.margin - nearest
    else:
        low, high = (end + contrast.margin for end in sorted((contrast.sign * low, contrast.sign * high)))
    claimed = None if published is None or published * contrast.sign <= 0 else abs(published)
    decided = decide(low, high, claimed)
    if contrast.relation in ("near", "not worse") and decided in ("no detectable difference", "absent"):
        decided = "inconclusive"  # an interval around a margin says nothing
    return replace(verdict, outcome=decided)


def _side(results: Results, side: Cell | Quantity | float) -> Any:
    if isinstance(side, Quantity):
        return side.function(*(results[cell] for cell in side.cells))
    return results[side] if isinstance(side, Cell) else side


def _compared(results: Results, contrast: Contrast) -> Comparison | None:
    a, b = _side(results, contrast.a), _side(results, contrast.b)
    if a is None or isinstance(a, Comparison):
        return a
    if contrast.relation in ("equal", "at most"):
        if not len(a):
            return None
        assert isinstance(contrast.a, Cell)
        value = (
            a.max()
            if contrast.relation == "at most"
            else round(a.mean(), results.study.columns[contrast.a.column].digits)
        )
        return Comparison(float(value - b), 0.0, len(a), lambda sure: (float(value - b),) * 2, spread=False)
    if (
        isinstance(contrast.a, Cell)
        and results.study.columns[contrast.a.column].share
        and isinstance(b, pd.Series)
    ):
        return compare_shares(a, b)
    paired = isinstance(b, pd.Series) and (
        results.study.paired if contrast.paired is None else contrast.paired
    )
    if paired and set(a.index) != set(b.index):
        return None  # a repetition diverged or has not run: the rest would not be a fair sample
    return compare(a, b, paired)


def _cell(side: Cell | Quantity | float) -> Cell | None:
    return side.of if isinstance(side, Quantity) else side if isinstance(side, Cell) else None


def _published(results: Results, contrast: Contrast) -> float | None:
    """The published effect; below the paper's scale the same share of B's error as there."""
    ours, theirs = _cell(contrast.a), _cell(contrast.b)
    if ours is None or theirs is None:
        return None
    a, b = results.published(ours)[0], results.published(theirs)[0]
    if a is None or b is None:
        return None
    perfect, values = results.study.columns[theirs.column].perfect, results[theirs]
    if results.scale == "full" or not len(values) or not (b - perfect) or not (values.mean() - perfect):
        return a - b
    return (a - b) * abs(values.mean() - perfect) / abs(b - perfect)
