"""structure Lemma 1 and Section 4: layers are steps of an algorithm on an explicit objective."""

from typing import Any

import torch
from torch import Tensor, nn

from relucid.nn import Propagation
from relucid.papers.structure.objective import ACTIVATIONS, Objective, minimize
from relucid.papers.structure.section5_1 import rules
from relucid.studies import AtMost, Claim, Column, Runner, Scale, Study

ROUNDING = 1000.0  # in 1e-15 of the largest state: the rounding of float64 over thirty layers


def difference(config: dict[str, Any]) -> dict[str, float]:
    """Measure the largest difference between states and iterates, in 1e-15 of the largest state."""
    size, depth, name = config["features"], config["depth"], config["rule"]
    generator = torch.Generator().manual_seed(config["seed"])
    a, b, x = torch.randn(3, size, size, dtype=torch.float64, generator=generator)
    weight = a @ a.T / size + 0.1 * torch.eye(size)
    objective = Objective(0.9 * weight / torch.linalg.matrix_norm(weight, 2), config["activation"], b[0])
    rule = rules(kappa=1)[name]
    iterates = objective.to_x(minimize(rule, objective, objective.to_z(x), depth))
    layer = _ObjectiveLayer(objective)
    layers: list[Any] = [(layer, layer) if rule.paths == 2 else layer] * depth
    states = torch.stack([Propagation(layers[:k], rule)(x) if k else x for k in range(depth + 1)])
    return {"difference": 1e15 * float((states - iterates).abs().max() / states.abs().max())}


class _ObjectiveLayer(nn.Module):
    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, x: Tensor) -> Tensor:
        return self.objective.layer(x)


COLUMNS = {
    label: Column("difference", {"rule": rule}, digits=1)
    for label, rule in {
        "GD (7)": "gd",
        "HB (11)": "hb-0.3",
        "AGD (12)": "agd-theta",
        "AGD2 (13)": "agd2-theta",
        "ADMM (14)": "admm",
    }.items()
}

STUDY = Study(
    name="structure/lemma1",
    title="Layers with a shared weight are steps of an algorithm on an objective, for every activation of Table 1",
    run=Runner("structure/lemma1", difference),
    rows={name: {"activation": name} for name in ACTIVATIONS},
    columns=COLUMNS,
    scales={
        "full": Scale({"features": 100, "depth": 30}, seconds=0.5),
        "smoke": Scale({"features": 10, "depth": 5}, {"seed": [0, 1]}, seconds=0.1),
    },
    source="structure Lemma 1, Section 4",
    protocol=(
        "The largest difference, in 1e-15 of the largest state, between the states of 30 layers Phi(W x + b) joined "
        "by the rule and the iterates of the algorithm on f (Eq. 8) with z = sqrt(W) x: two computations that share "
        "no step. W is random, symmetric and positive definite with largest eigenvalue 0.9, b is random; three of "
        "each, 100 starting points, float64. Softsign and ELU are corrected for negative arguments."
    ),
    claims=(
        Claim(
            "Eq. 1, 7, 8, 9, 10, Lemma 1",
            "A layer Phi(Wx) with symmetric positive definite W is a step of gradient descent on an objective, "
            "and Eq. 11 to 14 are the other algorithms on the same objective.",
            (AtMost(tuple(ACTIVATIONS), tuple(COLUMNS), ROUNDING),),
            kind="mathematics",
            note="Differences are in 1e-15 of the largest state. ReLU without a bias has the trivial minimizer 0.",
            code=(
                "relucid.papers.structure.objective.Objective",
                "relucid.papers.structure.objective.minimize",
            ),
            tests=(
                "papers/structure/test_objective.py::test_the_layers_of_a_network_are_the_iterates_of_the_algorithm",
                "nn/test_rules.py::test_plain_is_gradient_descent",
            ),
        ),
    ),
)
