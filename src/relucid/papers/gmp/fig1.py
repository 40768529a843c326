"""gmp Fig. 1: how far the boundary of a unit in the plane turns when each of its parameters changes a little."""

from typing import Any

import numpy as np
import torch

from relucid.papers.gmp.drawing import lines
from relucid.papers.gmp.perturbation import perturbation
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Claim, Column, Lower, Result, Runner, Scale, Store, Study, Table

KINDS = {"SP": "standard", "WN": "weightnorm", "GmP": "geometric"}
SIZES = (1.0, 0.1, 0.01, 0.001)  # standard deviations of weights and biases; gmp Fig. 1 has the last one
EPSILON = 1e-3
DRAWN = (0.001, 0.1)  # sizes of the unit in the figure
SHOWN = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # its perturbations


def run(config: dict[str, Any]) -> Result:
    """Perturb random units of several sizes, under one parameterization."""
    kind, units = KINDS[config["method"]], config["units"]
    generator = torch.Generator().manual_seed(config["seed"])
    weight = torch.randn(units, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(units, generator=generator, dtype=torch.float64)
    turned = {size: perturbation(size * weight, size * bias, [EPSILON]).turned[kind][0] for size in SIZES}
    arrays = {"epsilon": np.array(SHOWN)}
    for size in DRAWN:
        shown = perturbation(size * weight[:1], size * bias[:1], SHOWN).after[kind]
        arrays[f"direction {size:g}"] = torch.cat([each.direction for each in shown]).numpy()
        arrays[f"radius {size:g}"] = torch.cat([each.radius for each in shown]).numpy()
    return Result(
        {f"turn at {size:g}": angles.rad2deg().tolist() for size, angles in turned.items()}, arrays=arrays
    )


RUNNER = Runner("gmp/perturbation", run)


def remark(table: Table) -> str:
    """State the largest turns of boundaries, for small and for large weights."""
    small, large = (f"size {size:g}" for size in (SIZES[-1], SIZES[0]))
    worst = {
        method: [max(table.cells[method, column].values) for column in (large, small)] for method in KINDS
    }
    bound = max(max(table.cells["GmP", column].values) for column in table.study.columns)
    return (
        f"A change of {EPSILON:g} turns no boundary by more than {bound:.3f}° under GmP, whatever the size of the "
        f"weights (Theorem 3 allows {np.rad2deg(EPSILON):.3f}°). With weights of {small} it turns them by up to "
        + " and ".join(f"{worst[method][1]:.0f}° under {method}" for method in ("SP", "WN"))
        + f"; with weights of {large}, by at most "
        + " and ".join(f"{worst[method][0]:.1f}°" for method in ("SP", "WN"))
        + ". The difference comes from small weights."
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw the boundary of a unit before and after perturbations (gmp Fig. 1b-e), with small and larger weights."""
    found = {run["config"]["method"]: store.arrays(run["key"]) for run in table.finished()}
    found = {method: arrays for method, arrays in found.items() if arrays}
    return [_boundaries(found, size) for size in DRAWN] if found else []


def _boundaries(found: dict[str, dict[str, np.ndarray]], size: float) -> Figure:
    from plotly.subplots import make_subplots

    plot = make_subplots(1, max(1, len(found)), subplot_titles=list(found) or None, shared_yaxes=True)
    for place, arrays in enumerate(found.values(), start=1):
        for number, epsilon in enumerate(arrays["epsilon"]):
            x, y = lines(arrays[f"direction {size:g}"][[number]], arrays[f"radius {size:g}"][[number]])
            look = {"name": f"ε = {epsilon:g}", "line_color": PALETTE[number], "legendgroup": str(number)}
            plot.add_scatter(x=x, y=y, mode="lines", **look, showlegend=place == 1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "A panel for each parameterization with the boundary of one unit and where it is after all of the unit's "
        "parameters have grown by epsilon: the nearer to where it was, the more stable."
    )
    return Figure(f"The boundary of a unit with weights of size {size:g}, perturbed", alt, plot)


STUDY = Study(
    name="gmp/perturbation",
    title=f"By how many degrees the boundary of a unit in the plane turns when its parameters grow by {EPSILON:g}",
    run=RUNNER,
    rows={method: {"method": method} for method in KINDS},
    columns={f"size {size:g}": Column(f"turn at {size:g}", digits=3) for size in SIZES},
    config={"seed": 0},
    scales={"full": Scale({"units": 1000}, seconds=0.1), "smoke": Scale({"units": 10}, seconds=0.1)},
    repeat={},
    source="gmp Fig. 1",
    paired=True,
    claims=(
        Claim(
            "Fig. 1",
            "With small weights, perturbations of 0.001 move boundaries far under SP and WN, but little under GmP.",
            (Lower("GmP", than=("SP", "WN"), columns="size 0.001"),),
            kind="mathematics",
            remark=remark,
            code=("relucid.papers.gmp.perturbation.perturbation",),
        ),
    ),
    figures=figures,
    protocol=(
        "1000 random units in the plane with normal weights and biases; the size is their standard deviation (0.001 in "
        "the paper). ± is the standard error over units. Under WN, v = w, as at the start of training; v grows during "
        "training whatever w does, which favours WN."
    ),
)
