"""structure Section 7.2: how often deep networks train at all."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from relucid.papers.structure.images import AUGMENT, DECAY, DECAYS_ALL, RECIPE, load, train
from relucid.report.curves import training
from relucid.studies import Claim, Column, Higher, Lower, Result, Runner, Scale, Study, Table
from relucid.studies.plan import merge
from relucid.train import DivergedError, Machine
from relucid.train.measure import error as error_of

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


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network; record whether it learns (100) or not (0), after how many steps, and its training error."""
    recipe, loss = config["recipe"], Noting()
    try:
        history = train(merge(config, {"recipe": {"loss": loss}}), machine)[0].history
        error = history["train_error"][-1]
    except DivergedError as diverged:
        history, error = diverged.history, 100.0
    metrics = {"trained": 100.0 * (error < STARTED), "train_error": error}
    batches = math.ceil(len(load(config).train) / recipe["batch_size"])
    # Of a run that was resumed, the errors before that are lost.
    if len(loss.errors) >= batches * len(history.get("train_error", [])):
        metrics["steps"] = steps_to_start(loss.errors, batches * recipe["epochs"])
    return Result(metrics, history)


def steps_to_start(errors: list[float], most: int, window: int = WINDOW) -> int:
    """The first step, from 1, at which the mean error of the last batches is below `STARTED`; `most` if there is none.

    >>> steps_to_start([90.0, 90.0, 76.0, 78.0, 70.0], 5, window=2), steps_to_start([90.0, 70.0], 5, window=2)
    (4, 5)
    """
    means = torch.tensor(errors).unfold(0, window, 1).mean(1) if len(errors) >= window else torch.empty(0)
    below = (means < STARTED).nonzero()
    return int(below[0]) + window if len(below) else most


RUNNER = Runner("structure/deep", run)


def trained(table: Table) -> str:
    """How many runs of each network trained, as a list."""
    cells = {
        row: table.cells[row, TRAINED].values for row in table.study.rows if (row, TRAINED) in table.cells
    }
    return ", ".join(
        f"{row} {sum(value > 0 for value in values)} of {len(values)}" for row, values in cells.items()
    )


def counts(table: Table) -> str:
    """Count the runs of each network that trained: the control has no momentum, and no ReLU after the sum either."""
    return f"Runs that trained: {trained(table)}."


SMALL: dict[str, Any] = {
    "data": "cifar10",
    "images": 5000,
    "pool": 4,
    "residual": {"width": 0.25},
    "recipe": {"epochs": 5, "steps": []},
}

STUDY = Study(
    name="structure/deep",
    title="The share of runs in which networks of 110 layers begin to learn without warm-up",
    run=RUNNER,
    rows=ROWS | WARM_UP,
    columns={
        TRAINED: Column("trained", summary="share", best="highest", digits=0),
        ERROR: Column("train_error"),
        STEPS: Column("steps", digits=0, optional=True),
    },
    scales={
        "full": Scale(
            {"data": "cifar10", "decay": DECAY}, {"seed": range(5)}, seconds=150_000, protocol=DECAYS_ALL
        ),
        "cpu": Scale(
            {
                "data": "cifar10",
                "pool": 4,
                "residual": {"width": 0.25},
                "recipe": {"epochs": 10, "steps": []},
            },
            {"seed": range(8)},
            seconds=750,
            rows={row: {} for row in ROWS},
            protocol=(
                "Designed before any of it was run: by Fisher's exact test, eight runs that all train differ from "
                "three of eight (p = 0.026), not from four."
            ),
        ),
        "small-40": Scale(
            SMALL,
            {"seed": range(100, 140)},
            seconds=35,
            rows={row: {} for row in (CONTROL, HBNET)},
            protocol=(
                "The seeds are new. Designed before any of it was run, with sixty seeds, and cut to forty for want of "
                "time before any outcome was looked at: by Fisher's exact test, forty runs that all train differ from "
                "34 (p = 0.026), not from 35."
            ),
        ),
        "small": Scale(
            SMALL,
            {"seed": range(5)},
            seconds=40,
            rows={row: {} for row in ROWS},
            columns=(TRAINED, ERROR),
        ),
        "smoke": Scale(
            {
                "data": "digits",
                "images": 64,
                "residual": {"depth": 8, "width": 0.25},
                "recipe": {"epochs": 1, "augment": []},
            },
            {"seed": [0]},
            seconds=1,
        ),
    },
    config={
        "family": "residual",
        "residual": {"name": "resnet_cifar", "depth": 110},
        "recipe": RECIPE | {"augment": AUGMENT},
    },
    source="structure Section 7.2",
    protocol=(
        f"A run has trained if the training error of its last epoch is below {STARTED:.0f}%, the mark at which He et "
        "al. end the warm-up that ResNet-110 needs, a rate of 0.01; a run whose loss is no longer finite has not. "
        f"Steps are counted until the mean error of the last {WINDOW} batches is below the mark, all of them if it "
        "never is. The recipe is Table 4's, 300 epochs at a rate of 0.1. After a look at seed 0, one of those at "
        "small scale, a second rate of 0.5 was dropped in favour of more seeds."
    ),
    claims=(
        Claim(
            "Section 7.2",
            "ResNet-110 needs warm-up or several attempts to converge; HB-Net-110 does not.",
            (Higher(HBNET, than=RESNET, columns=TRAINED),),
            remark=counts,
            erratum='"k = 12 and L = 50" means L = 52.',
            code=("relucid.papers.structure.section7_2.run",),
        ),
        Claim(
            "Section 7.2, control",
            "HB-Net-110 trains more often than ResNet-110 without ReLU after the sum: momentum is the cause.",
            (Higher(HBNET, than=CONTROL, columns=TRAINED),),
            note="Our control: the paper has none.",
            code=("relucid.papers.structure.section7_2.run",),
        ),
        Claim(
            "Section 7.2, control, steps",
            "HB-Net-110 begins to learn in fewer steps than ResNet-110 without ReLU after the sum.",
            (Lower(HBNET, than=CONTROL, columns=STEPS),),
            note="Ours: the same question as a continuous outcome, stated before its runs.",
            code=("relucid.papers.structure.section7_2.steps_to_start",),
        ),
        Claim(
            "Section 7.2, warm-up",
            "ResNet-110 trains more often with warm-up than without.",
            (Higher(WARMED, than=RESNET, columns=TRAINED),),
            note="Cited from He et al.",
            code=("relucid.train.Recipe",),
            tests=("train/test_fit.py::test_training_warms_up_until_its_training_error_is_low_enough",),
        ),
    ),
    figures=training,
)
