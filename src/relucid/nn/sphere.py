r"""Unit vectors and their angles, each the exact inverse of the other.

A direction in n dimensions is described by n - 1 angles \(\theta_i\) (gmp Eq. 10), or by the latitudes
\(\pi/2 - \theta_i\). In high dimension all angles of a random direction crowd around \(\pi/2\), where floating
point is coarse, and all latitudes around 0, where it is fine: what is stored and trained is latitudes.

The derivatives are closed forms too. Of a vector w of length r, with the running product
\(p_i = r \prod_{j \le i} \sin\theta_j\) and \(t_i = \cot\theta_i\), every coordinate but the last is
\(w_i = t_i p_i\), the last is \(w_n = p_{n-1}\), and in latitudes \(\partial w_i / \partial l_i = p_i\),
\(\partial w_k / \partial l_i = -t_i w_k\) for \(k > i\): a product from the left and a sum from the right, O(n).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def unit_vector(angles: Tensor) -> Tensor:
    r"""The unit vector with these hyperspherical angles (gmp Eq. 10).

    .. math:: u_i = \cos\theta_i \prod_{j<i} \sin\theta_j, \qquad u_n = \prod_{j<n} \sin\theta_j

    Args:
        angles: (..., n - 1), in radians. With no angles at all the vector is (1).

    Returns:
        (..., n), of length 1.

    >>> unit_vector(torch.tensor([0.0, 1.0, 1.5]))
    tensor([1., 0., 0., 0.])
    >>> unit_vector(angles_of(torch.tensor([2.0, -3.0, -6.0])))
    tensor([ 0.2857, -0.4286, -0.8571])
    """
    return _apply(angles, None, latitude=False)


def direction(latitudes: Tensor, scale: Tensor | None = None) -> Tensor:
    r"""The unit vector with these latitudes, :math:`\pi/2` minus the angles of ``unit_vector``, times ``scale``.

    .. math:: u_i = \sin l_i \prod_{j<i} \cos l_j, \qquad u_n = \prod_{j<n} \cos l_j

    Args:
        latitudes: (..., n - 1), in radians.
        scale: (...), of either sign; 1 by default. It costs nothing here: it starts the product.

    Returns:
        (..., n).

    >>> direction(torch.zeros(2))
    tensor([0., 0., 1.])
    >>> direction(torch.zeros(2), torch.tensor(-3.0))
    tensor([-0., -0., -3.])
    """
    return _apply(latitudes, scale, latitude=True)


def angles_of(vector: Tensor) -> Tensor:
    r"""The angles of a vector: ``unit_vector`` of them is the vector over its length, all signs kept.

    .. math:: \theta_i = \mathrm{atan2}(|x_{i+1..n}|, x_i), \qquad \theta_{n-1} = \mathrm{atan2}(x_n, x_{n-1})

    The last angle is in (-pi, pi], the others are in [0, pi]. Where an angle is arbitrary (a zero vector, or a
    zero tail below it) it is 0 and has no gradient.

    Args:
        vector: (..., n).

    Returns:
        (..., n - 1).

    >>> angles_of(torch.tensor([0.0, -1.0])) / torch.pi
    tensor([-0.5000])
    """
    heads, tails = _heads_and_tails(vector)
    return _arc(tails, heads, vector.dtype)


def latitudes_of(vector: Tensor) -> Tensor:
    r"""The latitudes of a vector: ``direction`` of them is the vector over its length.

    Computed as such, not as :math:`\pi/2` minus an angle, so that small latitudes keep all their digits.

    >>> direction(latitudes_of(torch.tensor([3.0, -4.0])))
    tensor([ 0.6000, -0.8000])
    """
    heads, tails = _heads_and_tails(vector)
    return _arc(heads, tails, vector.dtype)


def metric(angles: Tensor) -> Tensor:
    r"""The diagonal of the metric tensor at these angles (gmp Theorem 3).

    .. math:: m_a = \prod_{i<a} \sin^2\theta_i

    A small change e of the angles turns the unit vector by :math:`\sqrt{\sum_a m_a e_a^2}`, and never by more
    than :math:`|e|`. (gmp Eq. 19 and 20 print sums of squared sines; the product, as in Eq. 13, is right.)

    Args:
        angles: (..., n - 1).

    Returns:
        (..., n - 1).

    >>> metric(torch.tensor([torch.pi / 6, 0.3, 0.4]))
    tensor([1.0000, 0.2500, 0.0218])
    """
    _check(angles, "angles")
    squares = angles[..., :-1].sin().square()
    return torch.cat((torch.ones_like(angles[..., :1]), squares.cumprod(-1)), -1)


def _apply(x: Tensor, scale: Tensor | None, latitude: bool) -> Tensor:
    _check(x, "latitudes" if latitude else "angles")
    if scale is not None and scale.shape != x.shape[:-1]:
        raise ValueError(
            f"{tuple(x.shape)} latitudes need a scale of shape {tuple(x.shape[:-1])}, not {tuple(scale.shape)}"
        )
    # Half precision has too few digits for a product of hundreds of factors.
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.shape[-1] == 0:
        return (x.sum(-1, keepdim=True) + 1) * (1 if scale is None else scale.unsqueeze(-1))
    # torch.compile does not trace a function that defines forward mode.
    function = _Direction if torch.compiler.is_compiling() else _DirectionForwardMode
    scale = None if scale is None else scale.to(wide)
    vector: Tensor = function.apply(x.to(wide), scale, 1 if latitude else -1)[0]
    return vector.to(x.dtype)


def _check(x: Tensor, what: str) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{what} must be a real floating-point tensor, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError(f"{what} must have at least one dimension, the last one; got a single number")


def _heads_and_tails(vector: Tensor) -> tuple[Tensor, Tensor]:
    """x_i and |x_{i+1..n}| for every angle i, in float64; for the last angle the tail is x_n with its sign."""
    _check(vector, "vector")
    if vector.shape[-1] == 0:
        raise ValueError("a vector needs at least one coordinate; the last dimension has size 0")
    x = vector.double()
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(largest == 0, 1.0, largest)  # squares neither overflow nor vanish
    heads, rest = x[..., :-1], x[..., 1:]
    squares = _sum_from_right(rest.square())
    positive = squares > 0
    norms = torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)  # no gradient at length 0
    tails = torch.cat((norms[..., :-1], rest[..., -1:]), -1)
    return torch.where((heads == 0) & (tails == 0), 1.0, heads), tails


def _arc(y: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """atan2(y, x) rounded to ``dtype`` on its own side of the axes: its sine and cosine keep the signs of y and x."""
    angle = torch.atan2(y, x)
    eps = torch.finfo(dtype).eps
    below_quarter, below_half = math.pi / 2 // eps * eps, math.pi // (2 * eps) * (2 * eps)
    size = angle.detach().abs()
    size = torch.where(x > 0, size.clamp(max=below_quarter), size.clamp(max=below_half))
    size = torch.where(x < 0, size.clamp(min=below_quarter + eps), size)
    angle = angle.to(dtype)
    return angle + (size.copysign(y).to(dtype) - angle).detach()


def _sum_from_right(x: Tensor) -> Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


# Shifted, not "sum minus own term": beside a zero sine the terms differ by orders of magnitude.
def _sum_before(x: Tensor) -> Tensor:
    return F.pad(x.cumsum(-1)[..., :-1], (1, 0))


def _sum_after(x: Tensor) -> Tensor:
    return F.pad(_sum_from_right(x)[..., 1:], (0, 1))


def _vector(x: Tensor, scale: Tensor | None, latitude: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The vector w, and the t and p of its derivatives (see the top of this file)."""
    if torch.compiler.is_compiling() or x.is_meta:  # no values to look at
        return _vector_at_zeros(x, _given(scale, x), latitude)
    along, across = (x.sin(), x.cos()) if latitude else (x.cos(), x.sin())
    t = along.div_(across)
    if scale is not None:
        across[..., 0].mul_(scale)
    p = across.cumprod_(-1)
    if (p[..., -1].abs() <= (_small(x) if scale is None else _small(x) * scale.abs())).any():
        return _vector_at_zeros(x, _given(scale, x), latitude)
    w = x.new_empty(*x.shape[:-1], x.shape[-1] + 1)
    torch.mul(t, p, out=w[..., :-1])
    w[..., -1] = p[..., -1]
    return w, t, p


def _vector_at_zeros(x: Tensor, scale: Tensor, latitude: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The same where a sine or the scale may be 0, or a sine so small that its inverse is infinite.

    What follows it in w vanishes but its derivative does not: t and p are those just beside it.
    """
    along, across = (x.sin(), x.cos()) if latitude else (x.cos(), x.sin())
    products = torch.cat((scale.unsqueeze(-1), across), -1).cumprod(-1)
    w = products * F.pad(along, (0, 1), value=1.0)
    across = torch.where(across.abs() < _small(x), across.new_tensor(_small(x)).copysign(across), across)
    p = torch.cat((_beside_zero(scale).unsqueeze(-1), across), -1).cumprod(-1)[..., 1:]
    return w, along / across, p


def _given(scale: Tensor | None, x: Tensor) -> Tensor:
    return x.new_ones(x.shape[:-1]) if scale is None else scale


def _moving(*tensors: Tensor | None) -> bool:
    """Whether forward mode is at work on any of them."""
    return any(unpack_dual(each).tangent is not None for each in tensors if each is not None)


def _beside_zero(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, _small(scale), scale)


def _small(x: Tensor) -> float:
    """What counts as nothing beside 1, though products of two or three of it do not underflow."""
    return float(torch.finfo(x.dtype).tiny ** 0.25)


def _pull(t: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """For a gradient g in w, (..., n): the gradient in the latitudes, (..., n - 1), and <g, w>, (...)."""
    own, last = g[..., :-1] * p, g[..., -1] * p[..., -1]
    later = (own * t).flip(-1)  # g_k w_k, from the right
    later[..., 0].add_(last)
    later = later.cumsum_(-1).flip(-1)
    own[..., :-1].addcmul_(later[..., 1:], t[..., :-1], value=-1)
    own[..., -1].addcmul_(last, t[..., -1], value=-1)
    return own, later[..., 0]


def _push(t: Tensor, p: Tensor, scale: Tensor, v: Tensor, r: Tensor) -> Tensor:
    """Change of w for a change v of the latitudes and r of the scale: (..., n - 1), (...) -> (..., n)."""
    grown = (r / _beside_zero(scale)).unsqueeze(-1)
    turned = (t * v).cumsum(-1)[..., -1:]
    return torch.cat((p * (v - t * (_sum_before(t * v) - grown)), -p[..., -1:] * (turned - grown)), -1)


def _bend(
    t: Tensor, p: Tensor, scale: Tensor, g: Tensor, pull: Tensor, v: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Change of the gradients in the latitudes and in the scale for a change v of the one and r of the other.

    The Hessian of <g, w> in the latitudes is :math:`-t_{\min(i,j)} \, \mathrm{pull}_{\max(i,j)}` off the diagonal
    and :math:`-\sum_{k \ge i} g_k w_k` on it.
    """
    inverse = 1 / _beside_zero(scale)
    terms = torch.cat((g[..., :-1] * t * p, g[..., -1:] * p[..., -1:]), -1)
    own = _sum_from_right(terms)[..., :-1] * v
    turned = own + t * _sum_after(pull * v) + pull * _sum_before(t * v)
    return pull * (r * inverse).unsqueeze(-1) - turned, (pull * v).sum(-1) * inverse


class _Direction(torch.autograd.Function):
    """x, scale or None, sign -> w, t, p for latitudes (sign 1) or angles (sign -1); only w has a derivative."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        # One name for all: torch binds the signature anew at every call.
        x, scale, sign = inputs
        return _vector(x, scale, latitude=sign == 1)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor | None, int], output: tuple[Tensor, ...]
    ) -> None:
        x, scale, ctx.sign = inputs
        _, t, p = output
        ctx.mark_non_differentiable(t, p)
        ctx.set_materialize_grads(False)  # no zeros for t and p
        ctx.save_for_backward(x, t, p, scale)
        ctx.save_for_forward(t, p, scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, Tensor | None, None]:
        if g is None:
            return None, None, None
        x, t, p, scale = ctx.saved_tensors
        compiling = torch.compiler.is_compiling()
        if compiling or torch.is_grad_enabled() or _moving(x, scale, g):
            function = _Pull if compiling else _PullForwardMode
            pull, in_scale = function.apply(x, t, p, _given(scale, x), g, ctx.sign)
            return pull, None if scale is None else in_scale, None
        pull, along = _pull(t, p, g)  # nobody asks for a second derivative
        in_scale = along / _beside_zero(scale) if ctx.needs_input_grad[1] else None
        return pull if ctx.sign == 1 else pull.neg_(), in_scale, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        return _DirectionForwardMode.apply(*mapped_first(info, in_dims, inputs)), 0


class _DirectionForwardMode(_Direction):
    @staticmethod
    def jvp(ctx: Any, v: Tensor | None, r: Tensor | None, _: None) -> tuple[Tensor, None, None]:
        t, p, scale = ctx.saved_tensors
        scale = _given(scale, t)
        v = torch.zeros_like(t) if v is None else ctx.sign * v
        return _push(t, p, scale, v, torch.zeros_like(scale) if r is None else r), None, None


class _Pull(torch.autograd.Function):
    """x, t, p, scale, g, sign -> the gradients of <g, w> in x and scale, with derivatives in x, scale and g."""

    @staticmethod
    def forward(
        x: Tensor, t: Tensor, p: Tensor, scale: Tensor, g: Tensor, sign: int
    ) -> tuple[Tensor, Tensor]:
        pull, along = _pull(t, p, g)
        return sign * pull, along / _beside_zero(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, t, p, scale, g, ctx.sign = inputs
        ctx.save_for_backward(t, p, scale, g, output[0])
        ctx.save_for_forward(t, p, scale, g, output[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, v: Tensor, r: Tensor) -> tuple[Tensor | None, ...]:
        t, p, scale, g, pull = ctx.saved_tensors
        in_x, in_scale = _bend(t, p, scale, g, ctx.sign * pull, ctx.sign * v, r)
        return ctx.sign * in_x, None, None, in_scale, _push(t, p, scale, ctx.sign * v, r), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        return _PullForwardMode.apply(*mapped_first(info, in_dims, inputs)), 0


class _PullForwardMode(_Pull):
    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, Tensor]:
        t, p, scale, g, pull = ctx.saved_tensors
        x, _, _, r, dg, _ = tangents
        in_x, in_scale = _bend(
            *(t, p, scale, g, ctx.sign * pull),
            torch.zeros_like(t) if x is None else ctx.sign * x,
            torch.zeros_like(scale) if r is None else r,
        )
        in_x = ctx.sign * in_x
        if dg is None:
            return in_x, in_scale
        of_x, of_scale = _Pull.apply(t, t, p, scale, dg, ctx.sign)
        return in_x + of_x, in_scale + of_scale


def mapped_first(info: Any, in_dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """The inputs of a function under vmap with the dimension that is mapped over in front, in all tensors."""
    return [
        x if not isinstance(x, Tensor)
        else x.expand(info.batch_size, *x.shape) if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(inputs, in_dims, strict=True)
    ]  # fmt: skip
