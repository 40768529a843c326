"""The features of one layer on all data that pass: what dead, dormant and saturated units and ranks are computed from.

Every measure is defined once, here, for any activation. A unit is a feature of a row or a channel of a map; a place is
one of its values: a row, a token, a position of an image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucid.inspect._statistics import NEEDED, wide

FLAT = 0.01  # a unit is saturated where its slope is below this
HELD = 0.99  # share of the singular values, or of their squares, that `srank` and `approximate_rank` count
LARGEST = 2048  # channels of a layer whose ranks are computed: their time grows with the cube of that
RANKS = ("effective rank", "stable rank", "srank", "approximate rank")


def effective_rank(singular: Tensor) -> Tensor:
    """The exponential of the entropy of singular values (..., n), scaled to sum to 1 (Roy and Vetterli 2007).

    >>> effective_rank(torch.tensor([2.0, 2.0, 0.0])), effective_rank(torch.tensor([3.0, 0.0, 0.0]))
    (tensor(2.), tensor(1.))
    """
    share = singular / singular.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(share).sum(-1)
    return entropy.exp()


def stable_rank(singular: Tensor) -> Tensor:
    """The sum of squared singular values (..., n) divided by the largest: |F|_F^2 / |F|_2^2.

    >>> stable_rank(torch.tensor([2.0, 2.0, 0.0])), stable_rank(torch.tensor([2.0, 1.0, 0.0]))
    (tensor(2.), tensor(1.2500))
    """
    squares = singular.square()
    return squares.sum(-1) / squares.amax(-1)


def srank(singular: Tensor) -> Tensor:
    """How many of the largest singular values (..., n), in descending order, sum to 99% of all (Kumar et al. 2021).

    Plasticine and loss-of-plasticity call it the stable rank.

    >>> srank(torch.tensor([2.0, 2.0, 0.001])), srank(torch.tensor([1.0, 0.5, 0.25]))
    (tensor(2), tensor(3))
    """
    share = singular.cumsum(-1) / singular.sum(-1, keepdim=True)
    return (share < HELD).sum(-1) + 1


def approximate_rank(singular: Tensor) -> Tensor:
    """How many of the largest singular values (..., n) hold 99% of the sum of squares (Yang et al. 2019).

    >>> approximate_rank(torch.tensor([1.0, 0.5, 0.01]))
    tensor(2)
    """
    return srank(singular.square())


@dataclass
class Features:
    """Sums over the outputs of one layer's units, whose memory does not grow with the data.

    Args:
        channels: Number of outputs per place: the units, then the second phases of those that have two (CReLU).
        doubled: How many have two.

    >>> features = Features(2)
    >>> features.update(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), inputs=2)
    >>> features.dead, features.dormant(0.1), features.activity
    (tensor([False,  True]), tensor([False,  True]), tensor([2., 0.], dtype=torch.float64))
    """

    channels: int
    doubled: int = 0
    inputs: int = 0  #: rows, tokens or images seen; positions of an image tell less than as many images
    places: int = 0  #: rows, tokens or positions seen
    lengths: float = 0.0  #: sum of the norms of the outputs of all places

    def __post_init__(self) -> None:
        zeros = torch.zeros(4, self.channels, dtype=torch.float64)
        self.total, self.size, self.positive, self.flat = zeros
        self.least = torch.full((self.channels,), torch.inf, dtype=torch.float64)
        self.most = -self.least
        wanted = self.channels <= LARGEST
        self.products = torch.zeros(self.channels, self.channels, dtype=torch.float64) if wanted else None

    @property
    def units(self) -> int:
        """Number of units."""
        return self.channels - self.doubled

    def update(self, outputs: Tensor, inputs: int, flat: Tensor | None = None) -> None:
        """Add outputs, and where they are flat as functions of the units' values: both (channels, places)."""
        if not outputs.numel():
            return
        y = wide(outputs)
        low, high = y.aminmax(dim=1)
        self.least = torch.minimum(self.least, low.double().cpu())
        self.most = torch.maximum(self.most, high.double().cpu())
        self.total += y.sum(1, dtype=torch.float64).cpu()
        self.size += y.abs().sum(1, dtype=torch.float64).cpu()
        self.positive += (y > 0).sum(1).cpu()
        if flat is not None:
            self.flat += flat.sum(1).cpu()
        self.lengths += float(y.norm(dim=0).sum(dtype=torch.float64))
        if self.products is not None:
            # In single precision, rounding alone would give every silent channel a singular value of 0.0003 s_1.
            exact = y.double() if y.device.type != "mps" else y.cpu().double()
            self.products += (exact @ exact.T).cpu()
        self.places, self.inputs = self.places + y.shape[1], self.inputs + inputs

    def of_units(self, x: Tensor) -> Tensor:
        """Sums of channels as sums of units, (units,): the phases of a unit are added up."""
        both = x[: self.units].clone()
        both[: self.doubled] += x[self.units :]
        return both

    @property
    def enough(self) -> bool:
        """Whether what was not seen may be called "never"."""
        return self.inputs >= NEEDED

    @property
    def finite(self) -> Tensor:
        """Units whose outputs were all finite, (units,)."""
        return self.of_units(self.size).isfinite()

    @property
    def activity(self) -> Tensor:
        """Mean size of the outputs relative to the layer's mean, (units,); inf for a unit that is not finite."""
        size = self.of_units(self.size)
        finite = size.isfinite()
        return torch.where(finite, size / size[finite].mean(), torch.inf)

    def dormant(self, tau: float) -> Tensor:
        """Units with an activity of at most ``tau`` (ReDo, Sokar et al. 2023), (units,); all of a silent layer's."""
        return ~(self.activity > tau)

    @property
    def dead(self) -> Tensor:
        """Units whose output was the same on all inputs, (units,)."""
        constant = (self.least == self.most).double()
        return (self.of_units(constant) == self.of_units(torch.ones_like(constant))) & self.finite

    @property
    def saturated(self) -> Tensor:
        """Units that were flat on all inputs, so that no gradient passed, (units,)."""
        return self.of_units(self.flat) == self.of_units(torch.full_like(self.flat, self.places))

    @property
    def active(self) -> Tensor:
        """Share of places at which a unit's output was positive, (units,); either phase counts."""
        return (self.of_units(self.positive) / self.places).clamp(max=1)

    @property
    def singular(self) -> Tensor | None:
        """Singular values of the outputs (channels,), descending; None for wide layers and outputs not finite."""
        if self.products is None or not bool(self.products.isfinite().all()):
            return None
        squares: Tensor = torch.linalg.eigvalsh(self.products)
        return squares.flip(0).clamp_min(0).sqrt()

    def ranks(self) -> dict[str, float]:
        """All ranks by name: 0 for a layer that is always 0, nan if they are not known."""
        singular = self.singular
        if singular is None or not bool(singular.any()):
            return dict.fromkeys(RANKS, float("nan") if singular is None else 0.0)
        functions = (effective_rank, stable_rank, srank, approximate_rank)
        return {name: float(rank(singular)) for name, rank in zip(RANKS, functions, strict=True)}

    @property
    def norm(self) -> float:
        """Mean norm of the outputs of a place."""
        return self.lengths / self.places if self.places else float("nan")
