"""Norms in evaluation mode: with fixed statistics, an affine map per channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def affine_of(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return (scale, shift) of a batch norm or mean norm with running statistics, (C,) each, in float64.

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
    """Return (scale, shift) with scale * x + shift = (x - mean) / sqrt(variance + eps) * weight + bias, in float64.

    None means no effect: a variance of 1 - eps, a weight of 1, a bias of 0.
    """
    mean = mean.detach().double()
    scale = torch.ones_like(mean) if variance is None else (variance.detach().double() + eps).rsqrt()
    scale = scale if weight is None else scale * weight.detach().double()
    return scale, -scale * mean if bias is None else bias.detach().double() - scale * mean
