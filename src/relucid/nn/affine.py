"""Norms in evaluation mode, an affine map per channel; layers that take such a map into their weights; padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from relucid._torch import ConvNd, ConvTransposeNd

if TYPE_CHECKING:
    from relucid.nn._geometric import _GeometricConv


def affine_of(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """(scale, shift) of a batch norm or mean norm with running statistics, (C,) each, in float64.

    >>> [x.tolist() for x in affine_of(nn.BatchNorm1d(2, eps=0.0))]
    [[1.0, 1.0], [0.0, 0.0]]
    """
    mean = getattr(norm, "running_mean", None)
    if mean is None:
        raise TypeError(f"{type(norm).__name__} keeps no running mean: its output depends on the batch")
    variance = getattr(norm, "running_var", None)
    return affine(
        mean, variance, getattr(norm, "weight", None), getattr(norm, "bias", None), getattr(norm, "eps", 0.0)
    )


def affine(
    mean: Tensor, variance: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """(scale, shift) with scale * x + shift = (x - mean) / sqrt(variance + eps) * weight + bias, in float64.

    None means no effect: a variance of 1 - eps, a weight of 1, a bias of 0.
    """
    mean = mean.detach().double()
    scale = torch.ones_like(mean) if variance is None else (variance.detach().double() + eps).rsqrt()
    scale = scale if weight is None else scale * weight.detach().double()
    return scale, -scale * mean if bias is None else bias.detach().double() - scale * mean


@torch.no_grad()
def affine_after(layer: nn.Linear | ConvNd, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """(weight, bias) of one layer for scale * layer(x) + shift, in float64.

    >>> weight, bias = affine_after(nn.Linear(3, 2), torch.zeros(2), torch.ones(2))
    >>> weight.abs().sum().item(), bias.tolist()
    (0.0, [1.0, 1.0])
    """
    weight, scale, shift = (x.double() for x in (layer.weight, scale, shift))
    groups = layer.groups if isinstance(layer, ConvTransposeNd) else 1
    units = (1, -1) if isinstance(layer, ConvTransposeNd) else (-1, 1)
    # The parts of a transposed convolution's weight are (groups, in, out of the group, ...).
    parts = weight.unflatten(0, (groups, -1))
    factors = scale.view(groups, *units, *[1] * (weight.dim() - 2))
    return (parts * factors).flatten(
        0, 1
    ), shift if layer.bias is None else layer.bias.double() * scale + shift


@torch.no_grad()
def affine_before(layer: nn.Linear | ConvNd, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """(weight, bias) of one layer for layer(scale * x + shift), in float64.

    Neither for transposed convolutions nor for zero-padded ones, whose zeros would become the shift.
    """
    weight = layer.weight.double()
    groups = layer.groups if isinstance(layer, ConvNd) else 1
    parts = weight.view(groups, len(weight) // groups, weight.shape[1], -1)
    scale, shift = (x.to(weight).view(groups, 1, -1, 1) for x in (scale, shift))
    added = (parts.sum(3, keepdim=True) * shift).sum((2, 3)).flatten()
    return (parts * scale).view_as(weight), added if layer.bias is None else layer.bias.double() + added


def padding_of(layer: ConvNd | _GeometricConv) -> list[int]:
    """A convolution's own padding, as ``F.pad`` takes it: the last dimension first, before and after.

    >>> padding_of(nn.Conv2d(1, 1, (3, 4), padding="same")), padding_of(nn.Conv2d(1, 1, 3, padding=(1, 2)))
    ([1, 2, 1, 1], [2, 2, 1, 1])
    """
    padding: list[int] = []
    for k, size in reversed(list(enumerate(layer.kernel_size))):
        if isinstance(layer.padding, str):
            total = 0 if layer.padding == "valid" else layer.dilation[k] * (size - 1)
            padding += [total // 2, total - total // 2]
        else:
            padding += [layer.padding[k]] * 2
    return padding
