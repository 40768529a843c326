"""structure Section 7.2: how often deep networks train at all."""

from typing import Any

from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.structure.images import AUGMENT, RECIPE, train
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Cell, Table
from relucid.train import DivergedError, Machine

HBNET = "HB-Net-110"
CONTROLS: dict[str, dict[str, Any]] = {
    "ResNet-110": {"design": {}},
    "ResNet-110 without ReLU after the sum": {"design": {"rectify": "nowhere"}},
}
ROWS = CONTROLS | {HBNET: {"design": {"propagation": "heavy_ball"}}}
TRAINED = "trained %"
STARTED = 80.0  # training error in percent, by which He et al. tell that ResNet-110 has begun to learn


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network; whether it learns (100) or not (0), and its last training error, both in percent."""
    try:
        history = train(config, machine)[0].history
        error = history["train_error"][-1]
    except DivergedError as diverged:
        history, error = diverged.history, 100.0
    return Result({"trained": 100.0 * (error < STARTED), "train_error": error}, history)


RUNNER = Runner("structure/deep", run)


def verdict(table: Table) -> str:
    """How many runs of each network have trained, and what HB-Net's advantage is worth."""
    from scipy.stats import fisher_exact

    counts = {row: _trained(table.cells[row, TRAINED]) for row in ROWS}
    listed = ", ".join(f"{row} {yes} of {yes + no}" for row, (yes, no) in counts.items())
    chances = [
        f"p = {fisher_exact([counts[HBNET], counts[row]]).pvalue:.2g} against {row}" for row in CONTROLS
    ]
    return f"Runs that trained: {listed}. Fisher's exact test of HB-Net: {', '.join(chances)}."


def _trained(cell: Cell) -> tuple[int, int]:
    """How many runs have trained, and how many have not."""
    yes = sum(value > 0 for value in cell.values)
    return yes, len(cell.values) - yes


STUDY = Study(
    name="structure/deep",
    title="The share of runs in which networks of 110 layers begin to learn, without warming up",
    run=RUNNER,
    rows=ROWS,
    columns={
        TRAINED: Column("trained", best="highest", digits=0),
        "training error %": Column("train_error"),
    },
    scales={
        "full": Scale({"data": "cifar10"}, {"seed": range(5)}, seconds=150_000),
        "small": Scale(
            {
                "data": "cifar10",
                "images": 5000,
                "pool": 4,
                "residual": {"width": 0.25},
                "recipe": {"epochs": 5, "steps": []},
            },
            {"seed": range(5)},
            seconds=40,
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
        "al. end the warming up that they need for ResNet-110; one whose loss ceases to be finite has not. The recipe "
        "is Table 4's, at a learning rate of 0.1. Full scale: 300 epochs. Small scale: all 110 layers at a quarter of "
        "the width and the first 5 epochs, 395 steps, on 5,000 images averaged over 4x4 pixels. "
        "A second rate, 0.5, was given up for more seeds after a look at seed 0, which is among them."
    ),
    claim=(
        "ResNet-110 needs warming up or repeated attempts to converge, and HB-Net-110 trains at the first attempt by "
        "the same recipe."
    ),
    verdict=verdict,
    figures="relucid.report.structure:training",
)
