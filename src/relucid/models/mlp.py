"""Fully connected networks: the MLPs of gmp 5.3, and stages of equal layers as in structure 5.3."""

from collections.abc import Sequence

from torch import nn

from relucid.models._unit import Builder
from relucid.nn.propagation import Propagation
from relucid.nn.rules import Plain


def mlp(builder: Builder, num_classes: int, *, hidden: Sequence[int] = (100,)) -> None:
    """Append hidden layers and an output layer; any rule but "plain" needs hidden layers of equal width."""
    widths = [builder.scaled(units) for units in hidden]
    _check(builder, widths)
    if isinstance(builder.rule, Plain):
        for k, units in enumerate(widths, start=1):
            builder.linear(k, units)
    else:
        builder.linear(1, widths[0], end="one_phase")
        builder.add("stage", Propagation(_layers(builder, len(widths) - 1), builder.rule))
    builder.output("output", num_classes)


def feedforward(builder: Builder, num_classes: int, *, depth: int = 10) -> None:
    """Append ``depth`` layers of ``num_classes`` features, joined by a rule, and nothing else (structure 5.3)."""
    if builder.channels != num_classes:
        raise ValueError(
            f"feedforward keeps the number of features, so in_channels and num_classes must be equal, not "
            f"{builder.channels} and {num_classes}"
        )
    if depth < 1:
        raise ValueError(f"feedforward has a depth of at least 1, not {depth}")
    first = _layers(builder, 1)
    builder.centered = True
    builder.add("stage", Propagation(first + _layers(builder, depth - 1), builder.rule))


def _layers(builder: Builder, depth: int) -> list[nn.Module | list[nn.Module]]:
    """Transforms T(x) = Phi(W x) that keep the number of features."""

    def transform() -> nn.Module:
        branch = builder.branch()
        branch.linear(1, builder.channels, end="same_channels")
        return branch.sequential()

    return builder.transforms(depth, transform)


def _check(builder: Builder, widths: Sequence[int]) -> None:
    if not widths:
        raise ValueError("an mlp needs at least one hidden layer: give hidden=(100,), for example")
    if not isinstance(builder.rule, Plain) and (len(widths) < 2 or len(set(widths)) > 1):
        raise ValueError(
            "propagation other than 'plain' needs at least two hidden layers of equal width, not "
            f"hidden={tuple(widths)}"
        )
    if builder.design.norm == "input_mean" and len(widths) < 2:
        raise ValueError(
            "norm='input_mean' applies to every layer but the first and the output, and an mlp with one hidden layer "
            "has no other: give norm='none' or more hidden layers"
        )
