"""Ours: CReLU with half the filters, by one line on two networks, trained beside the originals."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from relucid.convert import to_crelu
from relucid.data import digits
from relucid.experiments import Cell, Claim, Column, Contrast, Scale, Study, runner
from relucid.models import count_parameters, create
from relucid.randomness import seeded
from relucid.train import Machine, Recipe, fit

FILTERS = (1, 32, 64, 128, 128, 128, 128)  # of the plain network, after the image's one channel
POOLED = (0, 1, 3)  # the convolutions after which the image is halved
NETWORKS = ("vgg", "resnet20")
ORIGINAL, HALVED = "original", 'to_crelu(mode="halve")'
ERROR, MARGIN = "test error %", 1.0


def build(network: str, halved: bool) -> nn.Module:
    """Build a network for digits (N, 1, 8, 8)."""
    net: nn.Module = (
        create("resnet20", num_classes=10, in_channels=1, width=0.5) if network == "resnet20" else vgg()
    )
    return to_crelu(net, torch.zeros(2, 1, 8, 8), mode="halve").model if halved else net


def vgg() -> nn.Module:
    """Build six 3 x 3 convolutions, each with batch norm and ReLU, and a linear layer."""
    layers: list[nn.Module] = []
    for place, (channels, filters) in enumerate(pairwise(FILTERS)):
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * (place in POOLED)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FILTERS[-1], 10))


@runner("halve")
def run(
    network: str, halved: bool, epochs: int, lr: float, images: int, seed: int, machine: Machine | None = None
) -> dict[str, Any]:
    """Train one network on digits; its errors and parameters."""
    data = digits()
    with seeded(seed):
        net = build(network, halved)
    recipe = Recipe(epochs=epochs, batch_size=64, lr=lr, steps=(0.5, 0.75), weight_decay=5e-4)
    fitted = fit(net, data.train.take(range(images)), recipe, seed=seed, machine=machine)
    return {
        "error": fitted.evaluate(data.test)["error"],
        "train_error": fitted.history["train_error"][-1],
        "parameters": count_parameters(net),
    }


def row(network: str, kind: str) -> str:
    """The label of a row."""
    return f"{network}, {kind}"


STUDIES = [
    Study(
        "halve",
        "Half the filters and CReLU, by one line on a network, trained on digits beside the original",
        run,
        {
            row(network, kind): {"network": network, "halved": kind == HALVED}
            for network in NETWORKS
            for kind in (ORIGINAL, HALVED)
        },
        {
            ERROR: Column("error"),
            "training error %": Column("train_error", best=None),
            "parameters": Column("parameters", best=None, digits=0),
        },
        {
            "cpu": Scale({"epochs": 12, "images": 1437}, {"seed": range(5)}),
            "smoke": Scale({"epochs": 1, "images": 64}, {"seed": [0, 1]}),
        },
        config={"lr": 0.05},
        claims=[
            Claim(
                "halving",
                f"Halved, a network's test error is higher than the original's by less than {MARGIN:g} point.",
                [
                    Contrast(
                        Cell(row(network, HALVED), ERROR),
                        Cell(row(network, ORIGINAL), ERROR),
                        "not worse",
                        MARGIN,
                    )
                    for network in NETWORKS
                ],
            ),
        ],
    )
]
