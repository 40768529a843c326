"""structure Section 5.1: faster algorithms need fewer layers."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid.experiments import Cell, Claim, Column, Contrast, Quantity, Results, Scale, Study, runner
from relucid.nn.rules import ADMM, HeavyBall, Nesterov, Nesterov2, Plain, Rule, per_layer, rule_of
from relucid.report.figure import Figure
from relucid_reproductions.structure.objective import Objective


def rules(kappa: float) -> dict[str, Rule]:
    """The algorithms and their coefficients, for L / mu = kappa and steps of 1 / L."""
    root = math.sqrt(1 / kappa)
    return {
        "gd": Plain(),
        "admm": ADMM(),
        "hb-0.3": HeavyBall(0.3),
        "hb-best": HeavyBall((1 - root) ** 2),
        "hb-1": HeavyBall(1.0),
        "agd-theta": Nesterov(),
        "agd-constant": Nesterov((1 - root) / (1 + root)),
        "agd2-theta": Nesterov2(),
        "agd2-constant": Nesterov2((1 - root) / (1 + root)),
    }


def layers_to_reach(
    rule: str | Rule,
    objective: Objective,
    x: Tensor,
    target: Tensor,
    tolerance: float = 1e-6,
    limit: int = 100_000,
) -> int:
    """Count the layers until x is within ``tolerance`` of the target, relative to its start; -1 beyond ``limit``.

    >>> objective = Objective(torch.eye(1) / 2, "relu")
    >>> layers_to_reach("plain", objective, torch.ones(1), torch.zeros(1), tolerance=0.01)
    7
    """
    rule = rule_of(rule)
    values = {
        name: per_layer(name, value, limit).tolist() for name, value in rule.coefficients(limit).items()
    }
    variables, goal = rule.begin(x, x), tolerance * (x - target).norm()
    for k in range(limit):
        if (variables[0] - target).norm() <= goal:
            return k
        coefficients = {name: value[k] for name, value in values.items()}
        variables = rule.step(*[objective.layer] * rule.paths, *variables, **coefficients)
    return -1


def strongly_convex(kappa: float, size: int = 100, seed: int = 0) -> tuple[Objective, Tensor]:
    """The objective of a ReLU network with L = 1 and mu = 1 / kappa, and its minimizer.

    The eigenvalues of I - W are spaced evenly on a log scale from mu to 0.99; the Hessian of f lies between
    I - W and I. The bias makes a random positive x the minimizer: all units are active there, so that mu is
    attained. (If some were inactive, gradient descent would do better than kappa predicts.)

    >>> objective, minimizer = strongly_convex(kappa=100)
    >>> torch.allclose(objective.gradient(minimizer), torch.zeros(100, dtype=torch.float64))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    values = 1 - torch.logspace(-math.log10(kappa), math.log10(0.99), size, dtype=torch.float64)
    weight = q * values @ q.T
    minimizer = torch.randn(size, dtype=torch.float64, generator=generator).abs()
    return Objective((weight + weight.T) / 2, "relu", minimizer - minimizer @ weight), minimizer


@runner("structure/convergence")
def run(rule: str, kappa: float, features: int, limit: int, seed: int) -> dict[str, float]:
    """Count the layers until x is within 1e-6 of its first distance from the minimizer, at most `limit`."""
    objective, minimizer = strongly_convex(kappa, features, seed)
    begin = torch.randn(features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    layers = layers_to_reach(rules(kappa)[rule], objective, begin, minimizer, limit=limit)
    return {"layers": limit if layers < 0 else layers, "reached": layers >= 0}


# With the constants for a strongly convex objective
HB_BEST, AGD_BEST, AGD2_BEST = (
    "HB (11), beta = (1 - 1/sqrt(kappa))^2",
    "AGD (12), constant of footnote 4",
    "AGD2 (13), constant of footnote 4",
)
ROWS = {
    "GD (7)": "gd",
    "ADMM (14)": "admm",
    "HB (11), beta = 0.3": "hb-0.3",
    HB_BEST: "hb-best",
    "HB (11), beta = 1": "hb-1",
    "AGD (12), theta_k": "agd-theta",
    AGD_BEST: "agd-constant",
    "AGD2 (13), theta_k": "agd2-theta",
    AGD2_BEST: "agd2-constant",
}
GD, *OTHERS = ROWS
KAPPAS = (10, 100, 1000)
COLUMNS = {f"kappa = {kappa}": kappa for kappa in KAPPAS}
FIRST, *_, LAST = COLUMNS
BETWEEN = 0.75  # between the claimed powers of kappa, 1/2 and 1


def slope(row: str) -> Quantity:
    """The power of kappa by which the layers grow from the smallest kappa to the largest, seed by seed."""

    def power(few: Any, many: Any, *reached: Any) -> Any:
        return np.log(many / few)[[all((runs > 0).all() for runs in reached)] * len(few)] / math.log(
            KAPPAS[-1] / KAPPAS[0]
        )

    ends = [Cell(row, column) for column in (FIRST, LAST)]
    return Quantity(
        f"{row}: power of kappa", [*ends, *(Cell(row, column, "reached") for column in COLUMNS)], power
    )


def grow(*roots: str) -> list[Contrast]:
    """Gradient descent needs a number of layers that grows as kappa, these algorithms one that grows as its root."""
    slower = Contrast(slope(GD), BETWEEN, "higher")
    return [slower, *(Contrast(slope(row), BETWEEN, "lower") for row in roots)]


def late(results: Results) -> list[str]:
    """The algorithms that did not reach the minimizer in every run."""
    return [row for row in ROWS if not all((results[row, column, "reached"] > 0).all() for column in COLUMNS)]


def times_fewer(results: Results, row: str) -> float:
    """How many times fewer layers an algorithm needs than gradient descent, at the largest kappa."""
    return float(results[GD, LAST].mean() / results[row, LAST].mean())


def fastest(results: Results) -> str:
    """The algorithm that needs the fewest layers at the largest kappa, of those that reach the minimizer."""
    arrived = [row for row in ROWS if row not in late(results)]
    return max(arrived, key=lambda row: times_fewer(results, row))


def figures(results: Results) -> list[Figure]:
    """Draw the number of layers to reach the minimizer, over kappa; algorithms that never reach it are left out."""
    import plotly.express as px

    missed = late(results)
    layers = [
        {"kappa": COLUMNS[column], "layers": stat["mean"], "algorithm": row}
        for (row, column), stat in results.table().iterrows()
        if row not in missed
    ]
    plot = px.line(layers, x="kappa", y="layers", color="algorithm", log_x=True, log_y=True)
    plot.update_xaxes(title="kappa = L / mu", tickvals=KAPPAS).update_yaxes(dtick=1)
    alt = "Lines of the layers over the condition number, both logarithmic, one per algorithm: steeper is slower."
    return [Figure("Layers to reach the minimizer", alt, plot)]


convergence = Study(
    "structure/convergence",
    "How many layers with a shared weight each rule needs to reach the minimizer of their objective",
    run,
    rows={row: {"rule": rule} for row, rule in ROWS.items()},
    columns={label: Column("layers", {"kappa": kappa}, digits=0) for label, kappa in COLUMNS.items()},
    scales={
        "full": Scale({"features": 100, "limit": 30_000}),
        "smoke": Scale({"features": 10, "limit": 500}, {"seed": [0, 1]}),
    },
    paired=False,
    claims=[
        Claim(
            "Section 5.1",
            "With condition number kappa, gradient descent needs O(kappa) layers, faster algorithms O(sqrt(kappa)).",
            grow(HB_BEST, "AGD (12), theta_k", AGD_BEST),
            kind="mathematics",
        ),
        Claim(
            "Section 5.1, footnote 4",
            "With the constants for a strongly convex objective, for Nesterov's method that of footnote 4, gradient "
            "descent needs O(kappa) layers and faster algorithms O(sqrt(kappa)).",
            grow(HB_BEST, AGD_BEST, AGD2_BEST),
            kind="mathematics",
            stated="2026-11-19",
        ),
    ],
    figures=[figures],
)
STUDIES = [convergence]
