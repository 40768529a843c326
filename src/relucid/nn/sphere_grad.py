r"""Vectors from latitudes and their first and second derivatives in closed form.

With :math:`t_i = \tan l_i` and the running product :math:`p_i = \prod_{j \le i} \cos l_j`, every coordinate of the unit
vector except the last is :math:`u_i = t_i p_i`, the last is :math:`u_n = p_{n-1}`, and
:math:`\partial u_i / \partial l_i = p_i`, :math:`\partial u_k / \partial l_i = -t_i u_k` for :math:`k > i`: a product
from the left and a sum from the right, O(n).

No floating-point number is an odd multiple of :math:`\pi/2`, so t is finite and p is not 0. Where t is large, p and all
that follows is small in proportion: nothing is lost as long as small terms are not taken as differences of large ones.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.nn.tracing import mapped_first

_BLOCK = 2**17  # numbers per block and thread: a handful of arrays of this size fit in the cache


def scaled_direction(latitudes: Tensor, scale: Tensor, quarter: bool = False) -> Tensor:
    """The rows r u, (units, n), with their derivatives, for latitudes (units, n - 1) and scales r, (units,).

    With ``quarter`` the latitudes are pi/2 more than given: exact, as if pi/2 were a number of the format.
    """
    # torch.compile does not trace a function that defines forward mode.
    function = _Direction if torch.compiler.is_compiling() else _DirectionForwardMode
    w: Tensor = function.apply(latitudes, scale, quarter)[0]
    return w


def _vector(latitudes: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows w = r u, and t and p."""
    across = latitudes.cos()
    t, p = latitudes.sin() / across, across.cumprod(-1)
    return _unit(t, p) * scale.unsqueeze(-1), t, p


def _vector_in_blocks(latitudes: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t, p = torch.empty_like(latitudes), torch.empty_like(latitudes)
    w = latitudes.new_empty(len(latitudes), latitudes.shape[1] + 1)
    for x_, r_, w_, t_, p_ in _blocks(latitudes, scale.unsqueeze(-1), w, t, p):
        torch.sin(x_, out=t_).div_(torch.cos(x_, out=p_))
        torch.mul(t_, p_.cumprod_(-1), out=w_[:, :-1])
        w_[:, -1:] = p_[:, -1:]
        w_.mul_(r_)
    return w, t, p


def _in_blocks(*tensors: Tensor) -> bool:
    """Whether to compute in blocks of rows that stay in the cache: on a CPU, with ordinary tensors."""
    return not torch.compiler.is_compiling() and all(
        x.is_cpu and type(x) in (Tensor, nn.Parameter) for x in tensors
    )


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Corresponding rows of all tensors, as many at a time as make up a block of the first."""
    rows = max(1, _BLOCK * torch.get_num_threads() // tensors[0].shape[-1])
    return zip(*(each.split(rows) for each in tensors), strict=True)


def _quarter_vector(latitudes: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for latitudes that are pi/2 more: cosines may be 0, and t and p are then taken just beside it."""
    along, across = latitudes.cos(), -latitudes.sin()
    w = written_out(along, across.cumprod(-1)) * scale.unsqueeze(-1)
    # Negligible, yet products of two or three of it do not underflow.
    small = torch.finfo(across.dtype).tiny ** 0.25
    across = torch.where(across.abs() < small, across.new_tensor(small).copysign(across), across)
    return w, along / across, across.cumprod(-1)


def written_out(along: Tensor, products: Tensor) -> Tensor:
    """The unit vector, (..., n), from the sines of the latitudes and the running product of their cosines."""
    one = along.new_ones(*along.shape[:-1], 1)
    return torch.cat((one, products), -1) * torch.cat((along, one), -1)


def _unit(t: Tensor, p: Tensor) -> Tensor:
    return torch.cat((t * p, p[..., -1:]), -1)


def sum_from_right(x: Tensor) -> Tensor:
    """x_i + x_{i+1} + ... along the last dimension."""
    return x.flip(-1).cumsum(-1).flip(-1)


# Shifted, not "sum minus own term": terms may differ by orders of magnitude.
def _sum_before(x: Tensor) -> Tensor:
    return F.pad(x.cumsum(-1)[..., :-1], (1, 0))


def _sum_after(x: Tensor) -> Tensor:
    return F.pad(sum_from_right(x)[..., 1:], (0, 1))


def _vjp(t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of <g, u> in the latitudes, (units, n - 1), and <g, u>, (units,), for g, (units, n)."""
    terms = _unit(t, p) * g
    return torch.addcmul(g[..., :-1] * p, sum_from_right(terms)[..., 1:], t, value=-1), terms.sum(-1)


def _jvp(t: Tensor, p: Tensor, v: Tensor) -> Tensor:
    """The change of u, (units, n), for a change v of the latitudes, (units, n - 1)."""
    turned = t * v
    return torch.cat((p * (v - t * _sum_before(turned)), -p[..., -1:] * turned.sum(-1, keepdim=True)), -1)


def _hvp(t: Tensor, p: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    r"""The change of the gradient of <g, u> for a change v of the latitudes, and that gradient, (units, n - 1) each.

    The Hessian is :math:`-t_{\min(i,j)} \, \mathrm{gradient}_{\max(i,j)}` off the diagonal and
    :math:`-\sum_{k \ge i} g_k u_k` on it.
    """
    gradient, _ = _vjp(t, p, g)
    own = sum_from_right(_unit(t, p) * g)[..., :-1] * v
    return -(own + t * _sum_after(gradient * v) + gradient * _sum_before(t * v)), gradient


def _over_rows(function: Any, info: Any, in_dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> Any:
    """A function of rows under vmap: the mapped dimension brings more rows, no more."""
    mapped = mapped_first(info, in_dims, inputs)
    rows = (x.flatten(0, 1) if isinstance(x, Tensor) else x for x in mapped)
    found = function.apply(*rows)
    return tuple(each.unflatten(0, (info.batch_size, -1)) for each in found), (0,) * len(found)


class _Direction(torch.autograd.Function):
    """(latitudes, scale, quarter) -> (w, t, p); only w has derivatives."""

    @staticmethod
    def forward(latitudes: Tensor, scale: Tensor, quarter: bool) -> tuple[Tensor, ...]:
        if quarter:
            return _quarter_vector(latitudes, scale)
        return (_vector_in_blocks if _in_blocks(latitudes, scale) else _vector)(latitudes, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: tuple[Tensor, ...]) -> None:
        latitudes, scale, _ = inputs
        _, t, p = output
        ctx.mark_non_differentiable(t, p)
        ctx.set_materialize_grads(False)  # no zeros for t and p
        ctx.save_for_backward(latitudes, scale, t, p)
        ctx.save_for_forward(latitudes, scale, t, p)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        function = _VJP if torch.compiler.is_compiling() else _VJPForwardMode
        return *function.apply(*ctx.saved_tensors, g), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        return _over_rows(_DirectionForwardMode, info, in_dims, inputs)


class _DirectionForwardMode(_Direction):
    @staticmethod
    def jvp(ctx: Any, v: Tensor | None, r: Tensor | None, _: None) -> tuple[Tensor, None, None]:
        _, scale, t, p = ctx.saved_tensors
        v, r = torch.zeros_like(t) if v is None else v, torch.zeros_like(scale) if r is None else r
        return _change(scale, t, p, v, r), None, None


def _change(scale: Tensor, t: Tensor, p: Tensor, v: Tensor, r: Tensor) -> Tensor:
    """The change of w for a change v of the latitudes and r of the scale."""
    return scale.unsqueeze(-1) * _jvp(t, p, v) + r.unsqueeze(-1) * _unit(t, p)


def _scaled_vjp(scale: Tensor, t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of <g, w> in latitudes, (units, n - 1), and scale, (units,)."""
    gradient, inner = _vjp(t, p, g)
    return scale.unsqueeze(-1) * gradient, inner


def _scaled_vjp_in_blocks(scale: Tensor, t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    # All that is written to comes from g: a batch of gradients under vmap is written to a batch.
    in_latitudes, in_scale = g.new_empty(t.shape), g.new_empty(scale.shape)
    for t_, p_, g_, r_, into, inner in _blocks(t, p, g, scale.unsqueeze(-1), in_latitudes, in_scale):
        own = g_[:, :-1] * p_
        sums = sum_from_right(torch.cat((own * t_, g_[:, -1:] * p_[:, -1:]), 1))
        into.copy_(own.addcmul_(sums[:, 1:], t_, value=-1).mul_(r_))
        inner.copy_(sums[:, 0])
    return in_latitudes, in_scale


def _scaled_hvp(
    scale: Tensor, t: Tensor, p: Tensor, g: Tensor, v: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    """The changes of the gradients of <g, w> in latitudes and scale, for changes v and r of these."""
    change, gradient = _hvp(t, p, g, v)
    return scale.unsqueeze(-1) * change + r.unsqueeze(-1) * gradient, (gradient * v).sum(-1)


class _VJP(torch.autograd.Function):
    """(latitudes, scale, t, p, g) -> the gradients of <g, w> in latitudes and scale; differentiable in these and g."""

    @staticmethod
    def forward(latitudes: Tensor, scale: Tensor, t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        function = _scaled_vjp_in_blocks if _in_blocks(scale, t, p, g) else _scaled_vjp
        return function(scale, t, p, g)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor, r: Tensor) -> tuple[Tensor | None, ...]:
        scale, t, p, g = ctx.saved_tensors
        in_latitudes, in_scale = _scaled_hvp(scale, t, p, g, v, r)
        return in_latitudes, in_scale, None, None, _change(scale, t, p, v, r)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        return _over_rows(_VJPForwardMode, info, in_dims, inputs)


class _VJPForwardMode(_VJP):
    @staticmethod
    def jvp(ctx: Any, v: Tensor, r: Tensor, _t: None, _p: None, dg: Tensor) -> tuple[Tensor, Tensor]:
        scale, t, p, g = ctx.saved_tensors
        changes, of_g = _scaled_hvp(scale, t, p, g, v, r), _scaled_vjp(scale, t, p, dg)
        return changes[0] + of_g[0], changes[1] + of_g[1]
