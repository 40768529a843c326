"""Densely connected networks: DenseNet, and AGD-Net, which joins the layers by Nesterov's method (structure 6.2)."""

from collections.abc import Sequence

from torch import nn

from relucid.models._unit import Builder
from relucid.nn.pairwise import Pairwise, PairwiseConv2d


def densenet_cifar(
    builder: Builder,
    num_classes: int,
    *,
    growth: int = 12,
    depth: int = 40,
    dropout: float = 0.0,
    beta: float = 0.1,
) -> None:
    """Append a DenseNet for 32x32 images, 3n + 4 layers deep: three blocks, no bottlenecks, no compression."""
    if depth < 7 or (depth - 4) % 3:
        raise ValueError(f"densenet_cifar has a depth of 3n + 4: 7, 10, ..., 40, ..., not {depth}")
    builder.bare_conv("0", builder.scaled(16), 3)
    for k in (1, 2, 3):
        _block(builder, k, (depth - 4) // 3, builder.scaled(growth), dropout, beta, bottleneck=False)
        if k < 3:
            _transition(builder, k, builder.channels, dropout)
    _head(builder, "4", num_classes)


def densenet(
    builder: Builder,
    num_classes: int,
    *,
    growth: int,
    blocks: Sequence[int],
    dropout: float = 0.0,
    beta: float = 0.1,
) -> None:
    """Append a DenseNet for 224x224 images: bottlenecks, and half the channels after each block."""
    builder.bare_conv("0", builder.scaled(64), 7, stride=2)
    builder.norm_and_activation("0", end="one_phase")
    builder.add("pool0", nn.MaxPool2d(3, 2, padding=1))
    for k, count in enumerate(blocks, start=1):
        _block(builder, k, count, builder.scaled(growth), dropout, beta, bottleneck=True)
        if k < len(blocks):
            _transition(builder, k, builder.channels // 2, dropout)
    _head(builder, str(len(blocks) + 1), num_classes)


def _block(
    builder: Builder, number: int, count: int, growth: int, dropout: float, beta: float, *, bottleneck: bool
) -> None:
    """Append "denseblock" + number, in which each layer reads all layers before it."""
    nesterov = builder.design.propagation == "nesterov2"
    channels, layers = [builder.channels], []
    for k in range(count):
        layer = builder.branch(sum(channels))
        if bottleneck:
            layer.norm_and_activation("1")
            layer.bare_conv("1", 4 * growth, 1)
        # beta_1 = 0 in Eq. 5, so z_1 is in no sum, and the norms that read it cancel its scale.
        layer.norm_and_activation("2" if bottleneck else "1")
        layer.bare_conv("2" if bottleneck else "1", growth, 3, added=nesterov and k > 0)
        if nesterov and (k > 0 or builder.design.norm != "batch"):
            _weigh(layer, channels)
        if dropout:
            layer.add("dropout", nn.Dropout(dropout))
        layers.append(layer.sequential())
        channels.append(growth)
    builder.add(f"denseblock{number}", Pairwise(layers, beta if nesterov else 0.0))
    builder.channels = sum(channels)


def _weigh(layer: Builder, channels: Sequence[int]) -> None:
    """Give a layer the weights alpha of structure Eq. 21, one for each predecessor.

    In a bottleneck they scale the 1x1 convolution. The batch norm that follows cancels their common factor, so the 3x3
    convolution gets a factor of its own: twice the alphas give twice the output, as in Eq. 21.
    """
    layer.layers["conv1"] = PairwiseConv2d(layer.layers["conv1"], channels)
    last = layer.layers.get("conv2")
    if last is not None and layer.design.norm == "batch":
        layer.layers["conv2"] = PairwiseConv2d(last, [4 * layer.channels])


def _transition(builder: Builder, number: int, channels: int, dropout: float) -> None:
    """Append "transition" + number, which halves the image."""
    transition = builder.branch()
    transition.norm_and_activation("")
    transition.bare_conv("", channels, 1)
    if dropout:
        transition.add("dropout", nn.Dropout(dropout))
    transition.add("pool", nn.AvgPool2d(2))
    builder.add(f"transition{number}", transition.sequential())
    builder.channels = transition.channels


def _head(builder: Builder, number: str, num_classes: int) -> None:
    builder.norm_and_activation(number)
    builder.pool_and_flatten()
    builder.output("classifier", num_classes)
