"""Effects on one scale: comparisons of cells in per cent of the error that they are compared with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from relucid.studies.expect import cell_of
from relucid.studies.judge import Judged
from relucid.studies.ledger import Entry

T = TypeVar("T")


@dataclass(frozen=True)
class Effect:
    """A comparison in per cent of B's error; positive is what was claimed.

    Args:
        judged: the comparison.
        size: A less B, or B less A where A was claimed to be lower.
        low: lower end of its interval.
        high: upper end.
        published: the paper's, None where it has no figures.
    """

    judged: Judged
    size: float
    low: float
    high: float
    published: float | None


def effects(entry: Entry) -> list[Effect]:
    """The comparisons of a claim for which B is of a cell with an error that is above zero beyond its noise."""
    return [effect for judged in entry.judged if (effect := _effect(entry, judged))]


def headline(entry: Entry) -> Effect | None:
    """The effect that stands for a claim: the median, among those with a published one if there are any."""
    found = effects(entry)
    compared = [effect for effect in found if effect.published is not None] or found
    return median(compared, lambda effect: effect.size) if compared else None


def median(found: Sequence[T], size: Callable[[T], float]) -> T:
    """The one in the middle by its size; of an even number the smaller of the two."""
    return sorted(found, key=size)[(len(found) - 1) // 2]


def _effect(entry: Entry, judged: Judged) -> Effect | None:
    found, b = judged.found, cell_of(judged.expected.b)
    if found is None or entry.table is None or b is None:
        return None
    cell, column = entry.table.cells[b.row, b.column], entry.table.study.columns[b.column]
    perfect = column.perfect
    if column.best is None or cell.mean is None or abs(cell.mean - perfect) <= 2 * (cell.error or 0.0):
        return None
    share = 100 * judged.sign / abs(cell.mean - perfect)
    low, high = sorted((share * found.low, share * found.high))
    there = cell.published[0]
    published = None
    if judged.published is not None and there is not None and there != perfect:
        published = 100 * judged.sign * judged.published / abs(there - perfect)
    return Effect(judged, share * found.effect, low, high, published)
