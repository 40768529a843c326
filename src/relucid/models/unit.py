"""The parts of a unit, as a design says: its weights, its norm, its activation."""

from typing import Any, Literal

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from relucid.models.design import Design
from relucid.nn import AVR, CReLU, GeometricConv2d, GeometricLinear, MeanNorm

Kind = Literal["conv", "fc"]
Init = Literal["glorot"]
# The design's activation; one that hands on a channel a filter; one that hands on as many channels as are asked for.
End = Literal["activation", "one_phase", "same_channels"]

_STANDARD: dict[str, Any] = {"conv": nn.Conv2d, "fc": nn.Linear}
_GEOMETRIC: dict[str, Any] = {"conv": GeometricConv2d, "fc": GeometricLinear}
_BATCH_NORM: dict[str, Any] = {"conv": nn.BatchNorm2d, "fc": nn.BatchNorm1d}
_ACTIVATION: dict[str | None, type[nn.Module]] = {"relu": nn.ReLU, "avr": AVR, "sigmoid": nn.Sigmoid}


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
    """A linear layer, ``shape`` (in, out), or a convolution, (in, out, kernel_size, stride, padding).

    Args:
        design: whose ``weights`` it has.
        kind: "fc" or "conv".
        shape: the positional arguments of ``nn.Linear`` or ``nn.Conv2d``.
        scale: False where a norm that follows cancels a geometric layer's scale.
        shift: False where a norm that follows cancels the bias.
        activation: inside a geometric layer.
        init: None for He's weights and scales 1 (gmp 4.3); "glorot" for Glorot's weights and their lengths.

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
    if init == "glorot" or design.activation == "sigmoid":
        nn.init.xavier_normal_(layer.weight)
    else:
        # He's gain keeps the mean square through ReLU and CReLU; AVR keeps it by itself.
        nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if design.activation == "avr" else "relu")
    return _finished(design, layer)


def output_of(design: Design, layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """An output layer: Glorot's weights (structure 7.1), normalized by "weightnorm", but never geometric.

    gmp 4.1: the output layer learns no features and is not reparameterized. WN is, in the authors' own runs.
    """
    nn.init.xavier_uniform_(layer.weight)
    return _finished(design, layer)


def norm_of(design: Design, kind: Kind, channels: int) -> nn.Module | None:
    """The norm of a pre-activation, or None if the design has none there."""
    if design.norm == "batch":
        norm: nn.Module = _BATCH_NORM[kind](channels)
        return norm
    return MeanNorm(channels, bias=True) if design.norm == "mean" else None


def activation_of(design: Design, end: End, channels: int) -> tuple[nn.Module, int, int]:
    """An activation, the number of filters it needs before it, and the number of channels it hands on.

    Only CReLU makes a difference: it doubles ``channels`` filters, or is a ReLU where it must not ("one_phase"), or
    stands on half the filters ("same_channels"; of an odd number one filter is alone).

    >>> activation_of(Design("crelu"), "activation", 8)
    (CReLU(dim=1), 8, 16)
    >>> activation_of(Design("crelu"), "same_channels", 7)
    (CReLU(dim=1, paired=3), 4, 7)
    """
    if design.activation != "crelu":
        return _ACTIVATION[design.activation](), channels, channels
    if end == "one_phase":
        return nn.ReLU(), channels, channels
    if end == "same_channels":
        return CReLU(paired=channels // 2), channels - channels // 2, channels
    return CReLU(), channels, 2 * channels


def _finished(design: Design, layer: nn.Linear | nn.Conv2d) -> nn.Module:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return weight_norm(layer) if design.weights == "weightnorm" else layer
