"""structure Lemma 1 and Sections 4 and 5.1: layers are steps of an algorithm, and faster ones need fewer of them."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from relucid.inspect.convergence import layers_to_reach, strongly_convex
from relucid.inspect.objective import ACTIVATIONS, Objective, minimize
from relucid.nn import Propagation
from relucid.nn.rules import ADMM, HeavyBall, Nesterov, Nesterov2, Plain, Rule
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table


def rules(kappa: float) -> dict[str, Rule]:
    """The algorithms with their coefficients, for L / mu = kappa and steps of 1 / L."""
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


def count(config: dict[str, Any]) -> dict[str, float]:
    """The layers that bring x to 1e-6 of its first distance from the minimizer, `limit` where it takes more."""
    kappa, seed, size, limit = config["kappa"], config["seed"], config["features"], config["limit"]
    objective, minimizer = strongly_convex(kappa, size, seed)
    begin = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    layers = layers_to_reach(rules(kappa)[config["rule"]], objective, begin, minimizer, limit=limit)
    return {"layers": limit if layers < 0 else layers, "reached": layers >= 0}


COUNTER = Runner("structure/convergence", count)


def verdict_of_counts(table: Table) -> str:
    """How the layers grow with kappa, how ADMM compares with GD, and which algorithms did not get there."""
    first, last = min(KAPPAS), max(KAPPAS)

    def layers(row: str, kappa: int = last) -> float:
        return table.cells[row, f"kappa = {kappa}"].mean or math.nan

    missed = {each["config"]["rule"] for each in table.runs if each["metrics"].get("reached") == 0}
    arrived = [row for row, rule in ROWS.items() if rule not in missed]
    powers = {row: math.log(layers(row) / layers(row, first), last / first) for row in arrived}
    best = min(arrived, key=layers)
    late = ", ".join(row for row in ROWS if row not in arrived)
    return (
        f"From kappa = {first} to {last} the layers grow as kappa to the power of: "
        + "; ".join(f"{row}: {power:.2f}" for row, power in powers.items())
        + f". At kappa = {last} {best} needs the fewest, {layers('GD (7)') / layers(best):.1f} times fewer than GD, "
        f"and ADMM {layers('ADMM (14)') / layers('GD (7)'):.1f} times as many."
        + (f" Never there: {late}." if late else "")
    )


def compare(config: dict[str, Any]) -> dict[str, float]:
    """The largest difference between a stage's states and an algorithm's iterates, in 1e-15 of the largest state."""
    size, depth, name = config["features"], config["depth"], config["rule"]
    generator = torch.Generator().manual_seed(config["seed"])
    a, b, x = torch.randn(3, size, size, dtype=torch.float64, generator=generator)
    weight = a @ a.T / size + 0.1 * torch.eye(size)
    objective = Objective(0.9 * weight / torch.linalg.matrix_norm(weight, 2), config["activation"], b[0])
    rule = rules(kappa=1)[name]
    iterates = objective.to_x(minimize(rule, objective, objective.to_z(x), depth))
    layer = _Layer(objective)
    layers: list[Any] = [(layer, layer) if rule.paths == 2 else layer] * depth
    states = torch.stack([Propagation(layers[:k], rule)(x) if k else x for k in range(depth + 1)])
    return {"difference": 1e15 * float((states - iterates).abs().max() / states.abs().max())}


COMPARER = Runner("structure/lemma1", compare)


class _Layer(nn.Module):
    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, x: Tensor) -> Tensor:
        return self.objective.layer(x)


def verdict_of_lemma(table: Table) -> str:
    """How far layers and steps are apart at most."""
    worst = max(table.cells, key=lambda place: max(table.cells[place].values))
    most = max(table.cells[worst].values) * 1e-15
    row, column = worst
    holds = "the lemma holds to rounding" if most < 1e-11 else "that is more than rounding explains"
    return (
        f"States and iterates differ by at most {most:.1e} of the largest state ({row}, {column}): {holds}."
    )


ROWS = {
    "GD (7)": "gd",
    "ADMM (14)": "admm",
    "HB (11), beta = 0.3": "hb-0.3",
    "HB (11), beta = (1 - 1/sqrt(kappa))^2": "hb-best",
    "HB (11), beta = 1": "hb-1",
    "AGD (12), theta_k": "agd-theta",
    "AGD (12), constant of footnote 4": "agd-constant",
    "AGD2 (13), theta_k": "agd2-theta",
    "AGD2 (13), constant of footnote 4": "agd2-constant",
}
KAPPAS = (10, 100, 1000)
LIMIT = 30_000  # layers
COLUMNS = {f"kappa = {kappa}": Column("layers", {"kappa": kappa}, digits=0) for kappa in KAPPAS}

COUNTS = Study(
    name="structure/convergence",
    title="How many layers of one weight each rule needs to reach the minimizer of its objective",
    run=COUNTER,
    rows={row: {"rule": rule} for row, rule in ROWS.items()},
    columns=COLUMNS,
    scales={
        "full": Scale({"features": 100, "limit": LIMIT}, seconds=1),
        "smoke": Scale({"features": 10, "limit": 500}, {"seed": [0, 1]}, seconds=0.1),
    },
    baseline="GD (7)",
    source="structure Section 5.1",
    protocol=(
        "ReLU layers of 100 units, all of the same W and bias, whose objective has L = 1 and mu = 1 / kappa, with the "
        "eigenvalues of its Hessian spread evenly in their logarithm; the layers to come within 1e-6 of the "
        f"minimizer, relative to the first distance, {LIMIT:,} where it takes more. Three random instances. HB-Net's "
        "beta = 1 is a row of its own."
    ),
    claim=(
        "GD needs O(kappa log 1/eps) layers, HB and AGD O(sqrt(kappa) log 1/eps); ADMM is not faster than GD."
    ),
    verdict=verdict_of_counts,
    figures="relucid.report.structure:convergence",
)

LEMMA = Study(
    name="structure/lemma1",
    title="Layers of one weight are steps of an algorithm on its objective, for every activation of Table 1",
    run=COMPARER,
    rows={name: {"activation": name} for name in ACTIVATIONS},
    columns={
        label: Column("difference", {"rule": rule}, digits=1)
        for label, rule in {
            "GD (7)": "gd",
            "HB (11)": "hb-0.3",
            "AGD (12)": "agd-theta",
            "AGD2 (13)": "agd2-theta",
            "ADMM (14)": "admm",
        }.items()
    },
    scales={
        "full": Scale({"features": 100, "depth": 30}, seconds=0.5),
        "smoke": Scale({"features": 10, "depth": 5}, {"seed": [0, 1]}, seconds=0.1),
    },
    source="structure Lemma 1, Section 4",
    protocol=(
        "The largest difference, in 1e-15 of the largest state, between the states of 30 layers Phi(W x + b) joined "
        "by the rule and the iterates of the algorithm on f (Eq. 8) with z = sqrt(W) x: two computations that share "
        "no step. W is random, symmetric and positive definite with largest eigenvalue 0.9, b is random; three of "
        "each, 100 starting points, float64. Softsign and ELU as corrected for negative arguments."
    ),
    claim=(
        "A layer with symmetric positive definite W is a step of gradient descent on an explicit objective (Lemma 1), "
        "and Eq. 11 to 14 are the other algorithms on the same objective."
    ),
    verdict=verdict_of_lemma,
)
