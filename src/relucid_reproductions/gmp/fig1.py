"""gmp Fig. 1: how far the boundary of a unit in the plane turns when each of its parameters changes a little."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid.experiments import Claim, Column, Results, Scale, Study, arrays_of, lower, runner
from relucid.inspect._boundary import Boundary, hyperplanes
from relucid.inspect.tracker import change
from relucid.nn.sphere import angles_of, unit_vector
from relucid.report.figure import PALETTE, Figure
from relucid_reproductions.gmp.drawing import lines

KINDS = {"SP": "standard", "WN": "weightnorm", "GmP": "geometric"}
SIZES = (1.0, 0.1, 0.01, 0.001)  # standard deviations of weights and biases; gmp Fig. 1 has the last one
EPSILON = 1e-3
BOUND = np.rad2deg(EPSILON)  # of Theorem 3, in the plane
DRAWN = (0.001, 0.1)  # sizes of the unit in the figure
SHOWN = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # its perturbations
AUTHORS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)  # those of the authors' own figure


@dataclass(frozen=True)
class Perturbation:
    """Boundaries before and after every parameter changes by epsilon, for three parameterizations of a unit."""

    before: Boundary
    after: dict[str, tuple[Boundary, ...]]  #: by parameterization, one per epsilon
    turned: dict[str, Tensor]  #: by parameterization: angles between u and u', (epsilons, N)


def perturbation(weight: Tensor, bias: Tensor | None, epsilon: Sequence[float]) -> Perturbation:
    r"""Measure how far units turn when each of their parameters grows by epsilon.

    - "standard": w and b (gmp Eq. 12);
    - "weightnorm": v = w, l = |w| and b (Eq. 14), which turns as far as "standard";
    - "geometric": the angles and lambda. By Theorem 3 it turns by at most |epsilon|_2, and by |epsilon|_M to first
      order (the paper prints an equality).

    Args:
        weight: (N, ...), as for a standard layer.
        bias: (N,); None means 0.
        epsilon: Sizes of the perturbation; each is added to every parameter.

    >>> units = perturbation(torch.tensor([[1e-3, 0.0]]), torch.tensor([1e-3]), [1e-3, 1e-2])
    >>> units.turned["standard"].rad2deg()[:, 0], units.turned["geometric"].rad2deg()[:, 0]
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
    return Perturbation(
        before=before,
        after={name: tuple(boundaries) for name, boundaries in after.items()},
        turned={
            name: torch.stack([change(before, now)[1] for now in boundaries])
            for name, boundaries in after.items()
        },
    )


@runner("gmp/perturbation")
def run(method: str, units: int, seed: int, shown: Sequence[float] = SHOWN) -> dict[str, Any]:
    """Perturb random units of several sizes, under one parameterization."""
    kind, generator = KINDS[method], torch.Generator().manual_seed(seed)
    weight = torch.randn(units, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(units, generator=generator, dtype=torch.float64)
    turned = {size: perturbation(size * weight, size * bias, [EPSILON]).turned[kind][0] for size in SIZES}
    arrays = {"epsilon": np.array(shown)}
    for size in DRAWN:
        drawn = perturbation(size * weight[:1], size * bias[:1], shown).after[kind]
        arrays[f"direction {size:g}"] = torch.cat([unit.direction for unit in drawn]).numpy()
        arrays[f"radius {size:g}"] = torch.cat([unit.radius for unit in drawn]).numpy()
    return {
        **{f"turn at {size:g}": turn.rad2deg().tolist() for size, turn in turned.items()},
        "arrays": arrays,
    }


def largest(results: Results, method: str) -> float:
    """The largest turn under a parameterization, of units of any size."""
    return float(max(results[cell].max() for cell in results.cells if cell[0] == method))


def figures(results: Results) -> list[Figure]:
    """Draw the boundary of a unit before and after perturbations (gmp Fig. 1b-e), with small and larger weights."""
    arrays = {record["config"]["method"]: arrays_of(record) for record in results.runs()}
    return [_boundaries(arrays, size) for size in DRAWN] if any(arrays.values()) else []


def _boundaries(arrays: Mapping[str, Mapping[str, np.ndarray]], size: float) -> Figure:
    from plotly.subplots import make_subplots

    plot = make_subplots(1, len(arrays), subplot_titles=list(arrays), shared_yaxes=True)
    for place, unit in enumerate(arrays.values(), start=1):
        for number, epsilon in enumerate(unit["epsilon"]):
            x, y = lines(unit[f"direction {size:g}"][[number]], unit[f"radius {size:g}"][[number]])
            look = {"name": f"ε = {epsilon:g}", "line_color": PALETTE[number], "legendgroup": str(number)}
            plot.add_scatter(x=x, y=y, mode="lines", **look, showlegend=place == 1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "A panel for each parameterization with the boundary of one unit and where it is after all of the unit's "
        "parameters have grown by epsilon: the nearer to where it was, the more stable."
    )
    return Figure(f"The boundary of a unit with weights of size {size:g}, perturbed", alt, plot)


perturbed = Study(
    "gmp/perturbation",
    f"By how many degrees the boundary of a unit in the plane turns when its parameters grow by {EPSILON:g}",
    run,
    rows={method: {"method": method} for method in KINDS},
    columns={f"size {size:g}": Column(f"turn at {size:g}", digits=3) for size in SIZES},
    config={"seed": 0},
    scales={"full": Scale({"units": 1000}), "smoke": Scale({"units": 10})},
    repeat={},
    claims=[
        Claim(
            "Fig. 1",
            "With small weights, perturbations of 0.001 move boundaries far under SP and WN, but little under GmP.",
            lower("GmP", ("SP", "WN"), "size 0.001"),
            kind="mathematics",
        )
    ],
    figures=[figures],
)
STUDIES = [
    perturbed,
    perturbed.variant(
        "gmp/perturbation-authors",
        "The same, with perturbations in the figure up to 0.1 as in the authors' own",
        config={"seed": 0, "shown": AUTHORS},
        claims=[],
    ),
]
