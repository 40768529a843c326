r"""Unit vectors from latitudes, with first and second derivatives in closed form.

With :math:`t_i = \tan l_i` and the running product :math:`p_i = \prod_{j \le i} \cos l_j`, every coordinate of the unit
vector except the last is :math:`u_i = t_i p_i`, the last is :math:`u_n = p_{n-1}`, and
:math:`\partial u_i / \partial l_i = p_i`, :math:`\partial u_k / \partial l_i = -t_i u_k` for :math:`k > i`: a product
from the left and a sum from the right, O(n).

No floating-point number is an odd multiple of :math:`\pi/2`, so t is finite and p is not 0. Where t is large, p and all
that follows is small in proportion: nothing is lost as long as small terms are not taken as differences of large ones.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from relucid.nn.tracing import mapped_first

# Numbers per block and thread: temporary arrays of this size are reused, not fetched from the system.
_BLOCK = 2**20


def unit_rows(latitudes: Tensor, quarter: bool = False) -> Tensor:
    """The unit vectors, (..., n), of latitudes, (..., n - 1); blocks of rows at a time if there are many.

    With ``quarter`` the latitudes are pi/2 more than given: exact, as if pi/2 were a number of the format.
    """
    if not latitudes.is_cpu or torch.compiler.is_compiling() or latitudes.numel() <= _BLOCK:
        return _unit(latitudes, quarter)
    rows = latitudes.reshape(-1, latitudes.shape[-1])
    blocks = rows.split(max(1, _BLOCK * torch.get_num_threads() // rows.shape[1]))
    if torch.is_grad_enabled():  # whether the latitudes require a gradient cannot be told under vmap
        u = torch.cat([_unit(block, quarter) for block in blocks])
    else:  # one array of this size
        u = rows.new_empty(len(rows), rows.shape[1] + 1)
        for block, into in zip(blocks, u.split(len(blocks[0])), strict=True):
            into.copy_(_unit(block, quarter))
    return u.view(*latitudes.shape[:-1], -1)


def _unit(latitudes: Tensor, quarter: bool) -> Tensor:
    # torch.compile does not trace a function that defines forward mode.
    function = _Direction if torch.compiler.is_compiling() else _DirectionForwardMode
    u: Tensor = function.apply(latitudes, quarter)[0]
    return u


def sines_and_cosines(latitudes: Tensor, quarter: bool) -> tuple[Tensor, Tensor]:
    """Of the latitudes, or of what is pi/2 more."""
    return (latitudes.cos(), -latitudes.sin()) if quarter else (latitudes.sin(), latitudes.cos())


def sum_from_right(x: Tensor) -> Tensor:
    """x_i + x_{i+1} + ... along the last dimension."""
    return x.flip(-1).cumsum(-1).flip(-1)


# Shifted, not "sum minus own term": terms may differ by orders of magnitude.
def _sum_before(x: Tensor) -> Tensor:
    return F.pad(x.cumsum(-1)[..., :-1], (1, 0))


def _sum_after(x: Tensor) -> Tensor:
    return F.pad(sum_from_right(x)[..., 1:], (0, 1))


def _vjp(t: Tensor, p: Tensor, u: Tensor, g: Tensor) -> Tensor:
    """The gradient of <g, u> in the latitudes."""
    # Not in place: torch.func has no rule for that under vmap.
    return torch.addcmul(g[..., :-1] * p, sum_from_right(g[..., 1:] * u[..., 1:]), t, value=-1)


def _jvp(t: Tensor, p: Tensor, v: Tensor) -> Tensor:
    """The change of u for a change v of the latitudes."""
    turned = t * v
    return torch.cat((p * (v - t * _sum_before(turned)), -p[..., -1:] * turned.sum(-1, keepdim=True)), -1)


def _hvp(t: Tensor, p: Tensor, u: Tensor, g: Tensor, v: Tensor) -> Tensor:
    r"""The change of the gradient of <g, u> for a change v of the latitudes.

    The Hessian is :math:`-t_{\min(i,j)} \, \mathrm{gradient}_{\max(i,j)}` off the diagonal and
    :math:`-\sum_{k \ge i} g_k u_k` on it.
    """
    gradient = _vjp(t, p, u, g)
    diagonal = sum_from_right(u * g)[..., :-1] * v
    return -(diagonal + t * _sum_after(gradient * v) + gradient * _sum_before(t * v))


def _divided(along: Tensor, across: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u, t and p from the sines and cosines, which are written over."""
    t, p = along.div_(across), across.cumprod_(-1)
    u = p.new_empty(*p.shape[:-1], p.shape[-1] + 1)
    u[..., :-1].copy_(t).mul_(p)
    u[..., -1:].copy_(p[..., -1:])
    return u, t, p


class _Direction(torch.autograd.Function):
    """(latitudes, quarter) -> ([the exact u,] u, t, p); only the first has derivatives."""

    @staticmethod
    def forward(latitudes: Tensor, quarter: bool) -> tuple[Tensor, ...]:
        t, p = sines_and_cosines(latitudes, quarter)
        if not quarter:
            return _divided(t, p)
        # A cosine may be 0. Derivatives are taken just beside it: at a number that is negligible, yet products of two
        # or three of it do not underflow.
        exact = torch.cat((t, torch.ones_like(t[..., :1])), -1)
        exact[..., 1:].mul_(p.cumprod(-1))
        small = torch.finfo(p.dtype).tiny ** 0.25
        return exact, *_divided(t, torch.where(p.abs() < small, torch.full_like(p, small).copysign_(p), p))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # no zeros for t and p
        ctx.no_tangents = (None,) * (len(output) - 1)
        ctx.save_for_backward(inputs[0], *output[-3:])
        ctx.save_for_forward(inputs[0], *output[-3:])

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
        if g is None:
            return None, None
        latitudes, u, t, p = ctx.saved_tensors
        differentiated = torch.is_grad_enabled() or forward_ad.unpack_dual(latitudes).tangent is not None
        if differentiated and not torch.compiler.is_compiling():
            return _VJP.apply(latitudes, t, p, u, g), None
        return _vjp(t, p, u, g), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        output = _DirectionForwardMode.apply(*mapped_first(info, in_dims, inputs))
        return output, (0,) * len(output)


class _DirectionForwardMode(_Direction):
    @staticmethod
    def jvp(ctx: Any, v: Tensor, _: None) -> tuple[Tensor | None, ...]:
        _, _, t, p = ctx.saved_tensors
        return _jvp(t, p, v), *ctx.no_tangents


class _VJP(torch.autograd.Function):
    """(latitudes, t, p, u, g) -> the gradient of <g, u> in the latitudes; differentiable in these and g."""

    @staticmethod
    def forward(latitudes: Tensor, t: Tensor, p: Tensor, u: Tensor, g: Tensor) -> Tensor:
        return _vjp(t, p, u, g)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        t, p, u, g = ctx.saved_tensors
        return _hvp(t, p, u, g, v), None, None, None, _jvp(t, p, v)

    @staticmethod
    def jvp(ctx: Any, v: Tensor, _t: None, _p: None, _u: Tensor | None, dg: Tensor) -> Tensor:
        t, p, u, g = ctx.saved_tensors
        return _hvp(t, p, u, g, v) + _vjp(t, p, u, dg)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        return _VJP.apply(*mapped_first(info, in_dims, inputs)), 0
