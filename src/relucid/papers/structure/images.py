"""What the studies of structure do with images: load them, build a network, train it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split, cifar10, cifar100, digits, holdout, imagenet
from relucid.models import Design, create
from relucid.models.design import CHOICES
from relucid.train import Fitted, Machine, Recipe, fit

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
DECAYS_ALL = "Weight decay acts on all parameters, as in the source of DenseNet."


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
    "noise": noise,
}


def load(config: dict[str, Any]) -> Data[Any]:
    """The data set `config["data"]`; where "images" says so, with so many training images only, its first ones."""
    data = SETS[config["data"]]()
    if config.get("images") is None:
        return data
    return Data(data.train.take(range(config["images"])), data.test, data.classes)


def build(config: dict[str, Any], data: Data[Any]) -> nn.Module:
    """The network of a run; "pool" pixels a side become one first."""
    assert data.classes is not None
    channels = data.train.batch(torch.tensor([0]))[0].shape[1]
    torch.manual_seed(config["seed"])
    network = backbone(config, data.classes, channels)
    pool = config.get("pool", 1)
    return network if pool == 1 else nn.Sequential(nn.AvgPool2d(pool), network)


def backbone(config: Mapping[str, Any], classes: int, channels: int) -> nn.Module:
    """The row's design on the backbone of its family."""
    design = Design.from_dict({name: value for name, value in config["design"].items() if name in CHOICES})
    options = {name: value for name, value in config["design"].items() if name not in CHOICES}
    settings = {**config[config["family"]], **options}
    return create(**settings, design=design, num_classes=classes, in_channels=channels)


def train(config: dict[str, Any], machine: Machine) -> tuple[Fitted, Data[Any]]:
    """A network trained by the run's recipe, and the data; where "share" says so, a share of the images is held out."""
    data = load(config)
    decay = config.get("decay", {}).get(config["family"], "groups")
    recipe, seed = Recipe(**config["recipe"], decay=decay), config["seed"]
    share = config.get("share", 0.0)
    rest, held = holdout(data.train, share, seed) if share else (data.train, None)
    return fit(build(config, data), rest, recipe, held, seed=seed, machine=machine), data
