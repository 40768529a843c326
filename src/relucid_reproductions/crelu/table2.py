"""crelu Table 2: CReLU in the first layers of VGG-16 for CIFAR."""

from typing import Any, Literal

from torch import nn

from relucid.experiments import Claim, Column, Scale, Study, by_cell, lower, not_worse, runner, tuning
from relucid.models import create
from relucid.train import Machine, Recipe
from relucid_reproductions.crelu.protocols import AVERAGE, SINGLE, TEN_FOLDS, TRIES_RATE, outcome
from relucid_reproductions.images import images as load

BASELINE, THREE = "VGG", "(conv1,3)"
LAYERS = ("conv1", "conv1,3", "conv1,3,5")
TRAIN, TEST = "Single, train %", "Single %"
COLUMNS = {TRAIN: Column("train_error", SINGLE, best=None), TEST: Column("error", SINGLE), **TEN_FOLDS}
PUBLISHED = (TEST, *TEN_FOLDS)
CIFAR10 = {
    BASELINE: [6.35, (6.90, 0.03), 5.43],
    "(conv1)": [6.18, (6.45, 0.05), 5.22],
    THREE: [5.94, (6.45, 0.02), 5.09],
    "(conv1,3,5)": [6.06, (6.45, 0.07), 5.16],
}
CIFAR100 = {
    BASELINE: [28.99, (30.27, 0.09), 26.85],
    "(conv1)": [27.29, (28.43, 0.11), 24.67],
    THREE: [26.52, (27.79, 0.08), 23.93],
    "(conv1,3,5)": [26.16, (27.67, 0.07), 23.66],
}

# Table 3: what other papers had reached, on CIFAR-10 and CIFAR-100.
OTHERS = {
    "Rippel et al., 2015": [8.60, 31.60],
    "Snoek et al., 2015": [6.37, 27.40],
    "Liang & Hu, 2015": [7.09, 31.75],
    "Lee et al., 2016": [6.05, 32.37],
    "Srivastava et al., 2015": [7.60, 32.24],
}


@runner("crelu/vgg")
def run(
    data: str, variant: str, width: float, train: int | None, test: int | None, dropout: float, lr: float,
    epochs: int, halved: int, batch_size: int, seed: int = 0, dampening: float = 0.0,
    decay: Literal["groups", "all"] = "groups", begin: str = "", machine: Machine | None = None, **protocol: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train VGG-16 with CReLU after some layers, with flips and random shifts, and test it by a protocol."""
    parts = load(data, train, test, seed)
    recipe = Recipe(
        epochs=epochs, lr=lr, steps=range(halved, epochs, halved), factor=0.5, weight_decay=5e-4,
        batch_size=batch_size, dampening=dampening, decay=decay, augment=("flip", "crop"),
    )  # fmt: skip

    def build() -> nn.Module:
        channels, name = parts.train.inputs.shape[1], f"crelu/vgg16-{variant}"
        network = create(name, num_classes=parts.classes or 0, in_channels=channels, width=width)
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p *= dropout
        return as_in_source(network) if begin == "source" else network

    return outcome(build, parts, recipe, machine, seed=seed, **protocol)


def as_in_source(network: nn.Module) -> nn.Module:
    """Set a network up as szagoruyko/cifar.torch's vgg_bn_drop: its batch norms, its initial convolutions."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


# Zagoruyko's settings, which the paper follows.
FULL: dict[str, Any] = {
    "width": 1, "train": None, "test": None, "share": 0.2, "folds": 10, "epochs": 300, "batch_size": 128,
    "dropout": 1,  # factor on the ratios of Tables S4 to S7
    "halved": 25,  # epochs between halvings of the rate
}  # fmt: skip
# Zagoruyko's optimizer dampens gradients, v <- 0.9 v + 0.1 g: its rate of 1 equals a rate of 0.1 without dampening.
# It decays all parameters.
OPTIMIZER = {"dampening": 0.9, "decay": "all", "begin": "source"}
SMALL = {
    "data": "cifar10", "width": 0.125, "train": 5000, "test": 5000, "dropout": 0, "epochs": 12, "halved": 3,
    "batch_size": 64,
}  # fmt: skip
# Trained for all epochs: where training stops at a loss, the moment varies. A rate is tried on images of its own.
CPU = {
    "data": "cifar10", "width": 0.25, "train": 10_000, "share": 0, "folds": 5, "dropout": 0, "epochs": 30,
    "halved": 6, "batch_size": 64,
}  # fmt: skip
SMOKE = {"data": "digits", "width": 0.0625, "train": 200, "test": 20, "epochs": 1}
RATES = (0.01, 0.03, 0.1, 0.3)
CHOSEN = dict.fromkeys((BASELINE, THREE), 0.03)  # by the held-out errors of crelu/vgg-rates


def full(data: str) -> Scale:
    """The paper's scale."""
    return Scale(FULL | OPTIMIZER | {"data": data})


def claim(where: str) -> Claim:
    """What Table 2 claims."""
    says = "CReLU after conv1, 3 and 5, with half their filters, lowers the error of VGG."
    return Claim(where, says, lower([f"({layers})" for layers in LAYERS], BASELINE, (TEST, AVERAGE)))


VGG = Study(
    "crelu/vgg",
    "CReLU after the first layers of VGG-16 on CIFAR-10",
    run,
    {BASELINE: {"variant": "baseline"}, **{f"({layers})": {"variant": layers} for layers in LAYERS}},
    COLUMNS,
    {
        "full": full("cifar10"),
        "cpu": Scale(
            FULL | CPU,
            {"seed": range(10)},
            {row: {"lr": rate} for row, rate in CHOSEN.items()},
            (TRAIN, TEST),
        ),
        "small": Scale(FULL | SMALL, {"lr": [0.1, 0.03, 0.01], "fold": range(3)}, columns=PUBLISHED),
        "smoke": Scale(FULL | SMOKE, {"lr": [0.1], "fold": [0, 1], "seed": [0]}),
    },
    choose={"lr": [1.0]},
    published=by_cell(CIFAR10, PUBLISHED),
    claims=[claim("Tables 2, 3, CIFAR-10")],
)
TRIED = tuning(VGG, RATES, lambda rate: TRIES_RATE | {"fold": 4, "seed": 100, "lr": rate}, examples=2000)
VGG = VGG.variant("crelu/vgg", tuning={"cpu": TRIED})
VGG100 = VGG.variant(
    "crelu/vgg-100",
    "CReLU after the first layers of VGG-16 on CIFAR-100",
    scales={"full": full("cifar100"), "smoke": VGG.scales["smoke"]},
    published=by_cell(CIFAR100, PUBLISHED),
    tuning={},
    claims=[claim("Table 2, CIFAR-100")],
)
AVRS = {f"AVR ({layers})": {"variant": f"avr-{layers}"} for layers in (*LAYERS, "all")}
MARGIN = 0.2  # point of test error: half of the gain that Table 2 claims
FOOTNOTES = VGG.variant(
    "crelu/vgg-footnotes",
    "CReLU after other layers of VGG-16, and AVR, on CIFAR-10",
    rows={
        BASELINE: {"variant": "baseline"},
        **{f"({layer})": {"variant": layer} for layer in ("conv2", "conv4")},
        **AVRS,
    },
    scales={name: VGG.scales[name] for name in ("full", "smoke")},
    published={},
    tuning={},
    claims=[
        Claim(
            "Table 2, footnote 5",
            "CReLU after conv2 or conv4, before max-pooling, does not lower the error of VGG.",
            not_worse(BASELINE, ("(conv2)", "(conv4)"), TEST, MARGIN),
        ),
        Claim(
            "Table 2, footnote 4",
            "AVR does not lower the error of VGG.",
            not_worse(BASELINE, tuple(AVRS), TEST, MARGIN),
        ),
    ],
)
STUDIES = [VGG, TRIED, VGG100, FOOTNOTES]
