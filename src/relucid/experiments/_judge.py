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
import scipy

from relucid.experiments._frame import Cell, Results
from relucid.experiments._records import arithmetic

LEVEL = 0.05
DRAWS = 10_000  # of a bootstrap
FEW = 8  # pairs up to which a t-test has an exact test beside it
Outcome = Literal["confirmed", "reversed", "absent", "inconclusive", "no detectable difference"]
Relation = Literal["lower", "higher", "not worse", "near", "equal", "at most"]


@dataclass(frozen=True)
class Comparison:
    """A minus B: the effect, its two-sided p-value, and its interval at any confidence.

    Args:
        effect: the difference.
        p: of no difference.
        n: how many values.
        interval: confidence -> lower and upper end.
        spread: False if all differences are equal, which leaves their sign to judge.
        exact: the p-value of the sign-flip test, for few pairs.
    """

    effect: float
    p: float
    n: int
    interval: Callable[[float], tuple[float, float]]
    spread: bool = True
    exact: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.effect) and math.isfinite(self.p)):
            raise ValueError(f"an effect of {self.effect:g} (p = {self.p:g}) cannot be judged: leave out NaN")


def compare(a: pd.Series, b: pd.Series | float, paired: bool = False) -> Comparison | None:
    """Compare A with B by a t-test: paired, against a number, or Welch's.

    None for fewer than two values, or a repetition that only one side has: the rest would not be a fair sample.

    >>> difference = compare(pd.Series([1.0, 2.0, 3.0]), pd.Series([2.5, 3.4, 4.6]), paired=True)
    >>> round(difference.effect, 2), round(difference.p, 4), [round(end, 2) for end in difference.interval(0.95)]
    (-1.5, 0.0015, [-1.75, -1.25])
    """
    alone = paired or not isinstance(b, pd.Series)
    samples = [a - b] if alone else [a, b]
    if min(map(len, samples)) < 2 or not all(np.isfinite(sample).all() for sample in samples):
        return None
    n, effect = (
        sum(map(len, samples)),
        float(samples[0].mean()) - (0.0 if alone else float(samples[1].mean())),
    )
    error = math.hypot(*(float(sample.sem()) for sample in samples))
    effect = 0.0 if abs(effect) < 1e-9 * error else effect  # what rounding leaves of differences that cancel
    if error <= 1e-9 * abs(effect):
        return _without_spread(effect, n)
    if alone:
        test, exact = scipy.stats.ttest_1samp(samples[0], 0.0), sign_flip(samples[0]) if n <= FEW else None
    else:
        test, exact = scipy.stats.ttest_ind(*samples, equal_var=False), None
    return Comparison(
        effect, float(test.pvalue), n, lambda sure: _ends(test.confidence_interval(sure)), exact=exact
    )


def against_one(values: pd.Series, other: float) -> Comparison | None:
    """Compare a mean with one value that varies as those of the mean do: Student's t-test, with their deviation.

    >>> difference = against_one(pd.Series([1.0, 2.0, 3.0]), 9.0)
    >>> difference.effect, round(difference.p, 3), [round(end, 2) for end in difference.interval(0.95)]
    (-7.0, 0.026, [-11.97, -2.03])
    """
    n = len(values)
    if n < 2:
        return None
    effect, error = float(values.mean()) - other, float(values.std()) * math.sqrt(1 + 1 / n)
    if error <= 1e-9 * abs(effect):
        return _without_spread(effect, n)
    t = scipy.stats.t(n - 1, effect, error)
    return Comparison(effect, float(2 * min(t.cdf(0), t.sf(0))), n, lambda sure: _ends(t.interval(sure)))


def _without_spread(effect: float, n: int) -> Comparison:
    """Where all differences are equal, only their sign is evidence."""
    p = 1.0 if effect == 0 else min(1.0, 2 * 0.5**n)

    def interval(sure: float) -> tuple[float, float]:
        return (effect, effect) if p < 1 - sure else (-math.inf, math.inf)

    return Comparison(effect, p, n, interval, spread=False)


def sign_flip(differences: pd.Series) -> float:
    """The exact p-value of a mean if each difference may as well have the other sign: no distribution is assumed.

    >>> sign_flip(pd.Series([1.0, 2.0, 3.0, 4.0]))
    0.125
    """
    sums = np.array(list(product((-1, 1), repeat=len(differences)))) @ differences.to_numpy()
    # Rounding does not decide between equal sums.
    return float((np.abs(sums) >= abs(differences.sum()) * (1 - 1e-12)).mean())


def compare_shares(a: pd.Series, b: pd.Series | float) -> Comparison | None:
    """Compare percentages of yes (100) and no (0) by Fisher's test and Newcombe's interval; with a number by Jeffreys'.

    >>> difference = compare_shares(pd.Series([100.0] * 9 + [0.0]), pd.Series([0.0] * 10))
    >>> difference.effect, round(difference.p, 4)
    (90.0, 0.0001)
    """
    if any(not len(side) or side.isna().any() for side in (a, b) if isinstance(side, pd.Series)):
        return None
    yes, n = int((a > 0).sum()), len(a)
    if not isinstance(b, pd.Series):
        share = scipy.stats.beta(yes + 0.5, n - yes + 0.5, -b, 100)  # in per cent, less the number
        p = 2 * min(share.cdf(0), share.sf(0))
        return Comparison(100 * yes / n - b, float(p), n, lambda sure: _ends(share.interval(sure)))
    other, m = int((b > 0).sum()), len(b)
    p = float(scipy.stats.fisher_exact([[yes, n - yes], [other, m - other]]).pvalue)

    def newcombe(sure: float) -> tuple[float, float]:
        (low1, high1), (low2, high2) = (
            scipy.stats.binomtest(k, of).proportion_ci(sure, "wilson") for k, of in ((yes, n), (other, m))
        )
        one, two = yes / n, other / m
        low = 100 * (one - two - math.hypot(one - low1, high2 - two))
        high = 100 * (one - two + math.hypot(high1 - one, two - low2))
        return (low, high) if p < 1 - sure else (min(low, 0.0), max(high, 0.0))

    return Comparison(100 * (yes / n - other / m), p, n + m, newcombe)


def bootstrap(statistic: Callable[[np.ndarray], np.ndarray], n: int) -> Comparison:
    """A statistic of repetitions 0 to n-1, given as places (draws, n): its percentile interval under resampling."""
    effect, drawn = (
        statistic(places)
        for places in (np.arange(n)[None], np.random.default_rng(0).integers(0, n, (DRAWS, n)))
    )
    if not np.isfinite(drawn).all():
        raise ValueError("a statistic that is bootstrapped must be a number for every sample")
    p = min(1.0, 2 * min(float((drawn <= 0).mean()), float((drawn >= 0).mean())))
    return Comparison(
        float(effect[0]),
        max(p, 1 / DRAWS),
        n,
        lambda sure: _ends(np.quantile(drawn, [(1 - sure) / 2, (1 + sure) / 2])),
    )


def _ends(ends: Any) -> tuple[float, float]:
    low, high = ends
    return float(low), float(high)


@dataclass(frozen=True)
class Quantity:
    """What is computed from cells.

    Args:
        label: what it is, in words.
        cells: what it is computed from.
        function: of their series by repetition, in this order, to a series, or to a `Comparison`.
        of: the cell some of whose repetitions it takes: what was published for the cell is compared with them.
    """

    label: str
    cells: Sequence[Cell]
    function: Callable[..., Any]
    of: Cell | None = None


@dataclass(frozen=True)
class Contrast:
    """A is lower or higher than B, not worse by more than a margin, within a margin of it, equal to it, or at most it.

    Args:
        a: a cell, or what is computed from cells.
        b: the same, or a number.
        relation: what is claimed.
        margin: of "not worse" and "near".
        paired: whether to compare repetition by repetition; by default as the study says.
    """

    a: Cell | Quantity
    b: Cell | Quantity | float
    relation: Relation
    margin: float = 0.0
    paired: bool | None = None

    @property
    def sign(self) -> int:
        """1 if a higher value is claimed, -1 if a lower one is."""
        return 1 if self.relation == "higher" else -1

    @property
    def label(self) -> str:
        """What is compared, in words."""
        a, b = self.a, self.b
        if isinstance(a, Cell) and isinstance(b, Cell) and a.row == b.row:
            return f"{a.row}: {a.column} minus {b.column}"
        return ", ".join(filter(None, self.place))

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands in a table of contrasts: its row, and its column if its sides share one."""
        a, b = self.a, self.b
        if isinstance(a, Cell) and isinstance(b, Cell):
            if a.row == b.row:
                return f"{a.column} minus {b.column}", a.row
            if a.column == b.column:
                return f"{a.row} minus {b.row}", a.column
            return f"{a.row}, {a.column}, minus {b.row}, {b.column}", ""
        if isinstance(b, float | int) and (not b or self.relation == "at most"):
            return (a.row, a.column) if isinstance(a, Cell) else (a.label, "")
        return f"{_label(a)} minus {_label(b)}", ""

    def cells(self) -> list[Cell]:
        """Every cell behind it."""
        sides = (side for side in (self.a, self.b) if not isinstance(side, float | int))
        return [cell for side in sides for cell in (side.cells if isinstance(side, Quantity) else [side])]


def _label(side: Cell | Quantity | float) -> str:
    if isinstance(side, Quantity):
        return side.label
    return f"{side.row}, {side.column}" if isinstance(side, Cell) else f"{side:g}"


def _names(names: Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def contrasts(
    relation: Relation, rows: Sequence[str], than: Sequence[str] | float, columns: Sequence[str], **more: Any
) -> list[Contrast]:
    """Rows against other rows, or against a number, in each of these columns."""
    others = [float(than)] if isinstance(than, int | float) else _names(than)
    return [
        Contrast(Cell(row, column), other if isinstance(other, float) else Cell(other, column), relation, **more)
        for row in _names(rows) for column in _names(columns) for other in others
    ]  # fmt: skip


def lower(
    rows: Sequence[str], than: Sequence[str] | float, columns: Sequence[str], *, paired: bool | None = None
) -> list[Contrast]:
    """Rows that are lower than others, or than a number, in each of these columns.

    >>> [contrast.label for contrast in lower("GmP", ["SP", "WN"], "Boston")]
    ['GmP minus SP, Boston', 'GmP minus WN, Boston']
    """
    return contrasts("lower", rows, than, columns, paired=paired)


def higher(
    rows: Sequence[str], than: Sequence[str] | float, columns: Sequence[str], *, paired: bool | None = None
) -> list[Contrast]:
    """Rows that are higher than others, or than a number, in each of these columns."""
    return contrasts("higher", rows, than, columns, paired=paired)


def not_worse(
    rows: Sequence[str], than: Sequence[str] | float, columns: Sequence[str], margin: float
) -> list[Contrast]:
    """Rows that are worse than others by less than a margin, in each of these columns."""
    return contrasts("not worse", rows, than, columns, margin=margin)


def near(rows: Sequence[str], value: float, columns: Sequence[str], margin: float) -> list[Contrast]:
    """Cells with a mean within a margin of a number: the interval lies inside it."""
    return contrasts("near", rows, value, columns, margin=margin)


def equal(rows: Sequence[str], value: float, columns: Sequence[str]) -> list[Contrast]:
    """Cells that equal a number in the digits that their column shows, for counts."""
    return contrasts("equal", rows, value, columns)


def at_most(rows: Sequence[str], value: float, columns: Sequence[str]) -> list[Contrast]:
    """Cells in which no repetition is above a number: bounds that hold for certain, not on average."""
    return contrasts("at most", rows, value, columns)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, or of ours, and the contrasts that decide it.

    Args:
        where: in the paper: "Table 1".
        says: the claim, in a sentence.
        contrasts: what it predicts.
        kind: "experiment"; or "mathematics", a theorem or a count; or "construction", what follows from how something
            is built, whatever the data.
        stated: the date on which it was stated, if that was with data in view.
        scales: the scales at which it can be answered; by default all.
    """

    where: str
    says: str
    contrasts: Sequence[Contrast] = ()
    kind: Literal["experiment", "mathematics", "construction"] = "experiment"
    stated: str = ""
    scales: Sequence[str] = ()

    def cells(self) -> list[Cell]:
        """Every cell behind it."""
        return [cell for contrast in self.contrasts for cell in contrast.cells()]

    def within(self, cells: Collection[tuple[str, str]]) -> "Claim":
        """The claim about these cells alone: a smaller scale may lack rows and columns."""
        kept = [each for each in self.contrasts if all(cell[:2] in cells for cell in each.cells())]
        return replace(self, contrasts=kept)


@dataclass(frozen=True)
class Statement:
    """A theorem, definition or count of a paper, which tests check.

    Args:
        where: in the paper: "Theorem 2.1".
        says: the statement, in a sentence.
        tests: file::function, below tests/.
        holds: False if the tests show that it does not hold as stated.
    """

    where: str
    says: str
    tests: Sequence[str] = ()
    holds: bool = True


@dataclass(frozen=True)
class Verdict:
    """A contrast, its comparison (None if there is too little to compare), and the outcome.

    Args:
        contrast: what was compared.
        comparison: what was found.
        outcome: one of five words.
        published: the published effect, taken as the same share of the error here.
        level: of the interval.
    """

    contrast: Contrast
    comparison: Comparison | None
    outcome: Outcome
    published: float | None = None
    level: float = LEVEL

    def __str__(self) -> str:
        if self.comparison is None:
            why = "too few values to compare, a repetition that only one side has, or two precisions"
            return f"{self.contrast.label}: {why}"
        if not self.comparison.spread:
            return (
                f"{self.contrast.label}: {self.effect} in all {self.comparison.n} repetitions: {self.outcome}"
            )
        exact = "" if self.comparison.exact is None else f", exact p = {self.comparison.exact:.2g}"
        theirs = "" if self.published is None else f", published {number(self.published)}"
        return (
            f"{self.contrast.label}: {self.effect}{self.sure}, p = {self.comparison.p:.2g}{exact}{theirs}: "
            f"{self.outcome}"
        )

    @property
    def effect(self) -> str:
        """The effect and its interval, "-0.250 [-0.426, -0.0738]"; the effect alone if all repetitions agree."""
        if self.comparison is None:
            return "not comparable"
        low, high = map(number, self.comparison.interval(1 - self.level))
        return number(self.comparison.effect) + (f" [{low}, {high}]" if self.comparison.spread else "")

    @property
    def sure(self) -> str:
        """The confidence of the interval, if it is not the usual one."""
        return "" if self.level == LEVEL else f" ({100 * (1 - self.level):.3g}%)"


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
    compared = [
        (contrast, _compared(results, contrast), _published(results, contrast))
        for contrast in claim.contrasts
    ]
    verdicts = [_decided(*each, LEVEL) for each in compared]
    if {verdict.outcome for verdict in verdicts} in ({"confirmed"}, {"reversed"}):
        return verdicts
    tested = sum(
        verdict.comparison is not None and verdict.contrast.relation not in ("equal", "at most")
        for verdict in verdicts
    )
    return [_decided(*each, LEVEL / max(1, tested)) for each in compared]


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
    if not low <= high:
        raise ValueError(f"[{low}, {high}] is no interval: what is not a number cannot be judged")
    if low > 0 or high < 0:
        return "confirmed" if low > 0 else "reversed"
    if published is None:
        return "no detectable difference"
    return "inconclusive" if low <= published <= high else "absent"


def _decided(
    contrast: Contrast, comparison: Comparison | None, published: float | None, level: float
) -> Verdict:
    verdict = Verdict(contrast, comparison, "inconclusive", published, level)
    if comparison is None:
        return verdict
    low, high = comparison.interval(1 - level)
    if contrast.relation in ("equal", "at most"):
        holds = comparison.effect <= 0 if contrast.relation == "at most" else comparison.effect == 0
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


def _values(results: Results, side: Cell | Quantity | float) -> Any:
    if isinstance(side, Quantity):
        return side.function(*(results[cell] for cell in side.cells))
    return results[side] if isinstance(side, Cell) else float(side)


def _compared(results: Results, contrast: Contrast) -> Comparison | None:
    if len({arithmetic(run) for cell in contrast.cells() for run in results.behind(*cell[:2])}) > 1:
        return None  # what differs could be rounding
    a, b = _values(results, contrast.a), _values(results, contrast.b)
    if a is None or isinstance(a, Comparison):
        return a
    if contrast.relation in ("equal", "at most"):
        return _exactly(results, contrast, a, b)
    columns = results.study.columns
    if isinstance(contrast.a, Cell) and columns[contrast.a.column].share and isinstance(b, pd.Series):
        return compare_shares(a, b)
    usual = results.study.paired if contrast.paired is None else contrast.paired
    paired = isinstance(b, pd.Series) and usual
    if paired and set(a.index) != set(b.index):
        return None  # a repetition diverged or has not run: the rest would not be a fair sample
    return compare(a, b, paired)


def _exactly(results: Results, contrast: Contrast, a: pd.Series, b: float) -> Comparison | None:
    """A count or a bound: no interval, the values themselves decide."""
    if not len(a) or not np.isfinite(a).all():
        return None
    largest, digits = contrast.relation == "at most", results.study.columns[contrast.cells()[0].column].digits
    effect = float((a.max() if largest else round(a.mean(), digits)) - b)
    return Comparison(effect, 0.0, len(a), lambda sure: (effect, effect), spread=False)


def cell_of(side: Cell | Quantity | float) -> Cell | None:
    """The cell that a side is, or some of whose repetitions a quantity takes."""
    return side.of if isinstance(side, Quantity) else side if isinstance(side, Cell) else None


def _published(results: Results, contrast: Contrast) -> float | None:
    """The published effect; below the paper's scale the same share of B's error as there."""
    ours, theirs = cell_of(contrast.a), cell_of(contrast.b)
    if ours is None or theirs is None:
        return None
    a, b = results.published(ours)[0], results.published(theirs)[0]
    if a is None or b is None:
        return None
    perfect, values = results.study.columns[theirs.column].perfect, results[theirs]
    distance = float(values.mean()) - perfect if len(values) else 0.0
    if results.scale == "full" or not (b - perfect) or not distance:
        return a - b
    return (a - b) * abs(distance) / abs(b - perfect)
