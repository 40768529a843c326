"""Differences between cells of a table, in words."""

import math
from dataclasses import dataclass

from relucid.studies.table import LEVEL, Cell, p_value


def mean(cell: Cell) -> float:
    """The mean of a cell that has values."""
    assert cell.mean is not None
    return cell.mean


@dataclass(frozen=True)
class Difference:
    """How much one cell is above another: mean, standard error and the probability of as much by chance.

    Error and probability are None where a cell has a single value.
    """

    mean: float
    error: float | None
    chance: float | None

    def __str__(self) -> str:
        if self.error is None or self.chance is None:
            return f"{self.mean:+.2f} (one value each)"
        return f"{self.mean:+.2f} ± {self.error:.2f} (p = {self.chance:.2g})"

    def judged(self, lower: bool = True) -> str:
        """Whether a claim that the one is lower (or not: higher) holds.

        >>> Difference(-1.0, 0.1, 0.001).judged(), Difference(0.1, 0.4, 0.9).judged()
        ('the claim holds here', 'no more than noise')
        """
        if self.chance is None:
            return "too few runs to tell"
        if self.chance >= LEVEL:
            return "no more than noise"
        return "the claim holds here" if (self.mean < 0) == lower else "the opposite of the claim"


def difference(one: Cell, other: Cell | float) -> Difference:
    """The first less the second, by Welch's test; a number is taken as known.

    >>> cell = Cell((-1.0, -1.5, -2.0), runs=3, states={})
    >>> print(difference(cell, 0.0))
    -1.50 ± 0.29 (p = 0.035)
    """
    known = other if isinstance(other, float) else mean(other)
    figure = (other, 0.0, math.inf) if isinstance(other, float) else other.figure
    apart = mean(one) - known
    if one.figure is None or figure is None:
        return Difference(apart, None, None)
    return Difference(apart, math.hypot(one.figure[1], figure[1]), p_value(one.figure, figure))
