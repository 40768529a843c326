"""Floating-point operations of training, counted on shapes alone: nothing is computed, no data is read."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

SAMPLE = 2  # examples to count: batch norm refuses one


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
