"""Whether a table shows what a claim predicts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from relucid.studies.compare import (
    HOLDS,
    LEVEL,
    NO_DIFFERENCE,
    REVERSED,
    UNDECIDED,
    Comparison,
    Verdict,
    compare,
    compare_shares,
    decide,
    number,
)
from relucid.studies.expect import Claim, Expected, Place, Quantity, Samples, Statistic, cell_of

if TYPE_CHECKING:
    from relucid.studies.table import Table

CERTAIN = ("equal", "at most")  # relations that leave nothing to chance
WITHIN = ("near", "not worse")  # relations with a margin


@dataclass(frozen=True)
class Judged:
    """A comparison and its outcome.

    Args:
        expected: what was compared.
        found: the comparison, None if there are too few values.
        outcome: in words.
        published: the published effect.
        error_level: the error of B here and in the paper; None at the paper's own scale. At other scales, the published
            effect is taken as the same share of it.
    """

    expected: Expected
    found: Comparison | None
    outcome: Verdict
    published: float | None = None
    error_level: tuple[float, float] | None = None

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance."""
        return self.expected.relation in CERTAIN

    @property
    def scaled(self) -> float | None:
        """The published effect at the error's level here."""
        if self.published is None or self.error_level is None:
            return self.published
        here, there = self.error_level
        return self.published * here / there

    @property
    def sign(self) -> int:
        """1 if a higher value of A is claimed, -1 if a lower one is."""
        return 1 if self.expected.relation == "higher" else -1

    @property
    def claimed(self) -> tuple[float, float]:
        """The interval in the claimed direction, from the margin if there is one: above 0 is what is claimed."""
        assert self.found is not None
        low, high, margin = self.found.low, self.found.high, self.expected.margin
        if self.expected.relation == "near":
            nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
            return margin - max(abs(low), abs(high)), margin - nearest
        ends = (self.sign * low, self.sign * high)
        return min(ends) + margin, max(ends) + margin

    def at(self, level: float) -> "Judged":
        """The comparison judged at a level of significance."""
        if self.certain or self.found is None:
            return self
        judged = replace(self, found=self.found.at(level))
        low, high = judged.claimed
        if self.expected.relation in WITHIN:
            outcome = decide(low, high, None)
            return replace(judged, outcome=UNDECIDED if outcome == NO_DIFFERENCE else outcome)
        return replace(judged, outcome=decide(low, high, self.wanted))

    @property
    def wanted(self) -> float | None:
        """The size of the published effect here; None if none was published in the claimed direction."""
        if self.scaled is None or self.scaled * self.sign <= 0:
            return None
        return abs(self.scaled)

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.expected.label}: too few values to compare, or a run that only one side has"
        if self.expected.relation == "at most":
            assert isinstance(self.expected.b, float)
            largest, allowed = number(self.found.effect + self.expected.b), number(self.expected.b)
            return f"{self.expected.label}: at most {largest}, allowed {allowed}: {self._certainly}"
        if self.certain:
            return f"{self.expected.label}: {number(self.found.effect)}: {self._certainly}"
        interval = self.found.interval
        if self.found.level < LEVEL:
            interval += f" ({self.found.confidence})"
        parts = [interval, self.found.chance]
        if self.expected.margin:
            parts.append(f"margin {number(self.expected.margin)}")
        if self.published is not None and self.scaled is not None:
            here = "" if self.error_level is None else f", {number(self.scaled)} at this error"
            parts.append(f"published {number(self.published)}{here}")
        return f"{self.expected.label}: {', '.join(parts)}: {self.outcome}"

    @property
    def _certainly(self) -> str:
        return "holds" if self.outcome == HOLDS else "does not hold"


def judge(table: "Table", claim: Claim) -> list[Judged]:
    """Judge every comparison of a claim by its interval, at a level that allows for their number.

    The level is 5% divided by the number of comparisons: all intervals are right at once, with 95% probability. That
    all of them hold, or that of all of them the opposite holds, needs no correction: each at 5% is enough, because one
    that fails is enough to refute it.
    """
    made = [_compared(table, each).at(LEVEL) for each in claim.comparisons()]
    if {each.outcome for each in made} in ({HOLDS}, {REVERSED}):
        return made
    tested = sum(each.found is not None and not each.certain for each in made)
    return [each.at(LEVEL / max(1, tested)) for each in made]


def _compared(table: "Table", expected: Expected) -> Judged:
    """Make a comparison, not yet judged."""
    if expected.relation in CERTAIN:
        return _exact(table, expected)
    found = _comparison(table, expected)
    return Judged(expected, found, UNDECIDED, _published(table, expected), _error_level(table, expected))


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
    return table.cells[side].samples if isinstance(side, Place) else side.sample(table)


def _exact(table: "Table", expected: Expected) -> Judged:
    """Compare a count with a number, in the digits that are shown, or the largest value with what it may be."""
    assert isinstance(expected.a, Place)
    assert isinstance(expected.b, float)
    cell = table.cells[expected.a]
    if cell.mean is None:
        return Judged(expected, None, UNDECIDED)
    if expected.relation == "at most":
        effect = max(cell.samples.values()) - expected.b
        holds = effect <= 0
    else:
        effect = round(cell.mean, table.study.columns[expected.a.column].digits) - expected.b
        holds = effect == 0
    found = Comparison(effect, p=0.0, n=len(cell.values), error=0.0)
    return Judged(expected, found, HOLDS if holds else REVERSED)


def _published(table: "Table", expected: Expected) -> float | None:
    """The published effect; None unless both sides were published."""
    ours, theirs = cell_of(expected.a), cell_of(expected.b)
    if ours is None or theirs is None:
        return None
    a, b = (table.cells[each].published[0] for each in (ours, theirs))
    return None if a is None or b is None else a - b


def _error_level(table: "Table", expected: Expected) -> tuple[float, float] | None:
    """B's error here and in the paper; None at the paper's own scale."""
    place = cell_of(expected.b)
    if place is None or table.scale == "full":
        return None
    cell, perfect = table.cells[place], table.study.columns[place.column].perfect
    if cell.mean is None or cell.published[0] is None:
        return None
    here, there = abs(cell.mean - perfect), abs(cell.published[0] - perfect)
    return (here, there) if here and there else None
