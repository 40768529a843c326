r"""Vectors from latitudes or angles, and their first and second derivatives in closed form.

For a vector w of length r, with the running product \(p_i = r \prod_{j \le i} \sin\theta_j\) and
\(t_i = \cot\theta_i\), every coordinate except the last is \(w_i = t_i p_i\), the last is \(w_n = p_{n-1}\), and in
latitudes \(\partial w_i / \partial l_i = p_i\), \(\partial w_k / \partial l_i = -t_i w_k\) for \(k > i\): a product
from the left and a sum from the right, O(n).
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from relucid.nn import kernels
from relucid.nn.tracing import has_values, mapped_first

_TAIL = 64  # last latitudes of a row, where sums are taken from the right
_SMALLEST = 1e-30  # p that the kernels divide by: underflow of w then adds less than 1e-14 to w / p
_BLOCK = 2**18  # entries per block and thread, at least; much larger ones would leave the cache


def differentiable(x: Tensor, scale: Tensor | None, sign: int, *known: Tensor) -> tuple[Tensor, Tensor]:
    """The w and p for latitudes (sign 1) or angles (sign -1); only w has a derivative.

    ``known`` are w and p if they were computed before, for the same ``x`` and ``scale``.
    """
    # torch.compile cannot trace a function that defines forward mode.
    function = _Direction if torch.compiler.is_compiling() else _DirectionForwardMode
    w, p = function.apply(x, scale, sign, *(known or (None, None)))
    return w, p


def write_vector(x: Tensor, scale: Tensor | None, latitude: bool, w: Tensor, p: Tensor) -> None:
    """Write w, (..., n), and p, (..., n - 1): by compiled kernels, or in blocks that stay in the cache."""
    if kernels.apply_to(x, scale, w):
        kernels.write_vectors(x, scale, latitude, w, p)
        return
    of_along, of_across = (torch.sin, torch.cos) if latitude else (torch.cos, torch.sin)
    blocks = _blocks(x, w, p, scale)
    # Sines are written here first: into w, whose rows are longer, torch would write them by one thread.
    spare = p.new_empty(len(blocks[0][0]), p.shape[-1])
    for x_, w_, p_, r in zip(*blocks, strict=True):
        along = of_along(x_, out=spare[: len(x_)])
        of_across(x_, out=p_)
        if r is not None:
            p_[:, :1].mul_(r)
            along[:, :1].mul_(r)
        p_.cumprod_(-1)
        torch.mul(along[:, 1:], p_[:, :-1], out=w_[:, 1:-1])
        w_[:, :1].copy_(along[:, :1])
        w_[:, -1:].copy_(p_[:, -1:])


def _vector(x: Tensor, scale: Tensor | None, latitude: bool) -> tuple[Tensor, Tensor]:
    if not has_values(x):
        along, across = (x.sin(), x.cos()) if latitude else (x.cos(), x.sin())
        products = torch.cat((_scale_or_ones(scale, x).unsqueeze(-1), across), -1).cumprod(-1)
        return products * F.pad(along, (0, 1), value=1.0), products[..., 1:].contiguous()
    w, p = x.new_empty(*x.shape[:-1], x.shape[-1] + 1), x.new_empty(x.shape)
    write_vector(x, scale, latitude, w, p)
    return w, p


def _blocks(x: Tensor, *others: Tensor | None) -> list[Any]:
    """Each tensor split into matrices of equally many rows, as many as make up a block of ``x``; None gives Nones.

    All but ``x`` must be contiguous; a scale, (...), becomes matrices of one column.
    """
    rows = _rows(x.numel() // x.shape[-1], x.shape[-1])
    found: list[Any] = []
    for each in (x, *others):
        if each is None:
            found.append([None] * len(found[0]))
        else:
            flat = each.reshape(-1, each.shape[-1] if each.dim() == x.dim() else 1)
            found.append(flat.split(rows))
    return found


def _rows(count: int, length: int) -> int:
    """Return how many of these rows of this length make up a block; all blocks have about the same size."""
    blocks = max(1, count * length // (_BLOCK * torch.get_num_threads()))
    return max(1, -(-count // blocks))


def _beside_zeros(x: Tensor, scale: Tensor, latitude: bool) -> tuple[Tensor, Tensor]:
    """The t and p for derivatives where a sine or the scale may be 0, or too small to divide by.

    The coordinates of w after a zero vanish, but their derivatives do not: t and p are taken just beside the zero.
    """
    along, across = (x.sin(), x.cos()) if latitude else (x.cos(), x.sin())
    across = torch.where(across.abs() < _small(x), across.new_tensor(_small(x)).copysign(across), across)
    p = torch.cat((_beside_zero(scale).unsqueeze(-1), across), -1).cumprod(-1)[..., 1:]
    return along / across, p


def sum_from_right(x: Tensor) -> Tensor:
    """x_i + x_{i+1} + ... along the last dimension."""
    return x.flip(-1).cumsum(-1).flip(-1)


# Shifted, not "sum minus own term": near a zero sine the terms differ by orders of magnitude.
def _sum_before(x: Tensor) -> Tensor:
    return F.pad(x.cumsum(-1)[..., :-1], (1, 0))


def _sum_after(x: Tensor) -> Tensor:
    return F.pad(sum_from_right(x)[..., 1:], (0, 1))


def _scale_or_ones(scale: Tensor | None, x: Tensor) -> Tensor:
    return x.new_ones(x.shape[:-1]) if scale is None else scale


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether any of them carries a tangent of forward-mode differentiation."""
    return any(unpack_dual(each).tangent is not None for each in tensors if each is not None)


def _beside_zero(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, _small(scale), scale)


def _small(x: Tensor) -> float:
    """Negligible next to 1, yet products of two or three of it do not underflow."""
    return float(torch.finfo(x.dtype).tiny ** 0.25)


def _pull(t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient in the latitudes, (..., n - 1), and <g, w>, (...), for a gradient g in w, (..., n)."""
    own, last = g[..., :-1] * p, g[..., -1] * p[..., -1]
    later = (own * t).flip(-1)  # g_k w_k, from the right
    later[..., 0].add_(last)
    later = later.cumsum_(-1).flip(-1)
    own[..., :-1].addcmul_(later[..., 1:], t[..., :-1], value=-1)
    own[..., -1].addcmul_(last, t[..., -1], value=-1)
    return own, later[..., 0]


def pull_by_blocks(
    w: Tensor, p: Tensor, gradient: Callable[[int, int, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The same as ``_pull`` from matrices w and p; allocates no array of their size but the result.

    ``gradient(begin, end, out)`` returns rows of g and may write them to ``out``.
    """
    w, p = w.contiguous(), p.contiguous()  # hooks on saved tensors may have changed their strides
    pull, inner, count = torch.empty_like(p), p.new_empty(len(p), 1), _rows(*w.shape)
    compiled = kernels.apply_to(w)
    out, *spare = (
        each.new_empty(min(count, len(p)), each.shape[1]) for each in ((w,) if compiled else (w, w, p))
    )
    for begin in range(0, len(p), count):
        rows = slice(begin, min(begin + count, len(p)))
        g = gradient(rows.start, rows.stop, out[: rows.stop - begin])
        if compiled:
            kernels.write_pulls(g, w[rows], p[rows], pull[rows], inner[rows])
        else:
            _write_pulls(g, w[rows], p[rows], pull[rows], inner[rows], *(each[: len(g)] for each in spare))
    return pull, inner.squeeze(1)


def _write_pulls(
    g: Tensor, w: Tensor, p: Tensor, pull: Tensor, inner: Tensor, total: Tensor, ratio: Tensor
) -> None:
    """The sum over k > i is the whole sum minus the sum up to i, except in the tail, where p is small."""
    torch.mul(g, w, out=total)
    tail = sum_from_right(total[:, -_TAIL:])
    torch.sum(total, 1, keepdim=True, out=inner)
    total[:, :1].sub_(inner)
    minus_later = total.cumsum_(-1)[:, :-1]
    torch.neg(tail[:, 1:], out=minus_later[:, 1 - _TAIL :])
    torch.div(w[:, :-1], p, out=ratio)
    torch.mul(g[:, :-1], p, out=pull).addcmul_(minus_later, ratio)


def pulls_by_blocks(p: Tensor, scale: Tensor | None) -> bool:
    """Whether ``pull_by_blocks`` applies, and is as exact as ``_pull``: if p is 0 nowhere, and small in the tail only.

    Compiled kernels sum from the right and in float64, so p may be small anywhere.
    """
    if kernels.apply_to(p):
        return bool((p[..., -1].abs() > _SMALLEST).all())  # products of cosines only shrink
    if p.dtype != torch.float32 or p.shape[-1] <= 2 * _TAIL:
        return False
    return _none_small(p, scale) and bool((p[..., -_TAIL].abs() > _length(p, scale) / 64).all())


def _none_small(p: Tensor, scale: Tensor | None) -> bool:
    # Products of cosines only shrink: if the last is not small, none is.
    return bool((p[..., -1].abs() > _small(p) * _length(p, scale)).all())


def _length(p: Tensor, scale: Tensor | None) -> Tensor:
    return torch.ones((), dtype=p.dtype, device=p.device) if scale is None else scale.abs()


def _push(t: Tensor, p: Tensor, scale: Tensor, v: Tensor, r: Tensor) -> Tensor:
    """The change of w, (..., n), for a change v of the latitudes, (..., n - 1), and r of the scale, (...)."""
    grown = (r / _beside_zero(scale)).unsqueeze(-1)
    turned = (t * v).cumsum(-1)[..., -1:]
    return torch.cat((p * (v - t * (_sum_before(t * v) - grown)), -p[..., -1:] * (turned - grown)), -1)


def _bend(
    t: Tensor, p: Tensor, scale: Tensor, g: Tensor, pull: Tensor, v: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    r"""The change of the gradients in latitudes and scale, for a change v of the latitudes and r of the scale.

    The Hessian of <g, w> in the latitudes is :math:`-t_{\min(i,j)} \, \mathrm{pull}_{\max(i,j)}` off the diagonal
    and :math:`-\sum_{k \ge i} g_k w_k` on it.
    """
    inverse = 1 / _beside_zero(scale)
    terms = torch.cat((g[..., :-1] * t * p, g[..., -1:] * p[..., -1:]), -1)
    own = sum_from_right(terms)[..., :-1] * v
    turned = own + t * _sum_after(pull * v) + pull * _sum_before(t * v)
    return pull * (r * inverse).unsqueeze(-1) - turned, (pull * v).sum(-1) * inverse


class _Direction(torch.autograd.Function):
    """(x, scale or None, sign, w or None, p or None) -> (w, p)."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        # One argument for all: torch binds the signature at every call.
        x, scale, sign, w, p = inputs
        return _vector(x, scale, latitude=sign == 1) if w is None else (w.detach(), p.detach())

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor | None, int, Any, Any], output: tuple[Tensor, ...]
    ) -> None:
        x, scale, ctx.sign, *_ = inputs
        w, p = output
        ctx.mark_non_differentiable(p)
        ctx.set_materialize_grads(False)  # no zeros for p
        ctx.save_for_backward(x, scale, w, p)
        ctx.save_for_forward(x, scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * 5
        x, scale, w, p = ctx.saved_tensors
        compiling = torch.compiler.is_compiling()
        if compiling or torch.is_grad_enabled() or has_tangent(x, scale, g):
            function = _Pull if compiling else _PullForwardMode
            pull, in_scale = function.apply(x, _scale_or_ones(scale, x), g, ctx.sign)
            return pull, None if scale is None else in_scale, None, None, None
        pull, inner = _pull_once(x, scale, ctx.sign, w, p, g)  # no second derivative is needed
        in_scale = inner / _beside_zero(scale) if ctx.needs_input_grad[1] else None
        return pull if ctx.sign == 1 else pull.neg_(), in_scale, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        return _DirectionForwardMode.apply(*mapped_first(info, in_dims, inputs)), 0


class _DirectionForwardMode(_Direction):
    @staticmethod
    def jvp(ctx: Any, v: Tensor | None, r: Tensor | None, *_: None) -> tuple[Tensor, None]:
        x, scale = ctx.saved_tensors
        scale = _scale_or_ones(scale, x)
        t, p = _beside_zeros(x, scale, ctx.sign == 1)
        v = torch.zeros_like(t) if v is None else ctx.sign * v
        return _push(t, p, scale, v, torch.zeros_like(scale) if r is None else r), None


def _pull_once(
    x: Tensor, scale: Tensor | None, sign: int, w: Tensor, p: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient in latitudes and <g, w>; from w and p if they can be read and none is 0."""
    if has_values(g) and p.is_cpu:  # on other devices, reading p would wait for the device
        if pulls_by_blocks(p, scale):
            rows, w_rows, p_rows = (each.reshape(-1, each.shape[-1]) for each in (g, w, p))
            pull, inner = pull_by_blocks(w_rows, p_rows, lambda begin, end, _: rows[begin:end])
            return pull.view(p.shape), inner.view(p.shape[:-1])
        if _none_small(p, scale):
            return _pull(w[..., :-1] / p, p, g)
    return _pull(*_beside_zeros(x, _scale_or_ones(scale, x), sign == 1), g)


class _Pull(torch.autograd.Function):
    """(x, scale, g, sign) -> the gradients of <g, w> in x and scale; differentiable in x, scale and g."""

    @staticmethod
    def forward(x: Tensor, scale: Tensor, g: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        pull, inner = _pull(*_beside_zeros(x, scale, sign == 1), g)
        return sign * pull, inner / _beside_zero(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, scale, g, ctx.sign = inputs
        ctx.save_for_backward(x, scale, g, output[0])
        ctx.save_for_forward(x, scale, g, output[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor, r: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, g, pull = ctx.saved_tensors
        t, p = _beside_zeros(x, scale, ctx.sign == 1)
        in_x, in_scale = _bend(t, p, scale, g, ctx.sign * pull, ctx.sign * v, r)
        return ctx.sign * in_x, in_scale, _push(t, p, scale, ctx.sign * v, r), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        return _PullForwardMode.apply(*mapped_first(info, in_dims, inputs)), 0


class _PullForwardMode(_Pull):
    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, Tensor]:
        x, scale, g, pull = ctx.saved_tensors
        dx, r, dg, _ = tangents
        t, p = _beside_zeros(x, scale, ctx.sign == 1)
        in_x, in_scale = _bend(
            *(t, p, scale, g, ctx.sign * pull),
            torch.zeros_like(t) if dx is None else ctx.sign * dx,
            torch.zeros_like(scale) if r is None else r,
        )
        in_x = ctx.sign * in_x
        if dg is None:
            return in_x, in_scale
        of_x, of_scale = _Pull.apply(x, scale, dg, ctx.sign)
        return in_x + of_x, in_scale + of_scale
