"""Sentences about the differences between the rows of a table."""

import math
from dataclasses import dataclass

from relucid.studies.table import LEVEL, Cell, Table, p_value


@dataclass(frozen=True)
class Difference:
    """The mean of one cell less that of another, its standard error, and whether it is more than chance (5%)."""

    mean: float
    error: float | None
    significant: bool

    def __str__(self) -> str:
        known = "" if self.error is None else f" ± {self.error:.2f}"
        return f"{self.mean:+.2f}{known}"


def difference(one: Cell, other: Cell) -> Difference:
    """One cell less another, by Welch's test; of single values nothing is significant.

    >>> print(difference(Cell((1.0, 2.0), 2, {}), Cell((5.0, 6.0), 2, {})))
    -4.00 ± 0.71
    """
    mean = (one.mean or 0.0) - (other.mean or 0.0)
    if one.figure is None or other.figure is None:
        return Difference(mean, None, False)
    error = math.hypot(one.figure[1], other.figure[1])
    return Difference(mean, error, p_value(one.figure, other.figure) < LEVEL)


def differences(table: Table, pairs: list[tuple[str, str]], columns: list[str]) -> str:
    """The differences of pairs of rows in some columns, and for how many the first row is better or worse."""
    found = {
        (row, other, column): difference(table.cells[row, column], table.cells[other, column])
        for row, other in pairs
        for column in columns
    }
    listed = "; ".join(
        f"{row} less {other}: " + ", ".join(f"{found[row, other, column]} ({column})" for column in columns)
        for row, other in pairs
    )
    lower = sum(each.significant and each.mean < 0 for each in found.values())
    higher = sum(each.significant and each.mean > 0 for each in found.values())
    return (
        f"{listed}. Of these {len(found)} differences {lower} are significantly below 0, {higher} above, and "
        f"{len(found) - lower - higher} are within what chance explains (Welch's test, 5%)."
    )
