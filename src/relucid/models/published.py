"""The networks of the three papers, each as a backbone, a design, and the layers that differ."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from relucid.models._unit import Init, Norms
from relucid.models.design import Design
from relucid.models.plain import LayerOptions
from relucid.nn.rules import HeavyBall, LatestNesterov2, RelaxedADMM, Rule


@dataclass(frozen=True)
class Variant:
    """A backbone with a design, a width, layers that differ, options, initial weights and settings of its norms."""

    backbone: str
    design: Design = field(default_factory=Design)
    width: float = 1.0
    layers: dict[str, LayerOptions] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    init: Init | None = None
    norms: Norms = field(default_factory=Norms)


CRELU, AVR = Design("crelu"), Design("avr")

# crelu Tables S2, S3. S3 prints 48 filters in conv3 of "half": 96 is half of 192, and fits Table 1's ratio of 0.7M to
# 1.4M.
CONVPOOL = {
    "crelu/convpool-baseline": Variant("convpool"),
    "crelu/convpool-double": Variant("convpool", width=2.0),
    "crelu/convpool-avr": Variant("convpool", AVR),
    "crelu/convpool-crelu": Variant("convpool", CRELU),
    "crelu/convpool-half": Variant("convpool", CRELU, width=0.5),
    "crelu/convpool-half-printed": Variant("convpool", CRELU, 0.5, {"conv3": LayerOptions(CRELU, 0.5)}),
}

# crelu Tables S4 to S7. They print "CReLU" where other layers have "BN+ReLU", so no batch norm there; norm="batch" adds
# it.
_HALVED = LayerOptions(Design("crelu", norm="none"), filters=0.5)
_VGG1 = {"conv1": LayerOptions(_HALVED.design, 0.5, dropout=0.1)}
_VGG13 = {**_VGG1, "conv3": LayerOptions(_HALVED.design, 0.5, dropout=0.2)}
_VGG135 = {
    **_VGG13,
    "conv5": LayerOptions(_HALVED.design, 0.5, dropout=0.2),
    "conv6": LayerOptions(dropout=0.2),
}
VGG = {
    "crelu/vgg16-baseline": Variant("vgg16"),
    "crelu/vgg16-conv1": Variant("vgg16", layers=_VGG1),
    "crelu/vgg16-conv1,3": Variant("vgg16", layers=_VGG13),
    "crelu/vgg16-conv1,3,5": Variant("vgg16", layers=_VGG135),
    # Footnote 5 of Table 2: CReLU in "the second or fourth layer before max-pooling layers" does not help.
    "crelu/vgg16-conv2": Variant("vgg16", layers={"conv2": _HALVED}),
    "crelu/vgg16-conv4": Variant("vgg16", layers={"conv4": _HALVED}),
    # Footnote 4: AVR "on various layers", without saying which. It replaces ReLU and changes nothing else.
    **{
        f"crelu/vgg16-avr-conv{numbers}": Variant(
            "vgg16", layers={f"conv{k}": LayerOptions(AVR) for k in numbers.split(",")}
        )
        for numbers in ("1", "1,3", "1,3,5")
    },
    "crelu/vgg16-avr-all": Variant("vgg16", AVR),
}


def _all_cnn(design: Design, numbers: Iterable[int], filters: float = 1.0, dropout: float = 0.25) -> Variant:
    """All-CNN-B with a design in some layers, and dropout, if any, before conv10."""
    layers = {f"conv{k}": LayerOptions(design, filters) for k in numbers}
    last = layers.get("conv9", LayerOptions())
    return Variant("all_cnn_b", layers={**layers, "conv9": LayerOptions(last.design, last.filters, dropout)})


# crelu Tables S8 to S13. S12, CReLU (all), is impossible as printed: conv10 outputs 1024 channels, conv11 takes 512.
# Reading conv11 as 1024 -> 512 with ReLU gives the published 4.7M.
ALL_CNN_B = {
    "crelu/all_cnn_b-baseline": Variant("all_cnn_b"),
    "crelu/all_cnn_b-crelu-1-4": _all_cnn(CRELU, range(1, 5), dropout=0.0),
    "crelu/all_cnn_b-crelu-1-7": _all_cnn(CRELU, range(1, 8)),
    "crelu/all_cnn_b-crelu-1-9": _all_cnn(CRELU, range(1, 10)),
    "crelu/all_cnn_b-crelu-all": Variant(
        "all_cnn_b", CRELU, 0.5, {"conv9": LayerOptions(dropout=0.25), "conv11": LayerOptions(Design("relu"))}
    ),
    "crelu/all_cnn_b-crelu-1,4,7": _all_cnn(CRELU, (1, 4, 7), filters=0.5),
    "crelu/all_cnn_b-avr-1-4": _all_cnn(AVR, range(1, 5), dropout=0.0),
    "crelu/all_cnn_b-avr-1-7": _all_cnn(AVR, range(1, 8)),
    "crelu/all_cnn_b-avr-1-9": _all_cnn(AVR, range(1, 10)),
}

# gmp Tables 1 to 3.
PARAMETERIZATIONS = {
    "sp": Design(weights="standard", norm="none"),
    "wn": Design(weights="weightnorm", norm="none"),
    "wn-mbn": Design(weights="weightnorm", norm="mean"),
    "bn": Design(weights="standard", norm="batch"),
    "gmp": Design(weights="geometric", norm="none"),
    "gmp-imn": Design(weights="geometric", norm="input_mean"),
}
_MLP = ("sp", "wn", "bn", "gmp")

# The authors' settings where the paper is silent: Glorot's uniform weights, MBN without a learned shift, their
# framework's batch norm (momentum 0.99, which is 0.01 in torch's terms), and IMN after every activation. Their public
# residual network (github.com/Wenlin-Chen/geometric-parameterization, imagenet2012/resnet34_gmp.py at commit d1d3e90)
# has 34 layers and r inside the ReLU; ours has Table 1's 50 layers and r outside, as in Eq. 15.
AUTHORS = Norms(momentum=0.01, eps=1e-3, shift=False)


def _authors(backbone: str, name: str) -> Variant:
    design = PARAMETERIZATIONS[name]
    if design.norm == "input_mean":
        design = replace(design, norm="activation_mean")
    options = {"strided": "1x1"} if backbone == "resnet50" else {}
    return Variant(backbone, design, options=options, init="glorot_uniform", norms=AUTHORS)


GMP = {
    **{f"gmp/vgg6-{name}": Variant("vgg6", design) for name, design in PARAMETERIZATIONS.items()},
    # gmp follows He et al. (2016), whose bottlenecks halve the image in their first 1x1 convolution.
    **{
        f"gmp/resnet50-{name}": Variant("resnet50", design, options={"strided": "1x1"})
        for name, design in PARAMETERIZATIONS.items()
    },
    **{f"gmp/mlp1-{name}": Variant("mlp", PARAMETERIZATIONS[name]) for name in _MLP},
    **{f"gmp/vgg6-{name}-authors": _authors("vgg6", name) for name in PARAMETERIZATIONS},
    **{f"gmp/resnet50-{name}-authors": _authors("resnet50", name) for name in ("wn-mbn", "bn", "gmp-imn")},
    **{f"gmp/mlp1-{name}-authors": _authors("mlp", name) for name in _MLP},
}

# structure Section 5.3, Tables 3 to 5; ResNet without ReLU after the sum is a control that the paper lacks.
HEAVY_BALL, NESTEROV = Design(propagation="heavy_ball"), Design(propagation="nesterov2")
_RULES: dict[str, str | Rule] = {
    "gd": "plain",
    "hb": HeavyBall(beta=0.3),
    "agd": "nesterov",
    # Eq. 13 has one W for all layers. If each has its own, Phi(W x_j) is either kept as layer j + 1 computed it (then
    # AGD2 is AGD with an extrapolated output, z_K + beta_K (z_K - z_{K-1})), or recomputed by the latest layer.
    "agd2": "nesterov2",
    "agd2-latest": LatestNesterov2(),
    "admm": "admm",
}
STRUCTURE = {
    **{
        f"structure/fc-{name}": Variant("feedforward", Design("sigmoid", propagation=rule))
        for name, rule in _RULES.items()
    },
    **{f"structure/resnet{depth}": Variant(f"resnet{depth}") for depth in (34, 56, 110)},
    **{
        f"structure/resnet{depth}-unrectified": Variant(f"resnet{depth}", options={"rectify": "nowhere"})
        for depth in (34, 56, 110)
    },
    **{f"structure/hbnet{depth}": Variant(f"resnet{depth}", HEAVY_BALL) for depth in (34, 56, 110)},
    "structure/admmnet56": Variant("resnet56", Design(propagation="admm")),
    "structure/dmrnet56": Variant("resnet56", Design(propagation=RelaxedADMM())),
    **{
        f"structure/densenet{depth}": Variant("densenet_cifar", options={"depth": depth})
        for depth in (40, 52)
    },
    **{
        f"structure/agdnet{depth}": Variant("densenet_cifar", NESTEROV, options={"depth": depth})
        for depth in (40, 52)
    },
    "structure/densenet121": Variant("densenet121"),
    "structure/agdnet121": Variant("densenet121", NESTEROV),
}

PUBLISHED: dict[str, Variant] = {**CONVPOOL, **VGG, **ALL_CNN_B, **GMP, **STRUCTURE}
