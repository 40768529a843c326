"""What training on ImageNet takes, for estimates of studies that have not been run."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from relucid.data.images import SOURCES

PIXELS = {"imagenet": 224, "imagenet32": 32}  # a side, of what networks are shown
SAMPLE = 2  # examples to count: batch norm refuses one


def imagenet_flops(
    build: Callable[[], nn.Module], data: str, epochs: int, *, validations: int
) -> float | None:
    """Operations of a run: so many epochs of training, and so many passes over the validation images.

    Args:
        build: makes the network.
        data: "imagenet" or "imagenet32"; None is returned for any other data set.
        epochs: of training.
        validations: passes over the validation images; ten crops of each are ten.
    """
    if data not in PIXELS:
        return None
    images, tests = SOURCES[data].rows
    shape = (3, PIXELS[data], PIXELS[data])
    return training_flops(build, shape, trained=epochs * images, evaluated=validations * tests)


def training_flops(
    build: Callable[[], nn.Module], shape: tuple[int, ...], *, trained: int, evaluated: int = 0
) -> int:
    """Operations of the products and convolutions in training; a multiplication and an addition are two.

    >>> training_flops(lambda: nn.Linear(10, 3), (10,), trained=1)  # forward, and the gradient of the weight
    120

    Args:
        build: makes the network.
        shape: of one example, (channels, height, width) say.
        trained: examples that are passed forward and backward: those of an epoch times the epochs.
        evaluated: examples that are passed forward only.
    """
    with torch.device("meta"):
        network, inputs = build().train(), torch.empty(SAMPLE, *shape)
    with FlopCounterMode(display=False) as counter:
        outputs = network(inputs)
        forward: int = counter.get_total_flops()
        outputs.sum().backward()
        step: int = counter.get_total_flops()
    return (trained * step + evaluated * forward) // SAMPLE
