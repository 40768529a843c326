"""crelu Table 2: CReLU in the first layers of VGG-16 for CIFAR."""

from typing import Any

from torch import nn

from relucid.models import create
from relucid.studies.crelu.pictures import pictures
from relucid.studies.crelu.protocols import AVERAGE, SINGLE, TEN_FOLDS, VOTE, tested, trained
from relucid.studies.run import Result
from relucid.studies.study import Column, Published, Scale, Study
from relucid.studies.table import Table
from relucid.studies.words import difference, mean
from relucid.train import Machine, Recipe

BASELINE = "VGG"
ROWS = {
    BASELINE: {"variant": "baseline"},
    **{f"({layers})": {"variant": layers} for layers in ("conv1", "conv1,3", "conv1,3,5")},
}
TEST = "Single %"
COLUMNS = {TEST: Column("error", SINGLE), **TEN_FOLDS}
# Zagoruyko's, which the paper follows.
FULL = {"width": 1, "train": None, "test": None, "share": 0.2, "folds": 10, "epochs": 300, "lr": 1.0}
SMOKE = Scale(
    FULL | {"data": "digits", "width": 0.0625, "train": 200, "test": 20, "epochs": 1, "lr": 0.1},
    {"fold": [0, 1], "seed": [0]},
    seconds=3,
)
CIFAR10: dict[str, tuple[Published, ...]] = {
    BASELINE: (6.35, (6.90, 0.03), 5.43),
    "(conv1)": (6.18, (6.45, 0.05), 5.22),
    "(conv1,3)": (5.94, (6.45, 0.02), 5.09),
    "(conv1,3,5)": (6.06, (6.45, 0.07), 5.16),
}
CIFAR100: dict[str, tuple[Published, ...]] = {
    BASELINE: (28.99, (30.27, 0.09), 26.85),
    "(conv1)": (27.29, (28.43, 0.11), 24.67),
    "(conv1,3)": (26.52, (27.79, 0.08), 23.93),
    "(conv1,3,5)": (26.16, (27.67, 0.07), 23.66),
}


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train VGG-16 with CReLU after some layers, with flips and random shifts, and test it."""
    data = pictures(config["data"], config["train"], config["test"], config["seed"])
    recipe = Recipe(
        epochs=config["epochs"],
        lr=config["lr"],
        steps=range(25, config["epochs"], 25),
        factor=0.5,
        weight_decay=5e-4,
        augment=("flip", "crop"),
    )

    def build() -> nn.Module:
        name, channels = f"crelu/vgg16-{config['variant']}", data.train.inputs.shape[1]
        return create(name, num_classes=data.classes or 0, in_channels=channels, width=config["width"])

    return tested(trained(build, data, recipe, config, machine), data)


def verdict(table: Table) -> str:
    """Every variant against VGG."""
    said = []
    for row in list(ROWS)[1:]:
        found = difference(table.cells[row, AVERAGE], table.cells[BASELINE, AVERAGE])
        votes = " against ".join(f"{mean(table.cells[each, VOTE]):.2f}" for each in (row, BASELINE))
        said.append(f"{row}: {found}, {found.judged()}; vote {votes}")
    return f'"Average", less that of VGG. {". ".join(said)}.'


def _study(name: str, data: str, title: str, figures: dict[str, tuple[Published, ...]]) -> Study:
    return Study(
        name=name,
        title=f"CReLU after the first layers of VGG-16 on {title}",
        run=run,
        rows=ROWS,
        columns=COLUMNS,
        scales={"full": Scale(FULL | {"data": data}), "smoke": SMOKE},
        published={row: dict(zip(COLUMNS, cells, strict=True)) for row, cells in figures.items()},
        source="crelu Table 2",
        claim="CReLU after conv1, 3 and 5, with half their filters, lowers the error of VGG.",
        verdict=verdict,
        protocol="Learning rate 1, halved every 25 of 300 epochs; no batch norm where CReLU stands, as printed.",
        baseline=BASELINE,
    )


STUDIES = (
    _study("crelu/vgg", "cifar10", "CIFAR-10", CIFAR10),
    _study("crelu/vgg-100", "cifar100", "CIFAR-100", CIFAR100),
)
