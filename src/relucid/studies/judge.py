"""Whether a table shows what a claim predicts."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from relucid.studies.compare import (
    HOLDS,
    LEVEL,
    OPEN,
    REVERSED,
    UNABLE,
    UNTOLD,
    Comparison,
    Outcome,
    chance,
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

UNDECIDED = (UNTOLD, OPEN, UNABLE)


@dataclass(frozen=True)
class Judged:
    """A comparison and its outcome.

    Args:
        expected: what was compared.
        found: the comparison, None if there are too few values.
        p: adjusted for the comparisons of the same claim (Holm); None if nothing is left to chance.
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
        if self.expected.relation == "at most":
            assert isinstance(self.expected.b, float)
            largest, allowed = number(self.found.effect + self.expected.b), number(self.expected.b)
            return f"{self.expected.label}: at most {largest}, allowed {allowed}: {self.outcome}"
        if self.p is None:
            return f"{self.expected.label}: {number(self.found.effect)}: {self.outcome}"
        parts = [self.found.interval, chance(self.p) + (" (Holm)" if self.found.level < LEVEL else "")]
        if self.outcome in UNDECIDED:
            able = math.isfinite(self.found.detectable)
            parts.append(
                f"detectable {self._sized(self.found.detectable, 0)}" if able else "nothing detectable"
            )
        if self.published is not None:
            parts.append(f"published {self._sized(self.published, 1)}")
        if self.outcome == UNABLE and self.p < LEVEL:
            parts.append("the other way round beyond chance")
        return f"{self.expected.label}: {', '.join(parts)}: {self.outcome}"

    def _sized(self, value: float, whose: Literal[0, 1]) -> str:
        """Format a difference; if levels differ, also as a share of B's level here (0) or in the paper (1)."""
        if self.level is None or self.published is None or self.outcome not in UNDECIDED:
            return number(value)
        return f"{number(value)} ({abs(value / self.level[whose]):.1%})"


def judge(table: "Table", claim: Claim) -> list[Judged]:
    """Judge every comparison of a claim, allowing for their number."""
    made = [_compared(table, each) for each in claim.comparisons()]
    told = [place for place, each in enumerate(made) if each.p is not None]
    adjusted = dict(zip(told, holm([made[place].p or 0.0 for place in told]), strict=True))
    left = sum(p >= LEVEL for p in adjusted.values())
    # Once the others have been told, Holm's method divides the level by the number of those that are left.
    return [
        _settled(each, p, LEVEL / (left if p >= LEVEL else len(told)))
        if (p := adjusted.get(place)) is not None
        else each
        for place, each in enumerate(made)
    ]


def _settled(judged: Judged, p: float, level: float) -> Judged:
    """The comparison with its adjusted p-value, what was detectable at its level, and the outcome."""
    assert judged.found is not None
    judged = replace(judged, found=judged.found.at(level), p=p)
    return replace(judged, outcome=_outcome(judged))


def _compared(table: "Table", expected: Expected) -> Judged:
    """Make a comparison, not yet adjusted for the others."""
    if expected.relation in ("equal", "at most"):
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
    """Compare a count with a number, in the digits that are shown, or the largest value with what it may be."""
    assert isinstance(expected.a, Place)
    assert isinstance(expected.b, float)
    cell = table.cells[expected.a.row, expected.a.column]
    if cell.mean is None:
        return Judged(expected, None, None, UNABLE)
    if expected.relation == "at most":
        effect = max(cell.samples.values()) - expected.b
        holds = effect <= 0
    else:
        effect = round(cell.mean, table.study.columns[expected.a.column].digits) - expected.b
        holds = effect == 0
    found = Comparison(effect, effect, effect, float(holds), len(cell.values), 0.0, 0.0, 0.0, "exact")
    return Judged(expected, found, None, HOLDS if holds else REVERSED)


def _outcome(judged: Judged) -> Outcome:
    assert judged.found is not None
    assert judged.p is not None
    found, p, relation = judged.found, judged.p, judged.expected.relation
    if relation == "near":
        far = min(abs(found.low), abs(found.high)) > judged.expected.margin and found.low * found.high > 0
        return HOLDS if p < LEVEL else REVERSED if far else UNTOLD
    if relation == "not worse":
        if p >= LEVEL:
            return UNTOLD if found.detectable <= judged.expected.margin else UNABLE
        return HOLDS if found.effect < judged.expected.margin else REVERSED
    return decide(found, p, expected=1 if relation == "higher" else -1, allowed=wanted(judged))


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
