"""Scales outside an activation; outside a ReLU they cost nothing beyond the ReLU."""

from typing import Any

import torch
from torch import Tensor

from relucid.nn.activation import Activation, CReLU, grouped
from relucid.nn.tracing import is_exported, mapped_first

# Stands for a scale of 0: a unit's output is then 0 for all purposes, and still shows on which side of its boundary
# the input was.
_ALMOST_ZERO = 1e-30


def rectify(z: Tensor, scale: Tensor) -> Tensor:
    r"""The output r relu(s), given z = r s with r other than 0.

    It is max(z, 0) where r > 0 and min(z, 0) where r < 0. As for ReLU, the gradient is 0 where the output is 0.

    Args:
        z: (..., C, ...).
        scale: r, broadcast over z.

    >>> rectify(torch.tensor([-2.0, 2.0, -2.0, 2.0]), torch.tensor([1.0, 1.0, -1.0, -1.0]))
    tensor([ 0.,  2., -2.,  0.])
    """
    if torch.compiler.is_compiling() or is_exported():  # a compiler fuses this by itself
        return torch.where(z * scale.sign() <= 0, 0.0, z)  # NaN stays NaN
    y: Tensor = _Rectify.apply(z, scale.detach())
    return y


def not_zero(scale: Tensor) -> Tensor:
    """The scale, 1e-30 where it is 0; the gradient is that of the scale."""
    return scale + _ALMOST_ZERO * (scale == 0).to(scale.dtype)


def fits(x: Tensor) -> bool:
    """Whether the format in which a layer computes with ``x`` has numbers as small as those of :func:`not_zero`."""
    kind = x.device.type
    autocast = not x.is_meta and torch.is_autocast_enabled(kind)
    return torch.finfo(torch.get_autocast_dtype(kind) if autocast else x.dtype).tiny < _ALMOST_ZERO


def of_channels(scale: Tensor, activation: Activation | None, channels: int) -> Tensor:
    """The scale of every channel after an activation, (channels,), given one per unit.

    After CReLU there are more channels than units: second phases use the scales of the first.
    """
    if not isinstance(activation, CReLU):
        return scale
    return grouped(torch.cat((scale, scale)), 0, activation.groups)[:channels]


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor, scale: Tensor) -> Tensor:
        zero = torch.zeros_like(scale, dtype=z.dtype)
        # Two steps, each as fast as ReLU: torch does not vectorize a clamp between two tensors.
        above = torch.maximum(z, torch.where(scale < 0, -torch.inf, zero))
        return above.clamp_max_(torch.where(scale < 0, zero, torch.inf))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.hardshrink_backward(grad, y, 0.0), None  # grad where y is not 0, in one pass

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (y,) = ctx.saved_tensors
        change: Tensor = torch.ops.aten.hardshrink_backward(tangent, y, 0.0)
        return change

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        # Not generate_vmap_rule, which rebuilds the rule at every call.
        z, scale = mapped_first(info, in_dims, inputs)
        return _Rectify.apply(z, scale.unflatten(0, (-1, *[1] * (z.dim() - scale.dim())))), 0
