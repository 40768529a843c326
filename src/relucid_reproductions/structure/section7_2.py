"""structure Section 7.2: how often deep networks train at all."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from relucid.experiments import Claim, Column, Results, Scale, Study, higher, lower, runner
from relucid.report.plots import curves
from relucid.train import DivergedError, Machine
from relucid.train.measure import error as error_of
from relucid_reproductions.structure.images import AUGMENT, DECAY, RECIPE, load, train

RESNET, CONTROL, HBNET = "ResNet-110", "ResNet-110 without ReLU after the sum", "HB-Net-110"
ROWS: dict[str, dict[str, Any]] = {
    RESNET: {"design": {}},
    CONTROL: {"design": {"rectify": "nowhere"}},
    HBNET: {"design": {"propagation": "heavy_ball"}},
}
TRAINED, ERROR, STEPS = "trained %", "training error %", "steps to 80%"
STARTED = 80.0  # training error in percent below which, for He et al., ResNet-110 has begun to learn
WINDOW = 20  # batches over which that error is averaged, to count steps
# He et al.'s remedy: a rate of 0.01 until then. Not part of the runs below full scale.
WARMED = "ResNet-110 with warm-up"
WARM_UP: dict[str, dict[str, Any]] = {WARMED: {"design": {}, "recipe": {"warmup": [0.01, STARTED]}}}


class Noting:
    """Cross entropy as a training loss that notes the error of every batch, in percent."""

    def __init__(self) -> None:
        self.errors: list[float] = []

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch: outputs (N, classes), targets (N,)."""
        self.errors.append(error_of(outputs.detach(), targets).item())
        return cross_entropy(outputs, targets)


@runner("structure/deep")
def run(
    data: str,
    recipe: Mapping[str, Any],
    images: int | None = None,
    machine: Machine | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train one network; measure whether it learns (100) or not (0), after how many steps, and its training error."""
    loss = Noting()
    try:
        fitted, _ = train(data, recipe={**recipe, "loss": loss}, images=images, machine=machine, **settings)
        history, error = fitted.history, fitted.history["train_error"][-1]
    except DivergedError as diverged:
        history, error = diverged.history, 100.0
    metrics = {"trained": 100.0 * (error < STARTED), "train_error": error}
    batches = math.ceil(len(load(data, images).train) / recipe["batch_size"])
    # Of a run that was resumed, the errors before that are lost.
    if len(loss.errors) >= batches * len(history.get("train_error", [])):
        metrics["steps"] = steps_to_start(loss.errors, batches * recipe["epochs"])
    return {**metrics, "history": history}


def steps_to_start(errors: list[float], most: int, window: int = WINDOW) -> int:
    """The first step, from 1, at which the mean error of the last batches is below `STARTED`; `most` if there is none.

    >>> steps_to_start([90.0, 90.0, 76.0, 78.0, 70.0], 5, window=2), steps_to_start([90.0, 70.0], 5, window=2)
    (4, 5)
    """
    means = torch.tensor(errors).unfold(0, window, 1).mean(1) if len(errors) >= window else torch.empty(0)
    below = (means < STARTED).nonzero()
    return int(below[0]) + window if len(below) else most


def trained(results: Results) -> dict[str, str]:
    """How many runs of each network trained."""
    shares = {row: results[row, TRAINED] for row, column in results.cells if column == TRAINED}
    return {row: f"{int((values > 0).sum())} of {len(values)}" for row, values in shares.items()}


SMALL: dict[str, Any] = {
    "data": "cifar10",
    "images": 5000,
    "pool": 4,
    "residual": {"width": 0.25},
    "recipe": {"epochs": 5, "steps": []},
}
deep = Study(
    "structure/deep",
    "The share of runs in which networks of 110 layers begin to learn without warm-up",
    run,
    rows=ROWS | WARM_UP,
    columns={
        TRAINED: Column("trained", share=True, best="highest", digits=0),
        ERROR: Column("train_error"),
        STEPS: Column("steps", digits=0),
    },
    scales={
        "full": Scale({"data": "cifar10", "decay": DECAY}, {"seed": range(5)}),
        "cpu": Scale(
            {
                "data": "cifar10",
                "pool": 4,
                "residual": {"width": 0.25},
                "recipe": {"epochs": 10, "steps": []},
            },
            {"seed": range(8)},
            rows={row: {} for row in ROWS},
        ),
        "small-40": Scale(SMALL, {"seed": range(100, 140)}, rows={row: {} for row in (CONTROL, HBNET)}),
        "small": Scale(SMALL, {"seed": range(5)}, rows={row: {} for row in ROWS}, columns=(TRAINED, ERROR)),
        "smoke": Scale(
            {
                "data": "digits",
                "images": 64,
                "residual": {"depth": 8, "width": 0.25},
                "recipe": {"epochs": 1, "augment": []},
            },
            {"seed": [0]},
        ),
    },
    config={
        "family": "residual",
        "residual": {"name": "resnet_cifar", "depth": 110},
        "recipe": {**RECIPE, "augment": AUGMENT},
    },
    paired=False,
    claims=[
        Claim(
            "Section 7.2",
            "ResNet-110 needs warm-up or several attempts to converge; HB-Net-110 does not.",
            higher(HBNET, RESNET, TRAINED),
        ),
        Claim(
            "Section 7.2, control",
            "HB-Net-110 trains more often than ResNet-110 without ReLU after the sum: momentum is the cause.",
            higher(HBNET, CONTROL, TRAINED),
        ),
        Claim(
            "Section 7.2, control, steps",
            "HB-Net-110 begins to learn in fewer steps than ResNet-110 without ReLU after the sum.",
            lower(HBNET, CONTROL, STEPS),
        ),
        Claim(
            "Section 7.2, warm-up",
            "ResNet-110 trains more often with warm-up than without.",
            higher(WARMED, RESNET, TRAINED),
        ),
    ],
    figures=[curves],
)
STUDIES = [deep]
