"""structure Table 2 on a task that can be learned: the same five rules, a teacher with noise, rates tuned per rule."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from relucid.data import Data, Split
from relucid.experiments import Claim, Column, Contrast, Scale, Study, lower, runner
from relucid.models import create
from relucid.train import DivergedError, ensemble
from relucid_reproductions.structure.table2 import RULES

RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
NOISE = 0.3  # deviation; that of the teacher is 1
STEEPEST = 0.25  # slope of a sigmoid, at 0
OTHERS = 1000  # from a seed to the one by which its rates are chosen


@runner("structure/depth-learned")
def run(rule: str, depth: int, features: int, pairs: int, epochs: int, seed: int) -> dict[str, Any]:
    """Choose rates on the task of another seed, by its training loss and by new data; train at both, and measure."""
    other = task(features, pairs, seed + OTHERS)
    tried = [student(rule, features, depth, seed + OTHERS) for _ in RATES]
    ensemble(tried, [other.train] * len(RATES), rates=RATES, epochs=epochs, loss=mse_loss)
    chosen = [_best(losses(tried, part)) for part in (other.train, other.test)]
    data, students = task(features, pairs, seed), [student(rule, features, depth, seed) for _ in chosen]
    course = ensemble(students, [data.train] * len(chosen), rates=chosen, epochs=epochs, loss=mse_loss)
    if course.diverged.any():
        raise DivergedError(f"the loss was not finite at a rate of {max(chosen):g}", {})
    return {
        "mse": losses(students, data.train)[0],
        "new": losses(students, data.test)[1],
        "rate": chosen,
        **references(data.train),
        "history": {"train_loss": course.losses[:, 0].tolist()},
    }


def task(features: int, pairs: int, seed: int) -> Data[Split]:
    """Draw inputs (N, features), and what a teacher of two layers makes of them plus noise, (N, 1)."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * pairs, features, generator=chance)
    first, last = torch.randn(2, features, features, generator=chance) / math.sqrt(features)
    taught = torch.tanh(2 * x @ first) @ last[:, :1]
    f = (taught - taught.mean()) / taught.std() + NOISE * torch.randn(2 * pairs, 1, generator=chance)
    return Data(Split(x[:pairs], f[:pairs]), Split(x[pairs:], f[pairs:]), None)


def student(rule: str, features: int, depth: int, seed: int) -> nn.Module:
    """Layers under a rule and a linear output; sigmoids start centered and with a slope of 1, so that signals last."""
    torch.manual_seed(seed)
    stage = create(f"structure/fc-{rule}", num_classes=features, depth=depth)
    for layer in stage.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 1 / STEEPEST)
            layer.bias.data = -layer.weight.detach().sum(1) / 2  # a sigmoid is 1/2 on average
    return nn.Sequential(stage, nn.Linear(features, 1))


@torch.no_grad()
def losses(students: Sequence[nn.Module], part: Split) -> list[float]:
    """The loss of each network; infinity where it is not finite."""
    values = [mse_loss(network(part.inputs), part.targets).item() for network in students]
    return [value if math.isfinite(value) else math.inf for value in values]


def _best(values: Sequence[float]) -> float:
    return RATES[values.index(min(values))]


def references(part: Split) -> dict[str, float]:
    """The training loss of the best constant and of least squares."""
    x = torch.cat([part.inputs, torch.ones(len(part.inputs), 1)], 1)

    def loss(inputs: Tensor) -> float:
        return mse_loss(inputs @ torch.linalg.lstsq(inputs, part.targets)[0], part.targets).item()

    return {"mse_of_constant": loss(x[:, -1:]), "mse_of_lstsq": loss(x)}


def ordered(column: str) -> list[Contrast]:
    """Every faster algorithm against every slower one."""
    return [contrast for worse, better in combinations(RULES, 2) for contrast in lower(better, worse, column)]


learned = Study(
    "structure/depth-learned",
    "Five rules that join sigmoid layers, trained on a task that can be learned",
    run,
    rows={name: {"rule": rule} for name, rule in RULES.items()},
    columns={
        f"depth {depth}{label}": Column(metric, {"depth": depth}, digits=3)
        for label, metric in (("", "mse"), (", new data", "new"))
        for depth in (10, 30)
    },
    scales={
        "cpu": Scale({"features": 16, "pairs": 1000, "epochs": 300}),
        "smoke": Scale({"features": 4, "pairs": 20, "epochs": 3}, {"seed": [0, 1]}),
    },
    repeat={"seed": range(8)},
    tries=RATES,
    claims=[
        Claim(
            "Table 2, a task that can be learned",
            "Networks from faster algorithms fit better: AGD2, AGD and HB before GD before ADMM at depth 30.",
            ordered("depth 30"),
        ),
        Claim(
            "Table 2, a task that can be learned, new data",
            "They are also better on new data, in the same order.",
            ordered("depth 30, new data"),
        ),
    ],
)
STUDIES = [learned]
