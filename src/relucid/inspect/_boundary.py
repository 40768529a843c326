"""Where the units of a layer switch: their characteristic activation boundaries (gmp Section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from relucid._torch import version_of
from relucid.inspect.measurement import Measurement, plain
from relucid.nn import GeometricLayer
from relucid.nn.affine import affine_after, affine_of
from relucid.nn.sphere import angles_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect._trace import Rectified

BLOCK = 1 << 22  # a weight of more values is not copied


@dataclass(frozen=True)
class Boundary(Measurement):
    """Hyperplanes u . x + lambda = 0 of N units in R^n (gmp Eq. 9, 11)."""

    #: (N, n): u, or the weight that ``factor`` scales to u, so that a large weight is not copied
    vector: Tensor
    radius: Tensor  #: lambda, (N,); nan for a unit without a boundary
    factor: Tensor | None = None  #: (N,): u = factor * vector
    version: int | None = None  #: version counter of a weight that is not copied, when it was read

    @classmethod
    def measure(cls, layer: Rectified, network: nn.Module) -> Boundary | None:
        """The boundaries of a layer's units with norms folded in; None if they are not fixed."""
        if layer.scale is None:
            return None
        weight = layer.sources[0].weight.flatten(1)
        radius, lengths = layer.planes
        factor = (layer.scale.to(lengths) / lengths).masked_fill(lengths == 0, 0)
        copied = weight.clone() if weight.numel() <= BLOCK else weight
        version = None if copied is not weight or weight.is_inference() else version_of(weight)
        return cls(copied, radius.to(weight), factor.to(weight), version)

    @property
    def direction(self) -> Tensor:
        """Unit vectors u, (N, n); zeros for a unit without a boundary."""
        if self.version not in (None, version_of(self.vector)):
            raise RuntimeError("the weights have changed since the boundaries were measured: measure again")
        return self.vector if self.factor is None else self.vector * self.factor.unsqueeze(1)

    @property
    def location(self) -> Tensor:
        """Point of each boundary nearest to the origin, phi = -lambda u (gmp Definition 2): (N, n)."""
        return -self.radius.unsqueeze(1) * self.direction

    @property
    def angles(self) -> Tensor:
        """Angles theta of gmp Eq. 10, (N, n - 1)."""
        return angles_of(self.direction)

    @property
    def defined(self) -> Tensor:
        """Mask that is False for a unit whose weights are all zero: it is constant and has no boundary."""
        return ~self.radius.isnan()

    def distance(self, x: Tensor) -> Tensor:
        """The signed distance from points (points, n) to each boundary, (points, N); positive where active."""
        return x @ self.direction.T + self.radius

    def summary(self) -> str:
        """A summary in one sentence."""
        size = self.radius[self.defined].abs()
        if not len(size):
            return "no unit has a boundary"
        median, most = float(size.median()), float(size.max())
        return f"{len(size)} boundaries, {median:.3g} from the origin (median), at most {most:.3g}"

    def to_dict(self) -> dict[str, Any]:
        """The radii."""
        return {"radius": plain(self.radius)}

    def figures(self) -> dict[str, Figure]:
        """Draw the boundaries, if the units have one or two inputs."""
        return {"boundaries": self.figure()} if self.vector.shape[1] <= 2 else {}

    def figure(self, data: Tensor | None = None) -> Figure:
        """Draw the boundaries of units with one or two inputs, over ``data`` (points, n) (gmp Fig. 1a, 5, 6)."""
        dimension = self.vector.shape[1]
        if dimension > 2:
            raise ValueError(
                f"boundaries can be drawn for units with one or two inputs; these have {dimension}"
            )
        points = [self.location.nan_to_num(0), torch.ones(1), *([] if data is None else [data])]
        reach = 1.5 * max(float(x.abs().max()) for x in points)
        return (_points if dimension == 1 else _lines)(self, data, reach)


def hyperplanes(weight: Tensor, bias: Tensor | None) -> Boundary:
    """The boundaries of weight . x + bias: u = w / |w|, lambda = b / |w| (gmp Eq. 9).

    Args:
        weight: (N, ...).
        bias: (N,); None means 0.

    >>> planes = hyperplanes(torch.tensor([[3.0, 4.0]]), torch.tensor([10.0]))
    >>> planes.radius, planes.location
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
    """The boundaries of a layer's units: direction u, radius lambda, location phi.

    Args:
        layer: A linear or convolution layer: standard, weight-normalised or geometric. The input of a
            convolution is the flattened patch that a filter sees.
        norm: A batch norm or mean norm between the layer and its activation; it is folded in with its running
            statistics.

    >>> layer, norm = nn.Linear(1, 1), nn.BatchNorm1d(1, eps=0.0)
    >>> _ = layer.weight.data.fill_(2.0), layer.bias.data.fill_(1.0), norm.running_mean.fill_(5.0)
    >>> boundary(layer).radius, boundary(layer, norm).radius
    (tensor([0.5000]), tensor([-2.]))
    """
    # With r outside the activation, u and lambda are parameters: nothing to divide by. A bare r also turns the unit.
    outside = isinstance(layer, GeometricLayer) and (layer.activation is not None or layer.scale is None)
    if norm is None and isinstance(layer, GeometricLayer) and outside:
        u = layer.direction.detach()
        return Boundary(
            u, u.new_zeros(len(u)) if layer.offset is None else layer.offset.detach().to(u, copy=True)
        )
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() < 2 or getattr(layer, "transposed", False):
        raise TypeError(f"boundary takes a linear or convolution layer, not {type(layer).__name__}")
    if norm is None:
        return hyperplanes(weight, bias)
    affine_layer: Any = layer
    return hyperplanes(*(x.to(weight.dtype) for x in affine_after(affine_layer, *affine_of(norm))))


def _points(boundaries: Boundary, data: Tensor | None, reach: float) -> Figure:
    """Draw each unit's ReLU(u x + lambda), and the points where they switch."""
    import plotly.graph_objects as go

    x = torch.linspace(-reach, reach, 201).unsqueeze(1).to(boundaries.direction)
    places = boundaries.location.flatten().tolist()
    figure = go.Figure(layout={"xaxis_title": "x", "yaxis_title": "ReLU(u x + λ)"})
    for i, response in enumerate(boundaries.distance(x).relu().T):
        figure.add_scatter(
            x=x.flatten().tolist(), y=response.tolist(), name=f"unit {i}", line_color="steelblue"
        )
    figure.add_scatter(x=places, y=[0.0] * len(places), mode="markers", name="φ", marker_color="sienna")
    if data is not None:
        points, tick = data.flatten().tolist(), {"symbol": "line-ns-open"}
        figure.add_scatter(x=points, y=[0.0] * len(points), mode="markers", name="data", marker=tick)
    return figure


def _lines(boundaries: Boundary, data: Tensor | None, reach: float) -> Figure:
    """Draw each boundary as a line, with its location phi and an arrow to its active side."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"xaxis_title": "x1", "yaxis_title": "x2", "yaxis_scaleanchor": "x"})
    if data is not None:
        x, y = data.T.tolist()
        figure.add_scatter(x=x, y=y, mode="markers", name="data", marker={"size": 3, "color": "gray"})
    for i, (u, phi) in enumerate(zip(boundaries.direction.cpu(), boundaries.location.cpu(), strict=True)):
        along = torch.stack([-u[1], u[0]])
        x, y = torch.stack([phi - 2 * reach * along, phi + 2 * reach * along]).T.tolist()
        figure.add_scatter(x=x, y=y, mode="lines", name=f"unit {i}", line_color="sienna")
        x, y = torch.stack([0 * phi, phi]).T.tolist()
        dots = {"dash": "dot", "color": "steelblue"}
        figure.add_scatter(x=x, y=y, mode="lines+markers", name=f"φ of unit {i}", line=dots)
        (x, y), (from_x, from_y) = (phi + 0.15 * reach * u).tolist(), phi.tolist()
        start = {"ax": from_x, "ay": from_y, "axref": "x", "ayref": "y"}
        figure.add_annotation(x=x, y=y, arrowcolor="green", showarrow=True, **start)
    return figure.update_xaxes(range=[-reach, reach]).update_yaxes(range=[-reach, reach])
