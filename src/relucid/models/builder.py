"""The builder of networks: it appends units and tracks the number of channels."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from torch import nn

from relucid.models.design import Design
from relucid.models.unit import End, Init, Kind, Norms, activation_of, norm_of, output_of, weights_of
from relucid.nn import MeanNorm
from relucid.nn.rules import Rule, rule_of


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
        centred: whether norm="input_mean" also centres the first unit's input; it leaves a network's own input alone.
    """

    def __init__(
        self,
        design: Design,
        channels: int,
        *,
        width: float = 1.0,
        init: Init | None = None,
        norms: Norms | None = None,
        centred: bool = False,
    ) -> None:
        self.design, self.channels = design, channels
        self.width, self.init, self.norms, self.centred = width, init, norms or Norms(), centred
        self.layers: OrderedDict[str, nn.Module] = OrderedDict()

    def scaled(self, filters: int) -> int:
        """``filters`` times the network's width, at least 1."""
        return max(1, round(filters * self.width))

    def branch(self, channels: int | None = None, *, centred: bool | None = None) -> "Builder":
        """A new builder that continues from here, or from the given number of channels."""
        return Builder(
            self.design,
            self.channels if channels is None else channels,
            width=self.width,
            init=self.init,
            norms=self.norms,
            centred=self.centred if centred is None else centred,
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
            shift: False if everything that reads the output centres it, which cancels a constant.
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
        if norm == "input_mean" and self.centred:
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
        self.channels, self.centred = filters, True

    def output(self, name: str, num_classes: int) -> None:
        """Append the output layer."""
        self.add(name, output_of(self.design, nn.Linear(self.channels, num_classes)))

    def output_conv(self, number: int, num_classes: int) -> None:
        """Append an output layer that is a rectified 1x1 convolution: conv8, conv12 of crelu Tables S2 to S13."""
        self.add(f"conv{number}", output_of(self.design, nn.Conv2d(self.channels, num_classes, 1)))
        self.add(f"act{number}", activation_of(self.design, "one_phase", num_classes)[0])

    def input_mean(self, channels: int | None = None) -> MeanNorm:
        """A norm that centres the output so far, or an output with the given number of channels."""
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
        if design.norm == "input_mean" and self.centred:
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
        self.channels, self.centred = passed_on, True
        if activation is not None and design.norm == "activation_mean":
            self.add(f"imn{number}", self.input_mean())
