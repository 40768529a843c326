"""A linear layer with a weight built from latitudes; the weight's gradient is never held as a whole, only in blocks."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from relucid.nn.sphere_grad import differentiable, has_tangent, pull_by_blocks, pulls_by_blocks
from relucid.nn.tracing import has_values


def is_cpu_float32(x: Tensor) -> bool:
    """Whether ``linear_by_blocks`` applies: float32 on a CPU, where memory traffic dominates."""
    return (
        isinstance(x, Tensor)
        and x.dtype == torch.float32
        and has_values(x)
        and x.is_cpu
        and not torch.is_autocast_enabled("cpu")
        and not has_tangent(x)
    )


def linear_by_blocks(
    x: Tensor, latitudes: Tensor, scale: Tensor | None, bias: Tensor | None, w: Tensor, p: Tensor
) -> Tensor:
    """``F.linear(x, w, bias)``, with the w and p that belong to the latitudes and the scale."""
    y: Tensor = _LinearByBlocks.apply(x, latitudes, scale, bias, w, p)
    return y


class _LinearByBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, latitudes, scale, bias, w, p = inputs
        # Detached: the cached tensors may be overwritten in place, which would change their version.
        ctx.save_for_backward(x, latitudes, scale, w.detach(), p.detach())
        return F.linear(x, w, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, latitudes, scale, w, p = ctx.saved_tensors
        twice = torch.is_grad_enabled() or has_tangent(grad)
        if twice or not has_values(grad) or not pulls_by_blocks(p, scale):
            return _by_autograd(ctx, x, latitudes, scale, w, p, grad)
        rows, inputs = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        in_x = grad @ w if ctx.needs_input_grad[0] else None
        in_bias = rows.sum(0) if ctx.needs_input_grad[3] else None
        pull, inner = pull_by_blocks(
            w, p, lambda begin, end, out: torch.mm(rows[:, begin:end].T, inputs, out=out)
        )
        in_scale = None if scale is None else inner / scale
        return in_x, pull, in_scale, in_bias, None, None


def _by_autograd(
    ctx: Any, x: Tensor, latitudes: Tensor, scale: Tensor | None, w: Tensor, p: Tensor, grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The same gradients by autograd: on any device, and differentiable again if asked."""
    again = torch.is_grad_enabled()
    rows, inputs = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    sources = [each for each in (latitudes, scale) if each is not None and each.requires_grad]
    with torch.enable_grad():
        w, _ = differentiable(latitudes, scale, 1, w, p)
    found = dict(
        zip(
            map(id, sources),
            torch.autograd.grad(w, sources, rows.T @ inputs, create_graph=again),
            strict=True,
        )
    )
    in_x = grad @ w if ctx.needs_input_grad[0] else None
    in_bias = rows.sum(0) if ctx.needs_input_grad[3] else None
    return in_x, found.get(id(latitudes)), found.get(id(scale)), in_bias, None, None
