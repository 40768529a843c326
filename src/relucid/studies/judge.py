"""Whether a table shows what a claim predicts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from relucid.studies.compare import (
    HOLDS,
    LEVEL,
    REVERSED,
    UNABLE,
    UNTOLD,
    Comparison,
    Outcome,
    compare,
    compare_shares,
    decide,
    holm,
    number,
    one_sided,
)
from relucid.studies.expect import Claim, Expected, Place, Quantity, Samples, Statistic

if TYPE_CHECKING:
    from relucid.studies.table import Table


@dataclass(frozen=True)
class Judged:
    """A comparison and its outcome.

    Args:
        expected: what was compared.
        found: the comparison, None if there are too few values.
        p: adjusted for the comparisons of the same claim (Holm).
        outcome: in words.
        published: the published effect.
        level: B's mean here and in the paper; None at the paper's own scale. At other scales, effects are compared as
            shares of it.
    """

    expected: Expected
    found: Comparison | None
    p: float | None
    outcome: Outcome
    published: float | None = None
    level: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.expected.label}: too few values to compare"
        parts = [f"{number(self.found.effect)} [{number(self.found.low)}, {number(self.found.high)}]"]
        if self.p is not None and self.expected.relation != "equal":
            parts.append(f"p = {self.p:.2g}")
        if self.outcome in (UNTOLD, UNABLE):
            parts.append(f"detectable {self._sized(self.found.detectable, 0)}")
        if self.published is not None:
            parts.append(f"published {self._sized(self.published, 1)}")
        return f"{self.expected.label}: {', '.join(parts)}: {self.outcome}"

    def _sized(self, value: float, whose: Literal[0, 1]) -> str:
        """Format a difference; if levels differ, also as a share of B's level here (0) or in the paper (1)."""
        if self.level is None or self.published is None or self.outcome not in (UNTOLD, UNABLE):
            return number(value)
        return f"{number(value)} ({abs(value / self.level[whose]):.1%})"


def judge(table: "Table", claim: Claim) -> list[Judged]:
    """Judge every comparison of a claim, allowing for their number."""
    found = [_compared(table, each) for each in claim.comparisons()]
    told = [place for place, each in enumerate(found) if each.p is not None]
    adjusted = dict(zip(told, holm([found[place].p or 0.0 for place in told]), strict=True))
    return [
        replace(each, p=adjusted[place], outcome=_outcome(table, each, adjusted[place]))
        if place in adjusted
        else each
        for place, each in enumerate(found)
    ]


def _compared(table: "Table", expected: Expected) -> Judged:
    """Make a comparison, not yet adjusted for the others."""
    if expected.relation == "equal":
        return _exact(table, expected)
    found = _comparison(table, expected)
    published, level = _published(table, expected), _level(table, expected)
    if found is None:
        return Judged(expected, None, None, UNABLE, published, level)
    p = found.p
    if expected.relation == "not worse":
        p = min(1.0, 2 * min(one_sided(found, expected.margin)))
    elif expected.relation == "near":
        p = max(one_sided(found, expected.margin)[0], one_sided(found, -expected.margin)[1])
    return Judged(expected, found, p, UNTOLD, published, level)


def _comparison(table: "Table", expected: Expected) -> Comparison | None:
    a, b = expected.a, expected.b
    if isinstance(a, Statistic):
        return a.compare(table)
    ours = _samples(table, a)
    if isinstance(b, float):
        return compare([*ours.values()], b)
    theirs = _samples(table, b)
    if isinstance(a, Place) and table.study.columns[a.column].summary == "share":
        return compare_shares([*ours.values()], [*theirs.values()])
    paired = table.study.paired if expected.paired is None else expected.paired
    if not paired:
        return compare([*ours.values()], [*theirs.values()])
    if ours.keys() != theirs.keys():
        return None  # a repetition diverged or has not run: the rest would not be a fair sample
    return compare([*ours.values()], [theirs[each] for each in ours], paired=True)


def _samples(table: "Table", side: Place | Quantity) -> Samples:
    return table.cells[side.row, side.column].samples if isinstance(side, Place) else side.sample(table)


def _exact(table: "Table", expected: Expected) -> Judged:
    """Compare a count with a number, in the digits that are shown."""
    assert isinstance(expected.a, Place)
    assert isinstance(expected.b, float)
    cell = table.cells[expected.a.row, expected.a.column]
    if cell.mean is None:
        return Judged(expected, None, None, UNABLE)
    effect = round(cell.mean, table.study.columns[expected.a.column].digits) - expected.b
    found = Comparison(effect, effect, effect, float(effect == 0), len(cell.values), 0.0, 0.0, 0.0, "exact")
    return Judged(expected, found, None, HOLDS if effect == 0 else REVERSED)


def _outcome(table: "Table", judged: Judged, p: float) -> Outcome:
    assert judged.found is not None
    found, relation = judged.found, judged.expected.relation
    allowed = wanted(judged)
    if table.scale != "full" and allowed is None and p >= LEVEL:
        allowed = 0.0  # nothing says how large an effect this smaller scale should have found
    if relation == "near":
        far = min(abs(found.low), abs(found.high)) > judged.expected.margin and found.low * found.high > 0
        return HOLDS if p < LEVEL else REVERSED if far else UNTOLD
    if relation == "not worse":
        if p >= LEVEL:
            return UNTOLD if found.detectable <= judged.expected.margin else UNABLE
        return HOLDS if found.effect < judged.expected.margin else REVERSED
    return decide(found, p, expected=1 if relation == "higher" else -1, allowed=allowed)


def wanted(judged: Judged) -> float | None:
    """The size of the published effect; at another scale, the same share of this scale's level."""
    if judged.published is None:
        return None
    if judged.level is None:
        return abs(judged.published)
    return abs(judged.published) * judged.level[0] / judged.level[1]


def _published(table: "Table", expected: Expected) -> float | None:
    """The published effect; None unless both sides were published."""
    if not isinstance(expected.a, Place) or not isinstance(expected.b, Place):
        return None
    a, b = (table.cells[each.row, each.column].published[0] for each in (expected.a, expected.b))
    return None if a is None or b is None else a - b


def _level(table: "Table", expected: Expected) -> tuple[float, float] | None:
    """B's mean here and in the paper; None at the paper's own scale."""
    if not isinstance(expected.b, Place) or table.scale == "full":
        return None
    cell = table.cells[expected.b.row, expected.b.column]
    here, there = cell.mean, cell.published[0]
    return (here, there) if here and there else None
