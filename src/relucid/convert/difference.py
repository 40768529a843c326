"""How far the outputs of two networks are apart, and how far they may be."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Outputs in training may differ that many times as much: norms divide by the spread of a few values. So may columns.
LOOSER = 100
# The largest relative difference of outputs, by precision.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-2}


def tolerance_of(outputs: list[Tensor]) -> float:
    """The largest relative difference that is allowed, given the coarsest precision of the outputs."""
    real = [x.real.dtype if x.is_complex() else x.dtype for x in outputs]
    return max((TOLERANCE.get(dtype, 1e-4) for dtype in real if dtype.is_floating_point), default=0.0)


def difference(before: list[Tensor], after: list[Tensor]) -> tuple[float, float]:
    """The largest difference between two lists of tensors, and the same divided by the largest entry.

    It is infinite if shapes differ, or if NaN and infinities are not in the same places.

    >>> difference([torch.tensor([1.0, 4.0])], [torch.tensor([1.0, 3.0])])
    (1.0, 0.25)
    >>> difference([torch.tensor([1.0, torch.nan])], [torch.tensor([torch.nan, torch.nan])])
    (inf, inf)
    """
    if len(before) != len(after):
        return math.inf, math.inf
    pairs = [_difference(x, y) for x, y in zip(before, after, strict=True)]
    return max((e for e, _ in pairs), default=0.0), max((r for _, r in pairs), default=0.0)


def _difference(x: Tensor, y: Tensor) -> tuple[float, float]:
    if x.shape != y.shape or x.dtype.is_complex != y.dtype.is_complex:
        return math.inf, math.inf
    if x.is_complex():
        x, y = torch.view_as_real(x), torch.view_as_real(y)
    x, y = x.double(), y.double()
    finite = x.isfinite()
    if not torch.equal(finite, y.isfinite()) or not torch.allclose(x[~finite], y[~finite], equal_nan=True):
        return math.inf, math.inf
    x, y = x[finite], y[finite]
    if not x.numel():
        return 0.0, 0.0
    error, size = float((x - y).abs().max()), float(x.abs().max())
    return error, error / size if size else error


def by_column(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """The largest difference, each entry of the last dimension on its own scale; constant ones set no scale.

    >>> x = torch.tensor([[1.0, -1e9], [2.0, -1e9]])
    >>> round(by_column([x], [x + torch.tensor([0.5, 0.0])]), 2)
    0.32
    """
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if x.dim() < 2 or not x.is_floating_point() or not x.numel():
            continue
        x, y = (z.double().nan_to_num(0, 0, 0).flatten(0, -2) for z in (x, y))
        size, error = x.square().mean(0).sqrt(), (x - y).abs().amax(0)
        vary = size[(x != x[:1]).any(0)]
        scale = size.maximum(vary.median()) if len(vary) else size
        worst = max(worst, float(torch.where(error == 0, 0.0, error / scale.clamp(min=1e-30)).max()))
    return worst
