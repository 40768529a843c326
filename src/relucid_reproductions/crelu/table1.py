"""crelu Table 1: ReLU, AVR and CReLU in ConvPool-CNN-C."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split
from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Scale,
    Study,
    by_cell,
    higher,
    lower,
    not_worse,
    runner,
    tuning,
)
from relucid.models import create
from relucid.train import Fitted, Machine, Recipe
from relucid_reproductions.crelu.measures import measured
from relucid_reproductions.crelu.protocols import AVERAGE, SINGLE, TEN_FOLDS, TRIES_RATE, VOTE, outcome
from relucid_reproductions.images import images as load

BASELINE, DOUBLE, AVR, CRELU, HALF = "Baseline", "Baseline (double)", "AVR", "CReLU", "CReLU (half)"
TRAIN, TEST = "Single, train %", "Single, test %"
COLUMNS = (TRAIN, TEST, AVERAGE, VOTE)
CIFAR10 = {
    BASELINE: [1.09, 9.17, (10.20, 0.09), 7.55],
    DOUBLE: [0.47, 8.65, (9.87, 0.09), 7.28],
    AVR: [4.10, 8.32, (10.26, 0.10), 7.76],
    CRELU: [4.23, 8.43, (9.39, 0.11), 7.09],
    HALF: [4.73, 8.37, (9.44, 0.09), 7.09],
}
CIFAR100 = {
    BASELINE: [13.68, 36.30, (38.52, 0.12), 31.26],
    DOUBLE: [6.03, 34.77, (36.73, 0.15), 28.34],
    AVR: [19.35, 35.00, (37.24, 0.20), 29.77],
    CRELU: [14.25, 31.48, (33.76, 0.12), 27.60],
    HALF: [21.01, 33.68, (36.20, 0.18), 29.93],
}


@runner("crelu/convpool")
def run(
    data: str, variant: str, width: float, train: int | None, test: int | None, dropout: Sequence[float],
    lr: float, epochs: int, steps: Sequence[float], weight_decay: float, batch_size: int, images: int, samples: int,
    seed: int = 0, pool: int = 1, machine: Machine | None = None, **protocol: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train a ConvPool network as crelu 3.1 says, and test it; one of "Single" is measured as well.

    The settings of the protocol are those of `outcome`.
    """
    parts = load(data, train, test, seed, pool)
    recipe = Recipe(
        epochs=epochs, lr=lr, steps=steps, weight_decay=weight_decay, batch_size=batch_size, augment=("flip",)
    )

    def measure(fitted: Fitted) -> Any:
        torch.manual_seed(seed)  # random filters are drawn
        assert isinstance(fitted.network, nn.Sequential)
        return measured(fitted.network, fitted.moments.normalize(parts.test.inputs[:images]), samples)

    def build() -> nn.Module:
        return network(variant, parts, width, dropout)

    return outcome(build, parts, recipe, machine, measure, seed=seed, **protocol)


def network(variant: str, data: Data[Split], width: float, dropout: Sequence[float]) -> nn.Sequential:
    """One of the five networks, with dropout of the input and after each pooling."""
    channels, name = data.train.inputs.shape[1], f"crelu/convpool-{variant}"
    net = create(name, num_classes=data.classes or 0, in_channels=channels, width=width)
    layers: OrderedDict[str, nn.Module] = OrderedDict(dropout0=nn.Dropout(dropout[0]))
    for name, module in net.named_children():
        layers[name] = module
        if name.startswith("pool"):
            layers[f"dropout_{name}"] = nn.Dropout(dropout[1])
    return nn.Sequential(layers)


VARIANTS = {BASELINE: "baseline", DOUBLE: "double", AVR: "avr", CRELU: "crelu", HALF: "half"}
ROWS = {row: {"variant": variant} for row, variant in VARIANTS.items()}
# Where the paper is silent, the setting of the works that it names: rates, decay, steps and dropout of ConvPool-CNN-C
# are Springenberg et al.'s, the share that "Single" holds out is Goodfellow et al.'s.
FULL: dict[str, Any] = {
    "width": 1, "train": None, "test": None, "share": 0.2, "folds": 10, "dropout": [0.2, 0.5], "epochs": 350,
    "steps": [200, 250, 300], "weight_decay": 0.001, "batch_size": 128,
    "images": 10_000,  # for invariance scores
    "samples": 1000,  # images that are reconstructed
}  # fmt: skip
# "In most of our experiments, we only tune dropout rate" (crelu 3): the source's, half of it, none.
CHOOSE: dict[str, list[Any]] = {"lr": [0.25, 0.1, 0.05, 0.01], "dropout": [[0.2, 0.5], [0.1, 0.25], [0, 0]]}
NONE = {"dropout": [[0, 0]]}
LESS = FULL | {"data": "cifar10", "dropout": [0, 0], "images": 250, "samples": 32}
# All images, and just enough width and epochs that the baseline misclassifies less than 30% of them.
CPU = LESS | {
    "width": 0.25, "pool": 2, "share": 0, "epochs": 12, "steps": [8, 10], "batch_size": 64, "images": 1000,
}  # fmt: skip
# Small batches, for rectified logits leave the plateau at the start only after some hundreds of steps.
SMALL = LESS | {
    "width": 0.125, "train": 5000, "test": 5000, "pool": 2, "epochs": 20, "steps": [14, 17], "batch_size": 32,
}  # fmt: skip
SMOKE = LESS | {"data": "digits", "width": 0.0625, "train": 200, "test": 50, "epochs": 1, "steps": []}
RATES = (0.005, 0.01, 0.02, 0.03, 0.1)
CHOSEN = {BASELINE: 0.03, HALF: 0.02}  # by the held-out errors of crelu/convpool-rates
FOUR = CHOSEN | {CRELU: 0.01, DOUBLE: 0.02}


def scales(
    rows: Iterable[str] = ROWS, columns: Sequence[str] | None = None, data: str = "cifar10"
) -> dict[str, Scale]:
    """The scales of a study of these rows; some columns are all that those on two cores show."""

    def at_rates(chosen: Mapping[str, float]) -> Scale:
        rates = {row: {"lr": rate} for row, rate in chosen.items() if row in rows}
        return Scale(CPU, {"seed": range(5), **NONE}, rates, columns)

    below = {
        "cpu-four": at_rates(FOUR),
        "cpu": at_rates(CHOSEN),
        "small": Scale(SMALL, {"lr": [0.05, 0.01], "fold": range(3), **NONE}),
    }
    return {
        "full": Scale(FULL | {"data": data}),
        **(below if data == "cifar10" else {}),
        "smoke": Scale(SMOKE, {"lr": [0.05], "fold": [0, 1], "seed": [0], **NONE}),
    }


def gap(row: str) -> Quantity:
    """By how much the test error exceeds the training error."""
    cells = [Cell(row, TEST), Cell(row, TRAIN)]
    return Quantity(f"{row}, test error minus training error", cells, lambda test, train: test - train)


def claims(data: str) -> list[Claim]:
    """What Table 1 claims of a data set."""
    where, hundred = f"Table 1, {data}", data == "CIFAR-100"
    capacity = Claim(
        f"{where}, capacity",
        "Networks with twice the filters have a lower error, with ReLU and with CReLU.",
        lower(DOUBLE, BASELINE, (TEST, AVERAGE)) + lower(CRELU, HALF, (TEST, AVERAGE)),
        stated="2026-11-19",
    )
    return [
        Claim(
            where,
            "CReLU with half the filters has a lower error than ReLU with as many neurons and twice the parameters.",
            lower(HALF, BASELINE, (TEST, AVERAGE)),
        ),
        Claim(
            f"{where}, half the parameters",
            "CReLU with half the filters is at most 1 point worse than ReLU, with half the parameters.",
            not_worse(HALF, BASELINE, TEST, margin=1.0),
        ),
        Claim(
            f"{where}, gap",
            "The gap between test and training error is smaller with CReLU than with ReLU.",
            [Contrast(gap(row), gap(BASELINE), "lower", paired=True) for row in (CRELU, HALF)],
            stated="2026-11-17",
        ),
        Claim(
            f"{where}, double",
            "CReLU has a lower error than ReLU with twice the filters and twice CReLU's parameters.",
            lower(CRELU, DOUBLE, (TEST, AVERAGE)),
            stated="2026-11-17",
        ),
        Claim(
            f"{where}, AVR",
            f"AVR has a lower error than ReLU{'' if hundred else ' by a single network'}.",
            lower(AVR, BASELINE, (TEST, AVERAGE) if hundred else TEST),
            stated="2026-11-17",
        ),
        Claim(
            f"{where}, AVR against CReLU",
            "Averaged over ten folds, AVR has a higher error than CReLU.",
            higher(AVR, CRELU, AVERAGE),
            stated="2026-11-17",
        ),
        *([capacity] if hundred else []),
    ]


CONVPOOL = Study(
    "crelu/convpool",
    "ReLU, AVR and CReLU in ConvPool-CNN-C on CIFAR-10",
    run,
    ROWS,
    {TRAIN: Column("train_error", SINGLE, best=None), TEST: Column("error", SINGLE), **TEN_FOLDS},
    scales(columns=(TRAIN, TEST)),
    choose=CHOOSE,
    published=by_cell(CIFAR10, COLUMNS),
    claims=claims("CIFAR-10"),
)
TRIED = tuning(CONVPOOL, RATES, lambda rate: TRIES_RATE | {"lr": rate}, scales=("cpu", "cpu-four"))
CONVPOOL = CONVPOOL.variant("crelu/convpool", tuning={"cpu": TRIED, "cpu-four": TRIED})
CONVPOOL100 = CONVPOOL.variant(
    "crelu/convpool-100",
    "ReLU, AVR and CReLU in ConvPool-CNN-C on CIFAR-100",
    scales=scales(data="cifar100"),
    published=by_cell(CIFAR100, COLUMNS),
    tuning={},
    claims=claims("CIFAR-100"),
)


def measuring(name: str, title: str, columns: Mapping[str, Column], **fields: Any) -> Study:
    """A study of what the networks of Table 1 have learned: its runs are those of "Single"."""
    rows, data = fields.setdefault("rows", ROWS), "cifar100" if name.endswith("-100") else "cifar10"
    base = CONVPOOL100 if data == "cifar100" else CONVPOOL
    settings = {"published": {}, "paired": False, "scales": scales(rows, data=data)}
    return base.variant(name, title, columns=columns, **settings | fields)


STUDIES = [CONVPOOL, TRIED, CONVPOOL100]
