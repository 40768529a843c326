"""How far a perturbation of a unit's parameters turns its boundary (gmp Section 3.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relucid.inspect.boundary import Boundary, hyperplanes, planes_of
from relucid.inspect.measurement import Measurement, Network, plain
from relucid.inspect.tracker import change
from relucid.nn.sphere import angles_of, metric, unit_vector

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect.trace import Rectified

SIZES = (1e-3, 1e-2, 1e-1)  # perturbations that an examination tries


@dataclass(frozen=True)
class Perturbation(Measurement):
    """Boundaries before and after every parameter changes by epsilon, for three parameterizations of a unit."""

    epsilon: tuple[float, ...]
    before: Boundary
    after: dict[str, tuple[Boundary, ...]]  #: by parameterization, one per epsilon
    turned: dict[str, Tensor]  #: by parameterization: angles between u and u', (epsilons, N)
    moved: dict[str, Tensor]  #: by parameterization: |phi' - phi|, (epsilons, N)
    first_order: Tensor  #: (epsilons, N): |epsilon|_M of gmp Theorem 3, the limit of "geometric"
    bound: Tensor  #: (epsilons,): |epsilon|_2, which "geometric" never exceeds

    @classmethod
    def measure(cls, layer: Rectified, network: Network) -> Perturbation | None:
        """Perturb a layer; None unless all of its units have a boundary."""
        if layer.scale is None:
            return None
        radius, _ = network.once(planes_of, layer)
        return perturbation(*layer.folded(), SIZES) if bool(radius.isfinite().all()) else None

    def summary(self) -> str:
        """One line per parameterization."""
        largest = {
            name: float(turned[-1].nan_to_num(0).max().rad2deg()) for name, turned in self.turned.items()
        }
        return "\n".join(
            f"{name}: turns by at most {angle:.3g}° for epsilon = {self.epsilon[-1]:g}"
            for name, angle in largest.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """The largest angles by parameterization."""
        turned = plain({name: angles.amax(1) for name, angles in self.turned.items()})
        return {"epsilon": list(self.epsilon), "turned": turned}

    def figures(self) -> dict[str, Figure]:
        """Draw the largest angles."""
        return {"perturbation": self.figure()}

    def figure(self) -> Figure:
        """Plot the largest angle against epsilon, with the bound of Theorem 3 (gmp Fig. 1b-e in any dimension)."""
        import plotly.graph_objects as go

        lines = {name: turned.nan_to_num(0).amax(1) for name, turned in self.turned.items()} | {
            "bound": self.bound
        }
        traces = [go.Scatter(x=self.epsilon, y=y.tolist(), name=name) for name, y in lines.items()]
        axes = {"xaxis_title": "ε", "yaxis_title": "largest angle", "xaxis_type": "log", "yaxis_type": "log"}
        return go.Figure(traces, axes)


def perturbation(weight: Tensor, bias: Tensor | None, epsilon: Sequence[float]) -> Perturbation:
    r"""Measure how far units turn and move when each of their parameters grows by epsilon.

    - "standard": w and b (gmp Eq. 12);
    - "weightnorm": v = w, l = |w| and b (Eq. 14), which turns as far as "standard";
    - "geometric": the angles and lambda. By Theorem 3 it turns by at most |epsilon|_2, and by |epsilon|_M to first
      order (the paper prints an equality).

    Args:
        weight: (N, ...), as for a standard layer.
        bias: (N,); None means 0.
        epsilon: Sizes of the perturbation; each is added to every parameter.

    >>> found = perturbation(torch.tensor([[1e-3, 0.0]]), torch.tensor([1e-3]), [1e-3, 1e-2])
    >>> found.turned["standard"].rad2deg()[:, 0], found.turned["geometric"].rad2deg()[:, 0]
    (tensor([26.5651, 42.2737], dtype=torch.float64), tensor([0.0573, 0.5730], dtype=torch.float64))
    """
    if not len(epsilon):
        raise ValueError("perturbation needs at least one epsilon")
    w = weight.detach().flatten(1).double()
    b = w.new_zeros(len(w)) if bias is None else bias.detach().double()
    before = hyperplanes(w, b)
    if not bool(before.defined.all()):
        raise ValueError("a unit whose weights are all zero has no boundary to perturb")
    angles = angles_of(w)
    sign = w.sign() if w.shape[1] == 1 else 1  # in one dimension there is only a sign, no angle
    norms = w.norm(dim=1)
    after: dict[str, list[Boundary]] = {"standard": [], "weightnorm": [], "geometric": []}
    for e in epsilon:
        direction = hyperplanes(w + e, None).direction
        after["standard"].append(hyperplanes(w + e, b + e))
        after["weightnorm"].append(hyperplanes((norms + e).unsqueeze(1) * direction, b + e))
        after["geometric"].append(Boundary(unit_vector(angles + e) * sign, before.radius + e))
    changes = {name: [change(before, a) for a in boundaries] for name, boundaries in after.items()}
    sizes = torch.tensor(list(epsilon), dtype=torch.float64).abs()
    return Perturbation(
        epsilon=tuple(epsilon),
        before=before,
        after={name: tuple(boundaries) for name, boundaries in after.items()},
        turned={name: torch.stack([turned for _, turned in c]) for name, c in changes.items()},
        moved={name: torch.stack([moved for moved, _ in c]) for name, c in changes.items()},
        first_order=sizes.unsqueeze(1) * metric(angles).sum(1).sqrt()
        if angles.shape[1]
        else torch.zeros(len(sizes), len(w)),
        bound=sizes * math.sqrt(angles.shape[1]),
    )
