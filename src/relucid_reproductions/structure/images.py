"""What the studies of structure do with images: load them, build a network, train it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split, cifar10, cifar100, digits, holdout, imagenet
from relucid.models import Design, create
from relucid.models.design import CHOICES
from relucid.train import Fitted, Machine, Recipe
from relucid_reproductions.images import channels, part, trained

# structure Section 7.1, for CIFAR; the schedule is that of the DenseNet paper.
RECIPE = {
    "epochs": 300,
    "batch_size": 64,
    "optimizer": "nesterov",
    "lr": 0.1,
    "weight_decay": 1e-4,
    "steps": [0.5, 0.75],
}
AUGMENT = ["flip", "crop"]
# structure 7.1 trains both families by the strategies of the DenseNet paper, whose source decays all parameters.
DECAY = {"residual": "all", "dense": "all"}


def noise(images: int = 8, pixels: int = 64, classes: int = 1000) -> Data[Split]:
    """Random images, to see that a recipe starts."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (images, 3, pixels, pixels), dtype=torch.uint8, generator=generator)
    part = Split(inputs, torch.arange(images) % classes)
    return Data(part, part, classes)


SETS: dict[str, Callable[[], Data[Any]]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "imagenet": partial(imagenet, resized=True),
    "imagenet-crops": imagenet,
    "noise": noise,
}


def load(data: str, images: int | None = None) -> Data[Any]:
    """A data set, with so many training images only, its first ones."""
    return part(SETS[data](), images)


def build(
    data: Data[Any], backbone: Mapping[str, Any], design: Mapping[str, Any], pool: int = 1
) -> nn.Module:
    """A design on a backbone; so many pixels a side become one first."""
    network = create(
        **backbone,
        **{name: value for name, value in design.items() if name not in CHOICES},
        design=Design.from_dict({name: value for name, value in design.items() if name in CHOICES}),
        num_classes=data.classes or 0,
        in_channels=channels(data.train),
    )
    return network if pool == 1 else nn.Sequential(nn.AvgPool2d(pool), network)


def train(
    data: str,
    family: str,
    design: Mapping[str, Any],
    recipe: Mapping[str, Any],
    seed: int,
    residual: Mapping[str, Any] | None = None,
    dense: Mapping[str, Any] | None = None,
    decay: Mapping[str, Any] | None = None,
    images: int | None = None,
    pool: int = 1,
    share: float = 0.0,
    machine: Machine | None = None,
) -> tuple[Fitted, Data[Any]]:
    """Train a network: these are the settings of all studies on images. Returns it, and the data.

    Args:
        data: one of `SETS`.
        family: "residual" or "dense".
        design: of the row.
        recipe: of training.
        seed: of initial weights, order, and what is held out.
        residual: the backbone of that family.
        dense: the same.
        decay: what weight decay acts on, by family; by default not on norms.
        images: how many training images.
        pool: how many pixels a side become one.
        share: of the training images that is held out.
        machine: what to train on.
    """
    parts, backbone = load(data, images), {"residual": residual, "dense": dense}[family] or {}
    rest, held = holdout(parts.train, share, seed) if share else (parts.train, None)
    training = Recipe(**recipe, decay=(decay or {}).get(family, "groups"))
    make = partial(build, parts, backbone, design, pool)
    return trained(make, rest, training, held, seed=seed, machine=machine), parts
