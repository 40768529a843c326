"""Intervals of rates, samples that are large enough, cosines of random filters, and squared norms in blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

QUANTILE = 1.959963984540054  # of the normal distribution, for 95% intervals
MARGIN = 0.1  # we only say "never" if the interval of a rate of 0 ends below this
NEEDED = math.ceil(QUANTILE**2 * (1 / MARGIN - 1))  # 35 inputs: see `interval` at a share of 0
BLOCK = 1 << 17  # values per thread at a time: they and their squares stay in a core's own cache
LARGE_BLOCK = 1 << 22  # on other devices than a CPU, where every block costs time of its own


def interval(share: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The 95% Wilson interval of each rate observed as a ``share`` of ``count`` independent inputs.

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


def cosine_cdf(cosine: Tensor, dimension: int) -> Tensor:
    r"""The probability P(c <= ``cosine``) for the cosine c of two random directions in R^n, accurate in the far tail.

    (1 + c)/2 follows Beta(a, a) with a = (n - 1)/2. For c <= 0 its distribution function is the series
    x^a (1 - x)^a / (a B(a, a)) * sum_k x^k (2a)_k / (a + 1)_k at x = (1 + c)/2, whose terms are all positive:
    nothing cancels, however small the result. For c > 0, use symmetry.

    Args:
        cosine: Values in [-1, 1], of any shape.
        dimension: n >= 1, the number of weights per filter.

    >>> cosine_cdf(torch.tensor([-1.0, -0.5, 0.0, 1.0]), 3)     # in R^3 the cosine is uniform
    tensor([0.0000, 0.2500, 0.5000, 1.0000], dtype=torch.float64)
    """
    if dimension < 1:
        raise ValueError(f"dimension, the number of weights per filter, must be at least 1; got {dimension}")
    c = cosine.double().clamp(-1, 1)
    if dimension == 1:  # only two directions: c is -1 or 1 with equal probability
        return torch.where(c < 1, 0.5, 1.0).double()
    a = (dimension - 1) / 2
    log_front = a * torch.log1p(-c.square()) - a * math.log(4) - _log_beta(a) - math.log(a)
    lower = (log_front.exp() * _series(a, (1 - c.abs()) / 2)).clamp(0, 0.5)
    return torch.where(c <= 0, lower, 1 - lower)


def extreme_p_value(cosine: Tensor, dimension: int, others: int) -> Tensor:
    """The probability that min_j <phi_i, phi_j> <= ``cosine`` for a random filter among ``others`` other random ones.

    That is 1 - (1 - F)^others with F from `cosine_cdf`: given phi_i, its cosines with the others are independent.

    >>> extreme_p_value(torch.tensor([-0.5]), dimension=3, others=2)    # 1 - 0.75^2
    tensor([0.4375], dtype=torch.float64)
    """
    return -torch.expm1(others * torch.log1p(-cosine_cdf(cosine, dimension)))


def discoveries(p_values: Tensor, level: float) -> Tensor:
    """The mask of hypotheses rejected at a false discovery rate of ``level`` (Benjamini-Hochberg).

    >>> discoveries(torch.tensor([0.001, 0.2, 0.011, 0.9]), level=0.05)
    tensor([ True, False,  True, False])
    """
    ordered, order = p_values.sort()
    ranks = torch.arange(1, len(ordered) + 1, dtype=ordered.dtype)
    passing = (ordered <= level * ranks / max(len(ordered), 1)).nonzero()
    rejected = torch.zeros(len(ordered), dtype=torch.bool)
    rejected[order[: int(passing.max()) + 1 if len(passing) else 0]] = True
    return rejected


def _log_beta(a: float) -> float:
    return 2 * math.lgamma(a) - math.lgamma(2 * a)


def _series(a: float, x: Tensor) -> Tensor:
    """The sum over k of x^k (2a)_k / (a + 1)_k for 0 <= x <= 1/2."""
    total = term = torch.ones_like(x)
    k = 0
    while bool((term > 1e-17 * total).any()):
        term = term * x * ((2 * a + k) / (a + 1 + k))
        total = total + term
        k += 1
    return total


def squared_norms(x: Tensor, dim: int) -> Tensor:
    """The squared norms along ``dim``, which is not the first: in float32, or in float64 if ``x`` is.

    Args:
        x: (N, ...).
        dim: The dimension of each vector's entries.

    >>> squared_norms(torch.tensor([[3.0, 4.0], [1.0, 0.0]]), dim=1)
    tensor([25.,  1.])
    """
    size = BLOCK * threads() if x.device.type == "cpu" else LARGE_BLOCK
    rows = max(1, size * len(x) // max(x.numel(), 1))
    return torch.cat([wide(block).square().sum(dim) for block in x.split(rows)])


def threads() -> int:
    """Number of threads that share a block; at most 16, so that float32 counts the values in it exactly."""
    return min(torch.get_num_threads(), 16)


def wide(x: Tensor) -> Tensor:
    """``x`` in float32, or in float64 if it is."""
    return x if x.dtype == torch.float64 else x.float()
