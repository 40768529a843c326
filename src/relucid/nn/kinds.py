"""Facts about activations: where a unit switches, its slope on either side, and its inverse.

All activations here are piecewise linear. `KINDS` has the facts, once per activation; `kind_of` looks up a module or
a torch function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.nn.activation import AVR, CReLU, crelu


@dataclass(frozen=True)
class Kind:
    """A piecewise linear activation: slope ``below`` the first boundary, ``above`` the last, 1 between them."""

    name: str
    boundaries: tuple[float, ...] = (0.0,)  #: the values at which a unit switches
    below: float | None = 0.0  #: None if it is learned
    above: float = 1.0
    doubled: bool = False  #: whether each unit has two outputs, [f(x), f(-x)]

    @property
    def homogeneous(self) -> bool:
        """Whether f(a x) = a f(x) for every a > 0: a positive scale may be moved through it."""
        return self.boundaries == (0.0,)

    @property
    def phases(self) -> int:
        """On how many sides of its boundary a unit responds to its input; on any other side it is constant."""
        return 1 if self.below == 0 and not self.doubled else 2

    @property
    def inverse(self) -> Callable[[Tensor], Tensor] | None:
        """The inverse function; None if there is none, or if it depends on a learned slope.

        >>> y = F.leaky_relu(torch.tensor([-2.0, 3.0]), 0.5)
        >>> KINDS["leaky"].with_slope(0.5).inverse(y)
        tensor([-2.,  3.])
        """
        below = self.below
        if below is None or below == -1 or (below <= 0 and not self.doubled):
            return None
        if self.doubled:  # f(x) - f(-x) = (1 + below) x
            return lambda y: (y.chunk(2, 1)[0] - y.chunk(2, 1)[1]) / (1 + below)
        return lambda y: torch.where(y < 0, y / below, y)

    def with_slope(self, below: float | None) -> Kind:
        """A copy with another slope below its boundary."""
        return replace(self, below=below)

    def both_phases(self) -> Kind | None:
        """Return what CReLU is with this activation inside; None if it switches at more than 0."""
        return replace(self, name="crelu", doubled=True) if self.homogeneous and not self.doubled else None

    def between(self, low: float, high: float) -> Kind:
        """A copy with other boundaries."""
        return replace(self, boundaries=(float(low), float(high)))


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("relu"),
        Kind("leaky", below=0.01),  # LeakyReLU, and PReLU and RReLU in evaluation
        Kind("clipped", boundaries=(0.0, 6.0), above=0.0),  # ReLU6 and Hardtanh
        Kind("avr", below=-1.0),
        Kind("crelu", doubled=True),
    )
}

# What functions compute without further arguments.
FUNCTIONS: dict[Any, Kind] = {
    **dict.fromkeys((torch.relu, F.relu), KINDS["relu"]),
    F.leaky_relu: KINDS["leaky"],
    F.prelu: KINDS["leaky"].with_slope(None),
    F.relu6: KINDS["clipped"],
    F.hardtanh: KINDS["clipped"].between(-1, 1),
    **dict.fromkeys((abs, torch.abs, torch.absolute), KINDS["avr"]),
    crelu: KINDS["crelu"],
}


def kind_of(activation: Any) -> Kind | None:
    """The kind of a module, or of a torch function with its default arguments; None for any other activation.

    >>> kind_of(nn.LeakyReLU(0.2)).below, kind_of(nn.Hardtanh()).boundaries, kind_of(nn.GELU())
    (0.2, (-1.0, 1.0), None)
    """
    match activation:
        case nn.ReLU():
            return KINDS["relu"]
        case nn.Threshold():
            return KINDS["relu"] if activation.threshold == activation.value == 0 else None
        case nn.LeakyReLU():
            return KINDS["leaky"].with_slope(activation.negative_slope)
        case nn.PReLU():
            return KINDS["leaky"].with_slope(None)
        case nn.RReLU():
            return KINDS["leaky"].with_slope((activation.lower + activation.upper) / 2)
        case nn.Hardtanh():  # and ReLU6, which is one
            return KINDS["clipped"].between(activation.min_val, activation.max_val)
        case AVR():
            return KINDS["avr"]
        case CReLU():
            inner = KINDS["relu"] if activation.activation is None else kind_of(activation.activation)
            return inner and inner.both_phases()
        case nn.Module():
            return None
    return FUNCTIONS.get(activation)
