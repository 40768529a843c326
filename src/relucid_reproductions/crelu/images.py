"""The images that the studies of crelu train and test on."""

import torch
from torch.nn.functional import avg_pool2d

from relucid.data import Data, Split, cifar10, cifar100, digits


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
    chosen, tested = data.train.take(order[:train]), data.test.take(range(test or len(data.test)))
    return Data(shrunk(chosen, pool), shrunk(tested, pool), data.classes)


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
