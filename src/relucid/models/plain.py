"""Plain convolutional networks: AlexNet, ConvPool-CNN-C, VGG-16 for CIFAR, All-CNN-B (crelu) and VGG-6 (gmp)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from relucid.models._unit import Builder
from relucid.models.design import Design


@dataclass(frozen=True)
class LayerOptions:
    """How one layer differs from the rest: its design, its share of the filters, the dropout after it."""

    design: Design = field(default_factory=Design)
    filters: float = 1.0
    dropout: float | None = None


@dataclass(frozen=True)
class Conv:
    """A convolution, as a row of the papers' tables."""

    filters: int
    kernel_size: int = 3
    stride: int = 1
    padding: int = 1
    dropout: float = 0.0


@dataclass(frozen=True)
class MaxPool:
    """A max-pool of stride 2, as a row of the papers' tables."""

    kernel_size: int = 2
    ceil_mode: bool = False


# crelu Table S2. Its 10x10 average pool needs max-pooling that rounds sizes up: 32 -> 16 -> 8, then 10 by conv7's
# padding.
_POOL = MaxPool(3, ceil_mode=True)
CONVPOOL = (Conv(96), Conv(96), _POOL, Conv(192), Conv(192), Conv(192), _POOL, Conv(192), Conv(192, 1))

# torchvision's AlexNet, the version with published weights: Krizhevsky's "One weird trick".
_OVERLAP = MaxPool(3)
ALEXNET = (
    *(Conv(64, 11, 4, 2), _OVERLAP, Conv(192, 5, 1, 2), _OVERLAP),
    *(Conv(384), Conv(256), Conv(256), _OVERLAP),
)

# crelu Table S8.
ALL_CNN_B = (
    *(Conv(96, 11, 4, 0), Conv(96, 1, 1, 0), Conv(96, 3, 2, 0)),
    *(Conv(256, 5, 1, 2), Conv(256, 1, 1, 0), Conv(256, 3, 2, 0)),
    *(Conv(384, 3, 1, 1), Conv(384, 1, 1, 0), Conv(384, 3, 2, 1)),
    *(Conv(1024, 3, 1, 1), Conv(1024, 1, 1, 0)),
)

# crelu Table S4.
_HALVE = MaxPool()
VGG16 = (
    *(Conv(64, dropout=0.3), Conv(64), _HALVE),
    *(Conv(128, dropout=0.4), Conv(128), _HALVE),
    *(Conv(256, dropout=0.4), Conv(256, dropout=0.4), Conv(256), _HALVE),
    *(Conv(512, dropout=0.4), Conv(512, dropout=0.4), Conv(512), _HALVE),
    *(Conv(512, dropout=0.4), Conv(512, dropout=0.4), Conv(512), _HALVE),
)

# gmp C.2 and the authors' runs.
VGG6 = (*(Conv(128), Conv(128), _HALVE), *(Conv(256), Conv(256), _HALVE), *(Conv(512), Conv(512), _HALVE))


def alexnet(builder: Builder, num_classes: int, *, layers: Mapping[str, LayerOptions] | None = None) -> None:
    """Append AlexNet, with torchvision's parameter names: "features.0.weight" to "classifier.6.bias"."""
    features = builder.branch()
    _features(features, ALEXNET, layers)
    builder.add("features", nn.Sequential(*features.layers.values()))
    builder.add("avgpool", nn.AdaptiveAvgPool2d(6))
    builder.add("flatten", nn.Flatten())
    classifier = features.branch(36 * features.channels)
    for k in (6, 7):
        classifier.add(f"dropout{k}", nn.Dropout(0.5))
        classifier.linear(k, builder.scaled(4096))
    classifier.output("fc8", num_classes)
    builder.add("classifier", nn.Sequential(*classifier.layers.values()))


def convpool(builder: Builder, num_classes: int, *, layers: Mapping[str, LayerOptions] | None = None) -> None:
    """Append ConvPool-CNN-C."""
    _features(builder, CONVPOOL, layers)
    builder.output_conv(8, num_classes)
    builder.pool_and_flatten()


def all_cnn_b(
    builder: Builder, num_classes: int, *, layers: Mapping[str, LayerOptions] | None = None
) -> None:
    """Append All-CNN-B: only convolutions, so it takes images of any size."""
    _features(builder, ALL_CNN_B, layers)
    builder.output_conv(12, num_classes)
    builder.pool_and_flatten()


def vgg16(builder: Builder, num_classes: int, *, layers: Mapping[str, LayerOptions] | None = None) -> None:
    """Append VGG-16 for CIFAR, with batch norm and dropout."""
    _features(builder, VGG16, layers)
    builder.pool_and_flatten()
    builder.add("dropout13", nn.Dropout(0.5))
    builder.linear(14, builder.scaled(512))
    builder.add("dropout14", nn.Dropout(0.5))
    builder.output("fc15", num_classes)


def vgg6(builder: Builder, num_classes: int, *, layers: Mapping[str, LayerOptions] | None = None) -> None:
    """Append VGG-6."""
    _features(builder, VGG6, layers)
    builder.pool_and_flatten()
    builder.output("fc7", num_classes)


def _features(
    builder: Builder, rows: Iterable[Conv | MaxPool], layers: Mapping[str, LayerOptions] | None
) -> None:
    """Append the rows as "conv1", "conv2", ... and "pool1", ...; ``layers`` overrides individual layers."""
    design, convs, pools, changes = builder.design, 0, 0, dict(layers or {})
    for row in rows:
        if isinstance(row, MaxPool):
            pools += 1
            builder.add(f"pool{pools}", nn.MaxPool2d(row.kernel_size, 2, ceil_mode=row.ceil_mode))
            continue
        convs += 1
        layer = changes.pop(f"conv{convs}", LayerOptions())
        builder.design = layer.design.with_defaults(design)
        filters = max(1, round(row.filters * layer.filters * builder.width))
        builder.conv(convs, filters, row.kernel_size, row.stride, row.padding)
        dropout = row.dropout if layer.dropout is None else layer.dropout
        if dropout:
            builder.add(f"dropout{convs}", nn.Dropout(dropout))
    builder.design = design
    if changes:
        raise ValueError(
            f"there is no layer {next(iter(changes))!r} to change: give names from 'conv1' to 'conv{convs}'"
        )
