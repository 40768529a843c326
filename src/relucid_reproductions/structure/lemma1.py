"""structure Lemma 1 and Section 4: layers are steps of an algorithm on an explicit objective."""

from typing import Any

import torch
from torch import Tensor, nn

from relucid.experiments import Claim, Column, Scale, Study, at_most, runner
from relucid.nn import Propagation
from relucid_reproductions.structure.objective import ACTIVATIONS, Objective, minimize
from relucid_reproductions.structure.section5_1 import rules

ROUNDING = 1000.0  # in 1e-15 of the largest state: the rounding of float64 over thirty layers


@runner("structure/lemma1")
def run(activation: str, rule: str, features: int, depth: int, seed: int) -> dict[str, float]:
    """Measure the largest difference between states and iterates, in 1e-15 of the largest state."""
    generator = torch.Generator().manual_seed(seed)
    a, b, x = torch.randn(3, features, features, dtype=torch.float64, generator=generator)
    weight = a @ a.T / features + 0.1 * torch.eye(features)
    objective = Objective(0.9 * weight / torch.linalg.matrix_norm(weight, 2), activation, b[0])
    algorithm = rules(kappa=1)[rule]
    iterates = objective.to_x(minimize(algorithm, objective, objective.to_z(x), depth))
    layer = ObjectiveLayer(objective)
    layers: list[Any] = [(layer, layer) if algorithm.paths == 2 else layer] * depth
    states = torch.stack([Propagation(layers[:k], algorithm)(x) if k else x for k in range(depth + 1)])
    return {"difference": 1e15 * float((states - iterates).abs().max() / states.abs().max())}


class ObjectiveLayer(nn.Module):
    """A layer of the network whose objective this is."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, x: Tensor) -> Tensor:
        """Phi(W x + b), (..., n)."""
        return self.objective.layer(x)


RULES = {
    "GD (7)": "gd",
    "HB (11)": "hb-0.3",
    "AGD (12)": "agd-theta",
    "AGD2 (13)": "agd2-theta",
    "ADMM (14)": "admm",
}
lemma1 = Study(
    "structure/lemma1",
    "Layers with a shared weight are steps of an algorithm on an objective, for every activation of Table 1",
    run,
    rows={name: {"activation": name} for name in ACTIVATIONS},
    columns={label: Column("difference", {"rule": rule}, digits=1) for label, rule in RULES.items()},
    scales={
        "full": Scale({"features": 100, "depth": 30}),
        "smoke": Scale({"features": 10, "depth": 5}, {"seed": [0, 1]}),
    },
    paired=False,
    claims=[
        Claim(
            "Eq. 1, 7, 8, 9, 10, Lemma 1",
            "A layer Phi(Wx) with symmetric positive definite W is a step of gradient descent on an objective, "
            "and Eq. 11 to 14 are the other algorithms on the same objective.",
            at_most(list(ACTIVATIONS), ROUNDING, list(RULES)),
            kind="mathematics",
        )
    ],
)
STUDIES = [lemma1]
