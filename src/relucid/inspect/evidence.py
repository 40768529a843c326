"""How much a sample tells: its size, and confidence intervals of rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

QUANTILE = 1.959963984540054  # of the normal distribution, for 95% intervals
MARGIN = 0.1  # we only say "never" if the interval of a rate of 0 ends below this
NEEDED = math.ceil(QUANTILE**2 * (1 / MARGIN - 1))  # 35 inputs: see `interval` at a share of 0


def interval(share: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The 95% Wilson interval of each rate observed as a ``share`` of ``count`` independent inputs.

    >>> import torch
    >>> low, high = interval(torch.tensor([0.0, 0.5]), 64)
    >>> low, high
    (tensor([0.0000, 0.3810], dtype=torch.float64), tensor([0.0566, 0.6190], dtype=torch.float64))
    """
    p, square = share.double(), QUANTILE**2
    centre = (p + square / (2 * count)) / (1 + square / count)
    half = QUANTILE * (p * (1 - p) / count + square / (4 * count**2)).sqrt() / (1 + square / count)
    return (centre - half).clamp(0, 1), (centre + half).clamp(0, 1)


@dataclass(frozen=True)
class Sample:
    """The sample that a rate was measured on.

    Neighbouring positions of an image are alike and tell less than as many images, so intervals count inputs.
    """

    inputs: int  #: images, rows, sequences
    places: int  #: positions of all inputs together; equal to ``inputs`` if each has one
    noun: str = "inputs"

    @property
    def enough(self) -> bool:
        """Whether what was not seen may be called "never": the interval of its rate ends below 10%."""
        return self.inputs >= NEEDED

    def __str__(self) -> str:
        """The size of the sample, as in "64 images x 36 positions".

        >>> print(Sample(64, 2304, "images"), "/", Sample(64, 64), "/", Sample(3, 10, "images"))
        64 images x 36 positions / 64 inputs / 3 images, 10 positions in all
        """
        per_input, rest = divmod(self.places, max(self.inputs, 1))
        noun = self.noun if self.inputs != 1 else self.noun.removesuffix("s")
        if rest:
            return f"{self.inputs:,} {noun}, {self.places:,} positions in all"
        return f"{self.inputs:,} {noun}" + (f" x {per_input:,} positions" if per_input > 1 else "")
