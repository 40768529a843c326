"""gmp Fig. 1: how far the boundary of a unit in the plane turns when each of its parameters changes a little."""

from typing import Any

import numpy as np
import torch

from relucid.inspect.perturbation import perturbation
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table

KINDS = {"SP": "standard", "WN": "weightnorm", "GmP": "geometric"}
SIZES = (1.0, 0.1, 0.01, 0.001)  # standard deviations of weights and biases; gmp Fig. 1 has the last one
EPSILON = 1e-3
SHOWN = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # perturbations of the unit that the figure shows


def run(config: dict[str, Any]) -> Result:
    """Perturb random units of several sizes, described in one way."""
    kind, units = KINDS[config["method"]], config["units"]
    generator = torch.Generator().manual_seed(config["seed"])
    weight = torch.randn(units, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(units, generator=generator, dtype=torch.float64)
    turned = {size: perturbation(size * weight, size * bias, [EPSILON]).turned[kind][0] for size in SIZES}
    shown = perturbation(SIZES[-1] * weight[:1], SIZES[-1] * bias[:1], SHOWN).after[kind]
    return Result(
        {f"turn at {size:g}": angles.rad2deg().tolist() for size, angles in turned.items()},
        arrays={
            "epsilon": np.array(SHOWN),
            "direction": torch.cat([each.direction for each in shown]).numpy(),
            "radius": torch.cat([each.radius for each in shown]).numpy(),
        },
    )


RUNNER = Runner("gmp/perturbation", run)


def verdict(table: Table) -> str:
    """Whether small weights make boundaries turn far under SP and WN, and never under GmP."""
    small, large = (f"size {size:g}" for size in (SIZES[-1], SIZES[0]))
    worst = {
        method: [max(table.cells[method, column].values) for column in (large, small)] for method in KINDS
    }
    bound = max(max(table.cells["GmP", column].values) for column in table.study.columns)
    return (
        f"A change of {EPSILON:g} turns no boundary by more than {bound:.3f}° under GmP, whatever the weights' size "
        f"(Theorem 3 allows {np.rad2deg(EPSILON):.3f}°), but by up to "
        + " and ".join(f"{worst[method][1]:.0f}° under {method}" for method in ("SP", "WN"))
        + f" where weights are of {small}. Where they are of {large} it is "
        + " and ".join(f"{worst[method][0]:.1f}°" for method in ("SP", "WN"))
        + " at most: it is small weights that make the difference."
    )


PERTURBATION = Study(
    name="gmp/perturbation",
    title=f"By how many degrees the boundary of a unit in the plane turns when its parameters grow by {EPSILON:g}",
    run=RUNNER,
    rows={method: {"method": method} for method in KINDS},
    columns={f"size {size:g}": Column(f"turn at {size:g}", digits=3) for size in SIZES},
    config={"seed": 0},
    scales={"full": Scale({"units": 1000}, seconds=0.1), "smoke": Scale({"units": 10}, seconds=0.1)},
    repeat={},
    source="gmp Fig. 1",
    claim=(
        "A perturbation of 0.001 can drastically change boundaries under SP and WN, while they change "
        "smoothly under GmP (gmp 3.5, Fig. 1)."
    ),
    verdict=verdict,
    figures="relucid.report.gmp:perturbation",
    protocol=(
        "1000 random units in the plane, weights and biases normally distributed; sizes are their standard "
        "deviation (the authors' is 0.001). Mean over the units ± its standard error. Under WN v is taken to "
        "be w, as it is at the start of training; v grows in training whatever w does, and WN gains by that."
    ),
)
