"""How studies of all papers take a part of some images, and train and test a network on it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import avg_pool2d

from relucid.data import Data, Examples, Split, cifar10, cifar100, digits
from relucid.models import count_parameters
from relucid.train import Fitted, Machine, Recipe, fit


def images(
    name: str, train: int | None = None, test: int | None = None, seed: int = 0, pool: int = 1
) -> Data[Split]:
    """CIFAR-10, CIFAR-100 or, where nothing is to be read, digits of 32 pixels; a random part of them if asked for.

    >>> data = images("digits", train=100)
    >>> data.train.inputs.shape, len(data.test)
    (torch.Size([100, 1, 32, 32]), 360)

    Args:
        name: "cifar10", "cifar100" or "digits".
        train: so many training images, drawn by ``seed``; all by default.
        test: the first so many test images; all by default.
        seed: of the draw.
        pool: so many pixels a side become one, their mean.
    """
    data = {"cifar10": cifar10, "cifar100": cifar100, "digits": lambda: enlarged(4)}[name]()
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    return part(Data(data.train.take(order[:train]), data.test, data.classes), None, test, pool)


def part(data: Data[Any], train: int | None = None, test: int | None = None, pool: int = 1) -> Data[Any]:
    """The first so many images, all by default, with the mean of so many pixels a side in place of each."""

    def taken(split: Any, count: int | None) -> Any:
        return shrunk(split if count is None else split.take(range(count)), pool)

    return Data(taken(data.train, train), taken(data.test, test), data.classes)


def enlarged(factor: int) -> Data[Split]:
    """Handwritten digits, each pixel of which has become a square."""
    data = digits()

    def enlarge(part: Split) -> Split:
        return Split(part.inputs.repeat_interleave(factor, 2).repeat_interleave(factor, 3), part.targets)

    return Data(enlarge(data.train), enlarge(data.test), data.classes)


def shrunk(part: Split, factor: int) -> Split:
    """The same images with the mean of each square of pixels in its place, rounded if they are integers."""
    if factor == 1:
        return part
    pooled = avg_pool2d(part.inputs.float(), factor)
    inputs = pooled if part.inputs.is_floating_point() else pooled.round()
    return Split(inputs.to(part.inputs.dtype), part.targets)


def channels(images: Examples) -> int:
    """How many channels they have."""
    return images.batch(torch.tensor([0]))[0].shape[1]


def trained(
    build: Callable[[], nn.Module],
    train: Examples,
    recipe: Recipe,
    held: Examples | None = None,
    *,
    seed: int,
    machine: Machine | None = None,
) -> Fitted:
    """Train a new network, whose weights, like the order of the images, are drawn by the seed."""
    torch.manual_seed(seed)
    return fit(build(), train, recipe, held, seed=seed, machine=machine)


def held_out(fitted: Fitted) -> dict[str, Any]:
    """What a run that tries a rate returns: the error on held-out images only, and nothing of the test images."""
    return {"val_error": fitted.history["val_error"][-1], "history": fitted.history}


def evaluated(fitted: Fitted, data: Data[Any], *errors: str) -> dict[str, Any]:
    """Test a network once: what a run returns, with these errors."""
    measured = fitted.evaluate(data.test)
    parameters = count_parameters(fitted.network)
    return {name: measured[name] for name in errors} | {"parameters": parameters, "history": fitted.history}
