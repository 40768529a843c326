"""Residual networks, under any rule: HB-Net is ResNet under heavy ball (structure 6.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from relucid.models._unit import Builder, End, activation_of
from relucid.nn.propagation import Propagation
from relucid.nn.rules import ADMM, Nesterov, Nesterov2, Plain, Residual, Rule

Rectify = Literal["sum", "transform", "nowhere"]
Strided = Literal["3x3", "1x1"]

# Where the state is rectified by default. He's ResNet rectifies after the sum. In the algorithms T is a whole layer
# Phi(W x), so T rectifies. HB-Net, like rules not listed here, rectifies nowhere: T ends in a convolution (structure
# 6.1).
_RECTIFY: dict[type[Rule], Rectify] = {
    Residual: "sum",
    Plain: "transform",
    Nesterov: "transform",
    Nesterov2: "transform",
    ADMM: "transform",
}


def resnet_cifar(
    builder: Builder,
    num_classes: int,
    *,
    depth: int = 20,
    rectify: Rectify | None = None,
    reversible: bool = False,
) -> None:
    """Append a ResNet for 32x32 images, 6n + 2 layers deep, with shortcuts that have no parameters."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"resnet_cifar has a depth of 6n + 2: 8, 14, 20, ..., not {depth}")
    builder.conv(1, builder.scaled(16), 3, padding=1, end="one_phase")
    stages = _Stages(builder, BASIC, subsampling, rectify, reversible)
    for width, stride in (16, 1), (32, 2), (64, 2):
        stages.append(width, (depth - 2) // 6, stride)
    builder.pool_and_flatten()
    builder.output("fc", num_classes)


def resnet(
    builder: Builder,
    num_classes: int,
    *,
    block: "Block",
    blocks: Sequence[int],
    strided: Strided = "3x3",
    rectify: Rectify | None = None,
    reversible: bool = False,
) -> None:
    """Append a ResNet for 224x224 images, with torchvision's parameter names.

    Bottlenecks that halve the image do so in their 3x3 convolution, as in torchvision and fb.resnet.torch, or in the
    first 1x1 convolution, as He et al. (2016) print.
    """
    if strided not in get_args(Strided):
        raise ValueError(f"strided is '3x3' or '1x1', not {strided!r}")
    if strided == "1x1":
        if block is not BOTTLENECK:
            raise ValueError("strided='1x1' is about bottlenecks: give it with resnet50")
        block = BOTTLENECK_1X1
    builder.conv(1, builder.scaled(64), 7, stride=2, padding=3, end="one_phase")
    builder.add("maxpool", nn.MaxPool2d(3, 2, padding=1))
    stages = _Stages(builder, block, projection, rectify, reversible)
    for width, count, stride in zip((64, 128, 256, 512), blocks, (1, 2, 2, 2), strict=True):
        stages.append(width, count, stride)
    builder.pool_and_flatten()
    builder.output("fc", num_classes)


def basic(branch: Builder, planes: int, stride: int, end: End | None, shift: bool) -> None:
    """Append T: two 3x3 convolutions."""
    branch.conv(1, planes, 3, stride, padding=1)
    branch.conv(2, planes, 3, padding=1, end=end, shift=shift)


def bottleneck(
    branch: Builder, planes: int, stride: int, end: End | None, shift: bool, strided: Strided = "3x3"
) -> None:
    """Append T: a 1x1, a 3x3 and a 1x1 convolution, the last with four times as many channels."""
    branch.conv(1, planes, 1, stride if strided == "1x1" else 1)
    branch.conv(2, planes, 3, stride if strided == "3x3" else 1, padding=1)
    branch.conv(3, 4 * planes, 1, end=end, shift=shift)


@dataclass(frozen=True)
class Block:
    """The function that appends T, and the ratio of its output channels to its planes."""

    append: Callable[[Builder, int, int, End | None, bool], None]
    expansion: int


BASIC, BOTTLENECK = Block(basic, 1), Block(bottleneck, 4)
BOTTLENECK_1X1 = Block(partial(bottleneck, strided="1x1"), 4)


def projection(builder: Builder, channels: int, stride: int, shift: bool) -> nn.Module:
    """Make a shortcut that is a bare 1x1 convolution; IMN does not center its input."""
    skip = builder.branch(centered=False)
    skip.conv(0, channels, 1, stride, end=None, shift=shift)
    return nn.Sequential(*skip.layers.values())


def subsampling(builder: Builder, channels: int, stride: int, shift: bool) -> nn.Module:
    """Make a shortcut that takes every other pixel and pads the new channels with zeros: He's option A."""
    return Subsampling(channels - builder.channels, stride)


class Subsampling(nn.Module):
    """Every ``stride``-th pixel, and ``extra`` channels of zeros: (N, C, H, W) -> (N, C + extra, H', W')."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        """The smaller image."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class ResidualBlock(nn.Module):
    """after(T(x) + downsample(x)): the first block of a stage that changes the shape."""

    def __init__(self, transform: nn.Sequential, downsample: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.transform = tuple(name for name, _ in transform.named_children())
        for name, layer in transform.named_children():
            self.add_module(name, layer)
        self.downsample, self.after = downsample, after

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) -> (N, C', H', W')."""
        y = x
        for name in self.transform:
            y = self.get_submodule(name)(y)
        total: Tensor = self.after(y + self.downsample(x))
        return total


class _Stages:
    """Stages to append to a builder: "layer1", "layer2", ...."""

    def __init__(
        self,
        builder: Builder,
        block: Block,
        shortcut: Callable[[Builder, int, int, bool], nn.Module],
        rectify: Rectify | None,
        reversible: bool,
    ) -> None:
        if rectify not in (None, "sum", "transform", "nowhere"):
            raise ValueError(f"rectify is 'sum', 'transform' or 'nowhere', not {rectify!r}")
        self.builder, self.block, self.shortcut, self.reversible = builder, block, shortcut, reversible
        self.count = 0
        self.rectify = rectify or _RECTIFY.get(type(builder.rule), "nowhere")

    def append(self, width: int, count: int, stride: int) -> None:
        """Append a stage of ``count`` blocks; a block that changes the shape precedes the rule's first step."""
        planes = self.builder.scaled(width)
        channels = planes * self.block.expansion
        first = None
        if stride != 1 or self.builder.channels != channels:
            first = self._first(planes, channels, stride)
            count -= 1
        self.builder.channels = channels
        stage = Propagation(
            self.builder.transforms(count, lambda: self._transform(planes)),
            self.builder.rule,
            first=first,
            after=self._after(count) if self.rectify == "sum" else None,
            start="zero",
            reversible=self.reversible,
        )
        self.count += 1
        self.builder.add(f"layer{self.count}", stage)

    def _transform(self, planes: int, stride: int = 1, *, bare: bool = False) -> nn.Sequential:
        branch = self.builder.branch()
        end: End | None = "same_channels" if self.rectify == "transform" and not bare else None
        self.block.append(branch, planes, stride, end, self.rectify != "nowhere")
        return branch.sequential()

    def _first(self, planes: int, channels: int, stride: int) -> nn.Module:
        """Make a residual block under any rule (structure, "Block Based Structure"), without a shortcut under plain."""
        if isinstance(self.builder.rule, Plain):
            return self._transform(planes, stride)
        downsample = self.shortcut(self.builder, channels, stride, self.rectify != "nowhere")
        after = nn.Identity() if self.rectify == "nowhere" else self._rectified(channels)
        return ResidualBlock(self._transform(planes, stride, bare=True), downsample, after)

    def _after(self, count: int) -> nn.Module:
        """Make what follows the sums of a stage: one shared module, or one per sum where each keeps its own mean."""
        channels = self.builder.channels
        if self.builder.design.norm == "activation_mean":
            return nn.ModuleList(self._rectified(channels) for _ in range(count))
        return self._rectified(channels)

    def _rectified(self, channels: int) -> nn.Module:
        """Make an activation, with its norm if the design has one there."""
        activation = activation_of(self.builder.design, "one_phase", channels)[0]
        if self.builder.design.norm != "activation_mean":
            return activation
        return nn.Sequential(activation, self.builder.input_mean(channels))
