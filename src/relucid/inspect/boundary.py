"""Where the units of a layer switch: their characteristic activation boundaries (gmp Section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from relucid.nn.geometric import GeometricConv1d, GeometricConv2d, GeometricConv3d, GeometricLinear
from relucid.nn.sphere import angles_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Geometric = GeometricLinear | GeometricConv1d | GeometricConv2d | GeometricConv3d
NEARLY = 0.01  # a unit that is inactive on at most this share of the inputs is nearly linear


@dataclass(frozen=True)
class Boundary:
    """The hyperplanes u . x + lambda = 0 of N units in R^n (gmp Eq. 9, 11)."""

    direction: Tensor  #: u, (N, n), of length 1; zeros for a unit without a boundary
    radius: Tensor  #: lambda, (N,); nan for a unit without a boundary

    @property
    def location(self) -> Tensor:
        """The point of each boundary that is nearest to the origin, phi = -lambda u (gmp Definition 2): (N, n)."""
        return -self.radius.unsqueeze(1) * self.direction

    @property
    def angles(self) -> Tensor:
        """The angles theta of gmp Eq. 10, (N, n - 1)."""
        return angles_of(self.direction)

    @property
    def defined(self) -> Tensor:
        """False for a unit whose weights are all zero: it is constant and has no boundary."""
        return ~self.radius.isnan()

    def distance(self, x: Tensor) -> Tensor:
        """Return the signed distance of points (points, n) to each boundary, (points, N); active where positive."""
        return x @ self.direction.T + self.radius

    def summary(self) -> str:
        """One sentence."""
        size = self.radius[self.defined].abs()
        if not len(size):
            return "no unit has a boundary"
        median, most = float(size.median()), float(size.max())
        return f"{len(size)} boundaries, {median:.3g} from the origin (median), at most {most:.3g}"

    def figure(self, data: Tensor | None = None) -> Figure:
        """The boundaries of units with one or two inputs, with ``data`` (points, n) (gmp Fig. 1a, 5, 6)."""
        from relucid.inspect.drawing import draw

        return draw(self, data)


def hyperplanes(weight: Tensor, bias: Tensor | None) -> Boundary:
    """Return the boundaries of weight . x + bias: u = w / |w|, lambda = b / |w| (gmp Eq. 9).

    Args:
        weight: (N, ...).
        bias: (N,); none is 0.

    >>> found = hyperplanes(torch.tensor([[3.0, 4.0]]), torch.tensor([10.0]))
    >>> found.radius, found.location
    (tensor([2.]), tensor([[-1.2000, -1.6000]]))
    """
    rows = weight.detach().flatten(1)
    norms = rows.norm(dim=1)
    zero = norms == 0
    offset = torch.zeros_like(norms) if bias is None else bias.detach()
    return Boundary(
        rows / norms.masked_fill(zero, 1).unsqueeze(1), (offset / norms).masked_fill(zero, torch.nan)
    )


def boundary(layer: nn.Module, norm: nn.Module | None = None) -> Boundary:
    """Return the boundaries of a layer's units: direction u, radius lambda, location phi.

    Args:
        layer: Linear or convolution, standard, weight-normalised or geometric; of a convolution the input is
            the patch that a filter sees, flattened.
        norm: A batch norm or mean norm between the layer and its activation; folded with its running statistics.

    >>> layer, norm = nn.Linear(1, 1), nn.BatchNorm1d(1, eps=0.0)
    >>> _ = layer.weight.data.fill_(2.0), layer.bias.data.fill_(1.0), norm.running_mean.fill_(5.0)
    >>> boundary(layer).radius, boundary(layer, norm).radius
    (tensor([0.5000]), tensor([-2.]))
    """
    if norm is None and isinstance(layer, Geometric):  # u and lambda as they are: nothing to divide by
        u = layer.direction.detach()
        return Boundary(
            u, u.new_zeros(len(u)) if layer.offset is None else layer.offset.detach().to(u, copy=True)
        )
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() < 2 or getattr(layer, "transposed", False):
        raise TypeError(f"boundary takes a linear or convolution layer, not {type(layer).__name__}")
    if norm is None:
        return hyperplanes(weight, bias)
    scale, shift = _as_affine(norm)
    folded = weight.detach() * scale.view(-1, *[1] * (weight.dim() - 1))
    return hyperplanes(folded, shift if bias is None else shift + scale * bias.detach())


def _as_affine(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return (scale, shift) of a batch norm or mean norm with running statistics."""
    mean, variance = getattr(norm, "running_mean", None), getattr(norm, "running_var", None)
    if mean is None:
        raise TypeError(
            f"{type(norm).__name__} keeps no running mean: boundaries behind it move with every batch"
        )
    scale = torch.ones_like(mean) if variance is None else (variance + cast(float, norm.eps)).rsqrt()
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    scale = scale if weight is None else scale * weight.detach()
    return scale, (0 if bias is None else bias.detach()) - scale * mean


@dataclass(frozen=True)
class Activity:
    """On which side of their boundaries the inputs of a data set lie. Vectors have one entry a unit."""

    active: Tensor  #: the share of inputs on which the unit is positive
    inactive: Tensor  #: the share on which it is negative
    distance: Tensor | None  #: the mean distance of the inputs to the boundary
    nearest: Tensor | None  #: the least
    outside: Tensor | None  #: True where the boundary is farther from the origin than any input
    shell: tuple[float, float] | None  #: the least and the largest length of an input
    inputs: int  #: how many inputs (of a convolution: patches) were seen

    @property
    def dead(self) -> Tensor:
        """Units that are never positive."""
        return self.active == 0

    @property
    def always_on(self) -> Tensor:
        """Units that are never negative, nor always 0: linear on this data."""
        return (self.inactive == 0) & ~self.dead

    @property
    def nearly_linear(self) -> Tensor:
        """Units that are negative on at most 1% of the inputs."""
        return (self.inactive > 0) & (self.inactive <= NEARLY)

    def summary(self) -> str:
        """One sentence."""
        counts = [f"{int(mask.sum())} {name}" for name, mask in self.kinds().items()]
        return f"of {len(self.active)} units on {self.inputs} inputs: " + ", ".join(counts)

    def kinds(self) -> dict[str, Tensor]:
        """Return the masks of units that are conspicuous, by name."""
        masks = {"dead": self.dead, "always on": self.always_on, "nearly linear": self.nearly_linear}
        return masks if self.outside is None else masks | {"outside the data": self.outside}


class ActivityCounter:
    """Gathers an `Activity` batch by batch, in memory that does not grow.

    Args:
        units: How many.
        weight: Of the units, norms folded, for distances; without it only sides are counted.
        bias: Of the units.

    >>> counter = ActivityCounter(2)
    >>> counter.update(torch.tensor([[1.0, -1.0], [-2.0, -3.0]]))
    >>> counter.result().active.tolist(), counter.result().dead.tolist()
    ([0.5, 0.0], [False, True])
    """

    def __init__(self, units: int, weight: Tensor | None = None, bias: Tensor | None = None) -> None:
        self.positive, self.negative, self.sizes = torch.zeros(3, units, dtype=torch.float64)
        self.least = torch.full((units,), torch.inf, dtype=torch.float64)
        self.lengths = None if weight is None else weight.flatten(1).double().norm(dim=1).cpu()
        self.radius = None if weight is None else hyperplanes(weight, bias).radius.double().cpu()
        self.shell: tuple[float, float] | None = None
        self.inputs = 0

    def update(self, values: Tensor) -> None:
        """Add what is rectified, (units, inputs)."""
        self.inputs += values.shape[1]
        self.positive += (values > 0).sum(1).cpu()
        self.negative += (values < 0).sum(1).cpu()
        if self.lengths is not None:
            sizes = values.abs()
            self.sizes += sizes.sum(1, dtype=torch.float64).cpu()
            self.least = self.least.minimum(sizes.amin(1).double().cpu())

    def update_shell(self, lengths: Tensor) -> None:
        """Add the lengths of inputs."""
        low, high = float(lengths.min()), float(lengths.max())
        self.shell = (
            (low, high) if self.shell is None else (min(low, self.shell[0]), max(high, self.shell[1]))
        )

    def result(self) -> Activity:
        """Return what was gathered."""
        lengths, radius, shell = self.lengths, self.radius, self.shell
        return Activity(
            active=self.positive / self.inputs,
            inactive=self.negative / self.inputs,
            distance=None if lengths is None else self.sizes / self.inputs / lengths,
            nearest=None if lengths is None else self.least / lengths,
            outside=None if radius is None or shell is None else radius.abs() > shell[1],
            shell=shell,
            inputs=self.inputs,
        )
