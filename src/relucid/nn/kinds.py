"""Facts about activations: where a unit switches, and its slope on either side.

All activations here are piecewise linear. `KINDS` has the facts, once per activation; `kind_of` looks up a module or
a torch function, `kind_of_operation` what a network executes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def with_slope(self, below: float | None) -> Kind:
        """A copy with another slope below its boundary."""
        return replace(self, below=below)

    def both_phases(self) -> Kind | None:
        """CReLU with this activation inside; None if it switches at more than 0."""
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

# ATen names of activations outside `KINDS`. Some, such as clamp, are a kind with certain arguments.
WITHOUT_BOUNDARY = {
    *("gelu", "silu", "mish", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softplus", "softshrink"),
    *("elu", "celu", "rrelu_with_noise", "threshold"),
    *("clamp", "clamp_min", "_softmax", "_log_softmax", "log_sigmoid_forward", "hardshrink"),
}
GUARD = 1e3  # a clamp at larger values only keeps numbers finite

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


def is_homogeneous(activation: Any) -> bool:
    """Whether g(a s) = a g(s) for every a > 0: a positive scale may be inside or outside.

    >>> is_homogeneous(nn.LeakyReLU()), is_homogeneous(nn.ReLU6()), is_homogeneous(torch.tanh)
    (True, False, False)
    """
    kind = kind_of(activation)
    return kind is not None and kind.homogeneous


def kind_of_operation(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kind | None:
    """The kind of an operation by its ATen name and its arguments, of which the first is the value; or None.

    >>> kind_of_operation("threshold", (None, 0, 0), {}) == KINDS["relu"]
    True
    """
    low, high = (*args[1:], None, None)[:2]
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    match op:
        case "relu":
            return KINDS["relu"]
        case "abs":
            return KINDS["avr"]
        case "leaky_relu":
            return KINDS["leaky"].with_slope(0.01 if low is None else low)
        case "_prelu_kernel":
            return KINDS["leaky"].with_slope(None)
        case "rrelu_with_noise" if len(args) < 5 or not args[4]:  # in eval mode
            lower, upper = (*args[2:], 1 / 8, 1 / 3)[:2]
            return KINDS["leaky"].with_slope((lower + upper) / 2)
        case "hardtanh":
            return KINDS["clipped"].between(-1 if low is None else low, 1 if high is None else high)
        case "clamp" if isinstance(low, Tensor) and isinstance(high, Tensor):  # a sign per unit
            positive, negative = (low == 0) & (high == torch.inf), (low == -torch.inf) & (high == 0)
            return KINDS["relu"] if bool((positive | negative).all()) else None
        case "clamp" | "clamp_min":
            return _clamped(low, high)
        case "threshold":
            return KINDS["relu"] if low == 0 and high == 0 else None
        case "maximum":
            other = next((a for a in args if isinstance(a, Tensor)), None)
            return KINDS["relu"] if other is not None and not bool(other.any()) else None
    return None


def _clamped(low: object, high: object) -> Kind | None:
    """Which activation a clamp is; None if it only guards against overflow or division by 0."""
    if high is None:
        return KINDS["relu"] if isinstance(low, int | float) and low == 0 else None
    if not isinstance(low, int | float) or not isinstance(high, int | float) or max(-low, high) > GUARD:
        return None
    return KINDS["clipped"].between(low, high) if low == 0 or low == -high else None
