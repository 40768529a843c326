"""A unit's parts, as its design specifies (weights, norm, activation), and the builder that appends units."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from relucid.models.design import ACTIVATIONS, Design
from relucid.nn import CReLU, GeometricConv2d, GeometricLinear, MeanNorm
from relucid.nn.rules import Rule, rule_of

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


class Builder:
    """A network under construction: layers of one design, and the number of output channels so far.

    Each method appends named layers. A CReLU doubles the channels, and the next unit takes all of them.

    >>> builder = Builder(Design("crelu", "standard", "none", "plain"), channels=3)
    >>> builder.conv(1, 8, 3, padding=1)
    >>> builder.conv(2, 8, 3, padding=1)
    >>> [(name, tuple(p.shape)) for name, p in builder.sequential().named_parameters() if p.dim() > 1]
    [('conv1.weight', (8, 3, 3, 3)), ('conv2.weight', (8, 16, 3, 3))]

    Args:
        design: the design of the units to come, with no field left None.
        channels: the number of input channels.
        width: the factor that ``scaled`` applies.
        init: as in ``weights_of``.
        norms: settings of the norms.
        centered: whether norm="input_mean" also centers the first unit's input; it leaves a network's own input alone.
    """

    def __init__(
        self,
        design: Design,
        channels: int,
        *,
        width: float = 1.0,
        init: Init | None = None,
        norms: Norms | None = None,
        centered: bool = False,
    ) -> None:
        self.design, self.channels = design, channels
        self.width, self.init, self.norms, self.centered = width, init, norms or Norms(), centered
        self.layers: OrderedDict[str, nn.Module] = OrderedDict()

    def scaled(self, filters: int) -> int:
        """``filters`` times the network's width, at least 1."""
        return max(1, round(filters * self.width))

    def branch(self, channels: int | None = None, *, centered: bool | None = None) -> "Builder":
        """A new builder that continues from here, or from the given number of channels."""
        return Builder(
            self.design,
            self.channels if channels is None else channels,
            width=self.width,
            init=self.init,
            norms=self.norms,
            centered=self.centered if centered is None else centered,
        )

    @property
    def rule(self) -> Rule:
        """The rule that joins the layers of a stage."""
        return rule_of(self.design.propagation or "plain")

    def transforms(self, depth: int, make: Callable[[], nn.Module]) -> list[nn.Module | list[nn.Module]]:
        """The layers of a stage: ``depth`` transforms, or pairs of them for a rule with two paths."""
        if self.rule.paths == 1:
            return [make() for _ in range(depth)]
        return [[make() for _ in range(self.rule.paths)] for _ in range(depth)]

    def add(self, name: str, layer: nn.Module) -> None:
        """Append a layer that keeps the number of channels."""
        self.layers[name] = layer

    def sequential(self) -> nn.Sequential:
        """The layers so far, as one module."""
        return nn.Sequential(self.layers)

    def conv(
        self,
        number: int,
        filters: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        end: End | None = "activation",
        shift: bool = True,
    ) -> None:
        """Append a convolution, its norm and its activation: "conv1", "bn1", "act1".

        Args:
            number: the suffix of the names.
            filters: the number of channels before the activation, or after it with end="same_channels".
            kernel_size: as in ``nn.Conv2d``.
            stride: as in ``nn.Conv2d``.
            padding: as in ``nn.Conv2d``.
            end: which activation; None before an addition.
            shift: False if everything that reads the output centers it, which cancels a constant.
        """
        self._unit("conv", number, filters, (kernel_size, stride, padding), end, shift)

    def linear(self, number: int, units: int, *, end: End = "activation") -> None:
        """Append a linear layer, its norm and its activation: "fc1", "bn1", "act1"."""
        self._unit("fc", number, units, (), end)

    def norm_and_activation(self, name: str, *, end: End = "activation") -> None:
        """Append the first part of a unit in DenseNet's order: "norm" and "act" + ``name``."""
        norm = norm_of(self.design, "conv", self.channels, self.norms)
        if norm is not None:
            self.add(f"norm{name}", norm)
        activation, _, self.channels = activation_of(self.design, end, self.channels)
        self.add(f"act{name}", activation)
        if self.design.norm == "activation_mean":
            self.add(f"norm{name}", self.input_mean())

    def bare_conv(
        self, name: str, filters: int, kernel_size: int, stride: int = 1, *, added: bool = False
    ) -> None:
        """Append the last part of a unit in DenseNet's order: "conv" + ``name``.

        Every layer that reads the output normalizes it first, which cancels what a norm right after the convolution
        would cancel; except the scale, if the output is first ``added`` to others.
        """
        norm = self.design.norm
        if norm == "input_mean" and self.centered:
            self.add(f"norm{name}", self.input_mean())
        layer = weights_of(
            self.design,
            "conv",
            (self.channels, filters, kernel_size, stride, kernel_size // 2),
            scale=added or norm != "batch",
            shift=norm not in ("batch", "mean"),
            init=self.init,
        )
        self.add(f"conv{name}", layer)
        self.channels, self.centered = filters, True

    def output(self, name: str, num_classes: int) -> None:
        """Append the output layer."""
        self.add(name, output_of(self.design, nn.Linear(self.channels, num_classes)))

    def output_conv(self, number: int, num_classes: int) -> None:
        """Append an output layer that is a rectified 1x1 convolution: conv8, conv12 of crelu Tables S2 to S13."""
        self.add(f"conv{number}", output_of(self.design, nn.Conv2d(self.channels, num_classes, 1)))
        self.add(f"act{number}", activation_of(self.design, "one_phase", num_classes)[0])

    def input_mean(self, channels: int | None = None) -> MeanNorm:
        """A norm that centers the output so far, or an output with the given number of channels."""
        return MeanNorm(channels or self.channels, momentum=self.norms.momentum)

    def pool_and_flatten(self) -> None:
        """Append the mean over all positions."""
        self.add("avgpool", nn.AdaptiveAvgPool2d(1))
        self.add("flatten", nn.Flatten())

    def _unit(
        self,
        kind: Kind,
        number: int,
        filters: int,
        arguments: Iterable[int],
        end: End | None,
        shift: bool = True,
    ) -> None:
        design, activation, passed_on = self.design, None, filters
        if end is not None:
            activation, filters, passed_on = activation_of(design, end, filters)
        if design.norm == "input_mean" and self.centered:
            self.add(f"imn{number}", self.input_mean())
        norm = norm_of(design, kind, filters, self.norms)
        # r goes outside the unit's own activation, unless there is a norm between them (gmp Eq. 15).
        inside = activation if design.weights == "geometric" and norm is None else None
        layer = weights_of(
            design,
            kind,
            (self.channels, filters, *arguments),
            scale=design.norm != "batch",
            shift=norm is None and (shift or design.norm != "input_mean"),
            activation=inside,
            init=self.init,
        )
        self.add(f"{kind}{number}", layer)
        if norm is not None:
            self.add(f"bn{number}" if design.norm == "batch" else f"mbn{number}", norm)
        if activation is not None and inside is None:
            self.add(f"act{number}", activation)
        self.channels, self.centered = passed_on, True
        if activation is not None and design.norm == "activation_mean":
            self.add(f"imn{number}", self.input_mean())
