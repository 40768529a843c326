"""Networks by name: the backbones, and the papers' variants of them."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from typing import Any, get_args

from torch import nn

from relucid.models._unit import Builder, Init
from relucid.models.dense import densenet, densenet_cifar
from relucid.models.design import CHOICES, Design
from relucid.models.mlp import feedforward, mlp
from relucid.models.plain import alexnet, all_cnn_b, convpool, vgg6, vgg16
from relucid.models.published import PUBLISHED, Variant
from relucid.models.residual import BASIC, BOTTLENECK, resnet, resnet_cifar
from relucid.nn.rules import RULES, Rule
from relucid.printing import suggest


@dataclass(frozen=True)
class Backbone:
    """A structure: the function that builds it, its own design, its input, and the rules that can join its layers."""

    build: Callable[..., None]
    design: Design
    image: int | None  # height and width; None for vectors
    propagations: tuple[str, ...]
    otherwise: str  # why other rules are refused
    options: dict[str, Any] = field(default_factory=dict)


_PLAIN = (("plain",), "a rule adds states of equal shape, and these layers change the shape")
_ANY = (tuple(RULES), "'dense' needs layers with a growth rate, as in densenet_cifar and densenet121")
_DENSE = (("dense", "nesterov2"), "each layer appends its channels to those of all earlier layers")
_UNNORMED = Design("relu", "standard", "none", "plain")
_RESIDUAL = Design("relu", "standard", "batch", "residual")
_DENSELY = Design("relu", "standard", "batch", "dense")

BACKBONES: dict[str, Backbone] = {
    "mlp": Backbone(mlp, _UNNORMED, None, *_ANY),
    "feedforward": Backbone(feedforward, _UNNORMED, None, *_ANY),
    "alexnet": Backbone(alexnet, _UNNORMED, 224, *_PLAIN),
    "convpool": Backbone(convpool, _UNNORMED, 32, *_PLAIN),
    "vgg16": Backbone(vgg16, replace(_UNNORMED, norm="batch"), 32, *_PLAIN),
    "vgg6": Backbone(vgg6, _UNNORMED, 32, *_PLAIN),
    "all_cnn_b": Backbone(all_cnn_b, _UNNORMED, 224, *_PLAIN),
    "resnet_cifar": Backbone(resnet_cifar, _RESIDUAL, 32, *_ANY),
    **{
        f"resnet{depth}": Backbone(resnet_cifar, _RESIDUAL, 32, *_ANY, {"depth": depth})
        for depth in (8, 14, 20, 26, 32, 38, 44, 56, 110, 1202)
    },
    **{
        name: Backbone(resnet, _RESIDUAL, 224, *_ANY, {"block": block, "blocks": blocks})
        for name, block, blocks in [
            ("resnet18", BASIC, (2, 2, 2, 2)),
            ("resnet34", BASIC, (3, 4, 6, 3)),
            ("resnet50", BOTTLENECK, (3, 4, 6, 3)),
        ]
    },
    "densenet_cifar": Backbone(densenet_cifar, _DENSELY, 32, *_DENSE),
    "densenet121": Backbone(densenet, _DENSELY, 224, *_DENSE, {"growth": 32, "blocks": (6, 12, 24, 16)}),
}
"""Backbones by name."""


class Network(nn.Sequential):
    """A network that ``create`` built, with its ``name``, its complete ``design`` and the shape of one input."""

    name: str = ""
    design: Design = Design()
    input_shape: tuple[int, ...] = ()

    def extra_repr(self) -> str:
        """The name and the design."""
        return f"{self.name}: {self.design}"


def names() -> list[str]:
    """All names that ``create`` knows: backbones, then published variants.

    >>> [name for name in names() if name.startswith("crelu/convpool")]
    ['crelu/convpool-baseline', 'crelu/convpool-double', 'crelu/convpool-avr', 'crelu/convpool-crelu',
     'crelu/convpool-half', 'crelu/convpool-half-printed']
    """
    return [*BACKBONES, *PUBLISHED]


def create(
    name: str,
    design: Design | None = None,
    *,
    num_classes: int,
    in_channels: int | None = None,
    width: float = 1.0,
    init: Init | None = None,
    **choices: Any,
) -> Network:
    """Create a network: a backbone or a published variant of one, with any of its design's choices changed.

    >>> net = create("resnet56", activation="crelu", propagation="heavy_ball", num_classes=10)
    >>> print(net.design)
    crelu, standard weights, norm batch, heavy_ball
    >>> create("crelu/convpool-half", num_classes=10, width=0.25).conv3
    Conv2d(24, 24, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))

    Args:
        name: one of ``names()``.
        design: the choices to change; fields that are None stay as the name has them.
        num_classes: the number of outputs.
        in_channels: the number of channels of an image, 3 by default, or of features of a vector, for "mlp".
        width: a factor for the number of filters in every layer.
        init: "glorot" or "glorot_uniform" for Glorot's weights everywhere, normal or uniform, and their lengths as
            geometric scales; None for the name's own choice: He's weights (Glorot's for the output) and geometric
            scales 1, as the papers say, or "glorot_uniform" in the gmp authors' variants.
        **choices: fields of ``Design``, which win over ``design``, and options of the backbone: ``layers`` for plain
            networks; ``depth`` for resnet_cifar, densenet_cifar and feedforward; ``rectify`` and ``reversible`` for
            residual networks; ``strided`` for resnet50; ``growth``, ``dropout`` and ``beta`` for dense
            ones; ``hidden`` for mlp.
    """
    variant = _variant(name)
    backbone = BACKBONES[variant.backbone]
    options = {key: value for key, value in choices.items() if key not in CHOICES}
    _check_options(name, backbone, options)
    changes = {key: value for key, value in choices.items() if key in CHOICES}
    asked = Design(**changes).with_defaults(design or Design())
    complete = asked.with_defaults(variant.design).with_defaults(backbone.design)
    _check_propagation(name, backbone, complete)
    channels = _channels(name, backbone, in_channels, num_classes)
    _check_sizes(num_classes=num_classes, in_channels=channels, width=width)
    if init not in (None, *get_args(Init)):
        raise ValueError(f"init is None, {' or '.join(map(repr, get_args(Init)))}, not {init!r}")
    if variant.layers:  # the user's choices hold in every layer
        layers = {
            k: replace(layer, design=asked.with_defaults(layer.design)) for k, layer in variant.layers.items()
        }
        options = {"layers": layers, **options}
    builder = Builder(
        complete, channels, width=variant.width * width, init=init or variant.init, norms=variant.norms
    )
    backbone.build(builder, num_classes, **{**backbone.options, **variant.options, **options})
    network = Network(OrderedDict(builder.layers))
    network.name, network.design = name, complete
    network.input_shape = (
        (channels,) if backbone.image is None else (channels, backbone.image, backbone.image)
    )
    return network


def _variant(name: str) -> Variant:
    if name in BACKBONES:
        return Variant(name)
    if name not in PUBLISHED:
        raise ValueError(f"no model in `relucid.models.names()` is called {name!r}{suggest(name, names())}")
    return PUBLISHED[name]


def _check_options(name: str, backbone: Backbone, options: dict[str, Any]) -> None:
    parameters = signature(backbone.build).parameters.values()
    known = [
        p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY and p.name not in backbone.options
    ]
    for key in options:
        if key not in known:
            raise ValueError(
                f"the choices of {name} are {', '.join([*CHOICES, *known])}, not {key!r}"
                f"{suggest(key, [*CHOICES, *known])}"
            )


def _check_propagation(name: str, backbone: Backbone, design: Design) -> None:
    asked, allowed = design.propagation, backbone.propagations
    if asked in allowed or (isinstance(asked, Rule) and allowed == tuple(RULES)):
        return
    raise ValueError(
        f"the layers of {name} are joined by {' or '.join(map(repr, allowed))}, not by {asked!r}: {backbone.otherwise}"
    )


def _channels(name: str, backbone: Backbone, in_channels: int | None, num_classes: int) -> int:
    if in_channels is not None:
        return in_channels
    if backbone.image is not None:
        return 3
    if backbone.build is feedforward:
        return num_classes
    raise ValueError(f"{name} takes vectors: give their number of features as in_channels")


def _check_sizes(**sizes: float) -> None:
    for name, size in sizes.items():
        if not size > 0:
            raise ValueError(f"{name} must be positive, not {size}")
