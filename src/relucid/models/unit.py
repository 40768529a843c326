"""The parts of a unit, as its design specifies: weights, norm, activation."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from relucid.models.design import ACTIVATIONS, Design
from relucid.nn import CReLU, GeometricConv2d, GeometricLinear, MeanNorm

Kind = Literal["conv", "fc"]
Init = Literal["glorot", "glorot_uniform"]
# The design's activation; one that keeps the number of channels; one that outputs a given number of channels.
End = Literal["activation", "one_phase", "same_channels"]

_STANDARD: dict[str, Any] = {"conv": nn.Conv2d, "fc": nn.Linear}
_GEOMETRIC: dict[str, Any] = {"conv": GeometricConv2d, "fc": GeometricLinear}
_BATCH_NORM: dict[str, Any] = {"conv": nn.BatchNorm2d, "fc": nn.BatchNorm1d}


@dataclass(frozen=True)
class Norms:
    """How norms keep their running statistics, and whether mean-only batch norm (MBN) learns a shift.

    Args:
        momentum: the weight of the newest batch, as in ``nn.BatchNorm2d``.
        eps: as in ``nn.BatchNorm2d``.
        shift: whether MBN adds a learned shift.
    """

    momentum: float = 0.1
    eps: float = 1e-5
    shift: bool = True


def weights_of(
    design: Design,
    kind: Kind,
    shape: tuple[int, ...],
    *,
    scale: bool = True,
    shift: bool = True,
    activation: nn.Module | None = None,
    init: Init | None = None,
) -> nn.Module:
    """Make a linear layer, ``shape`` (in, out), or a convolution, (in, out, kernel_size, stride, padding).

    Args:
        design: says which ``weights``.
        kind: "fc" or "conv".
        shape: the positional arguments of ``nn.Linear`` or ``nn.Conv2d``.
        scale: False where a following norm cancels a geometric layer's scale.
        shift: False where a following norm cancels the bias.
        activation: inside a geometric layer.
        init: None for He's weights and scales 1 (gmp 4.3); "glorot" or "glorot_uniform" for Glorot's weights, normal or
            uniform, and their lengths as scales.

    >>> weights_of(Design("relu", "geometric"), "fc", (4, 8), activation=nn.ReLU())
    GeometricLinear(
      in_features=4, out_features=8, bias=True
      (activation): ReLU()
    )
    """
    if design.weights == "geometric":
        make = _GEOMETRIC[kind]
        geometric: nn.Module = make(
            *shape, bias=shift, scale=scale, activation=activation, init=init or "one"
        )
        return geometric
    layer: nn.Linear | nn.Conv2d = _STANDARD[kind](*shape, bias=shift)
    _initialize(design, layer, init)
    return _finished(design, layer)


def output_of(design: Design, layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Make an output layer: Glorot's weights (structure 7.1), normalized under "weightnorm", but never geometric.

    gmp 4.1: the output layer learns no features and is not reparameterized. In the authors' own runs, WN's is.
    """
    nn.init.xavier_uniform_(layer.weight)
    return _finished(design, layer)


def norm_of(design: Design, kind: Kind, channels: int, norms: Norms) -> nn.Module | None:
    """Make the norm of a pre-activation; None if the design has none there."""
    if design.norm == "batch":
        norm: nn.Module = _BATCH_NORM[kind](channels, eps=norms.eps, momentum=norms.momentum)
        return norm
    if design.norm == "mean":
        return MeanNorm(channels, bias=norms.shift, momentum=norms.momentum)
    return None


def activation_of(design: Design, end: End, channels: int) -> tuple[nn.Module, int, int]:
    """An activation, the number of filters it needs before it, and the number of channels it outputs.

    The numbers differ for CReLU only: it doubles the channels; or keeps one phase where it must not double them
    ("one_phase"); or needs half the filters ("same_channels"; with an odd number, one filter has a single phase).

    >>> activation_of(Design("crelu"), "activation", 8)
    (CReLU(dim=1), 8, 16)
    >>> activation_of(Design("crelu"), "same_channels", 7)
    (CReLU(dim=1, paired=3), 4, 7)
    """
    facts = ACTIVATIONS[design.activation or "relu"]
    if end == "one_phase" or not facts.both_phases:
        return facts.make(), channels, channels
    inside = None if facts.make is nn.ReLU else facts.make()  # CReLU has a faster way for its own ReLU
    if end == "same_channels":
        return CReLU(activation=inside, paired=channels // 2), channels - channels // 2, channels
    return CReLU(activation=inside), channels, 2 * channels


def _initialize(design: Design, layer: nn.Linear | nn.Conv2d, init: Init | None) -> None:
    if init == "glorot_uniform" and design.weights == "weightnorm":
        # As in geometric layers: the gmp authors' fan-out leaves out the kernel's area.
        units, inputs = layer.weight.shape[0], layer.weight[0].numel()
        bound = math.sqrt(6 / (inputs + units))
        nn.init.uniform_(layer.weight, -bound, bound)
    elif init == "glorot_uniform":
        nn.init.xavier_uniform_(layer.weight)
    elif init == "glorot" or design.activation == "sigmoid":
        nn.init.xavier_normal_(layer.weight)
    else:
        gain = ACTIVATIONS[design.activation or "relu"].gain
        nn.init.kaiming_normal_(layer.weight, a=0.01, nonlinearity=gain)


def _finished(design: Design, layer: nn.Linear | nn.Conv2d) -> nn.Module:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return weight_norm(layer) if design.weights == "weightnorm" else layer
