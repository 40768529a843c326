"""How many repetitions a study needs: what its comparisons would detect, by the noise of a pilot."""

from collections.abc import Iterator
from dataclasses import dataclass

from relucid.studies.compare import number
from relucid.studies.expect import Judged, wanted
from relucid.studies.table import Table

MOST = 1000  # repetitions to consider


@dataclass(frozen=True)
class Planned:
    """A comparison and the difference that it would detect.

    Args:
        where: the claim it belongs to.
        judged: the comparison, as the pilot has it.
        detectable: the smallest difference that the planned repetitions would find at 5% with 80% power.
        wanted: the published effect, scaled to the level here; None if nothing was published.
        needed: repetitions that would detect it; None where nothing is wanted, or more than `MOST` would be needed.
    """

    where: str
    judged: Judged
    detectable: float
    wanted: float | None
    needed: int | None

    def __str__(self) -> str:
        text = f"{self.where}: {self.judged.expected.label}: detects {number(self.detectable)}"
        if self.wanted is None:
            return text
        need = f"more than {MOST}" if self.needed is None else f"{self.needed}"
        return f"{text}; the published effect is {number(self.wanted)} here and needs {need}"


def power(table: Table, repetitions: int) -> Iterator[Planned]:
    """What each comparison would detect with so many repetitions, judging by a pilot of two or more."""
    for where, judged in table.judged.items():
        for each in judged:
            if each.found is not None and each.found.error > 0:
                aim = wanted(each)
                yield Planned(where, each, each.found.detectable_with(repetitions), aim, _needed(each, aim))


def _needed(judged: Judged, aim: float | None) -> int | None:
    """The fewest repetitions that detect a difference, by bisection: more of them always detect less."""
    assert judged.found is not None
    if not aim or judged.found.detectable_with(MOST) > aim:
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if judged.found.detectable_with(middle) <= aim else (middle, high)
    return high
