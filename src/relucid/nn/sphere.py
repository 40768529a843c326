r"""Unit vectors and their angles, each the exact inverse of the other.

A direction in n dimensions is described by n - 1 angles \(\theta_i\) (gmp Eq. 10), or by the latitudes
\(\pi/2 - \theta_i\). In high dimension, all angles of a random direction crowd around \(\pi/2\), where floating
point is coarse, and all latitudes around 0, where it is fine. So layers store and train latitudes.
"""

import math

import torch
from torch import Tensor

from relucid.nn.sphere_grad import sines_and_cosines, sum_from_right, unit_rows
from relucid.nn.tracing import is_exported


def unit_vector(angles: Tensor) -> Tensor:
    r"""The unit vector with these hyperspherical angles (gmp Eq. 10).

    .. math:: u_i = \cos\theta_i \prod_{j<i} \sin\theta_j, \qquad u_n = \prod_{j<n} \sin\theta_j

    Exact at every angle, also where a sine is 0, for which `direction` has no latitude.

    Args:
        angles: (..., n - 1), in radians. With no angles, the vector is (1).

    Returns:
        (..., n), of length 1.

    >>> unit_vector(torch.tensor([0.0, 1.0, 1.5]))
    tensor([1., 0., 0., 0.])
    >>> unit_vector(angles_of(torch.tensor([2.0, -3.0, -6.0])))
    tensor([ 0.2857, -0.4286, -0.8571])
    """
    _check(angles, "angles")
    return _vector(-angles, None, quarter=True)


def direction(latitudes: Tensor, scale: Tensor | None = None) -> Tensor:
    r"""The unit vector with these latitudes, :math:`\pi/2` minus the angles of ``unit_vector``, times ``scale``.

    .. math:: u_i = \sin l_i \prod_{j<i} \cos l_j, \qquad u_n = \prod_{j<n} \cos l_j

    Args:
        latitudes: (..., n - 1), in radians.
        scale: (...), of either sign; 1 by default.

    Returns:
        (..., n).

    >>> direction(torch.zeros(2))
    tensor([0., 0., 1.])
    >>> direction(torch.zeros(2), torch.tensor(-3.0))
    tensor([-0., -0., -3.])
    """
    _check(latitudes, "latitudes")
    if scale is not None and scale.shape != latitudes.shape[:-1]:
        raise ValueError(
            f"{tuple(latitudes.shape)} latitudes need a scale of shape {tuple(latitudes.shape[:-1])}, "
            f"not {tuple(scale.shape)}"
        )
    return _vector(latitudes, scale, quarter=False)


def angles_of(vector: Tensor) -> Tensor:
    r"""The angles of a vector: ``unit_vector`` maps them to the vector over its length, with all signs.

    .. math:: \theta_i = \mathrm{atan2}(|x_{i+1..n}|, x_i), \qquad \theta_{n-1} = \mathrm{atan2}(x_n, x_{n-1})

    The last angle is in (-pi, pi], the others are in [0, pi]. An arbitrary angle (of a zero vector, or before a
    tail of zeros) is 0 and has no gradient.

    Args:
        vector: (..., n). If a coordinate is infinite or NaN, the angles are NaN.

    Returns:
        (..., n - 1).

    >>> angles_of(torch.tensor([0.0, -1.0])) / torch.pi
    tensor([-0.5000])
    """
    heads, tails = _heads_and_tails(vector)
    return _arc(tails, heads, vector.dtype)


def latitudes_of(vector: Tensor) -> Tensor:
    r"""The latitudes of a vector: ``direction`` maps them to the vector over its length.

    Computed directly, not as :math:`\pi/2` minus an angle, so that small latitudes keep all their digits.

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


def _check(x: Tensor, what: str) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{what} must be a real floating-point tensor, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError(f"{what} must have at least one dimension, the last one; got a single number")


def _vector(latitudes: Tensor, scale: Tensor | None, quarter: bool) -> Tensor:
    # Half precision has too few digits for a product of hundreds of factors.
    x = latitudes.to(torch.promote_types(latitudes.dtype, torch.float32))
    written_out = x.shape[-1] == 0 or is_exported()
    u = _written_out(*sines_and_cosines(x, quarter)) if written_out else unit_rows(x, quarter)
    return (u if scale is None else u * scale.to(x.dtype).unsqueeze(-1)).to(latitudes.dtype)


def _heads_and_tails(vector: Tensor) -> tuple[Tensor, Tensor]:
    """x_i and |x_{i+1..n}| for every angle i, in float64; for the last angle, x_n with its sign."""
    _check(vector, "vector")
    if vector.shape[-1] == 0:
        raise ValueError("a vector needs at least one coordinate; the last dimension has size 0")
    x = vector.double()
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(largest == 0, 1.0, largest)  # squares neither overflow nor vanish
    heads, rest = x[..., :-1], x[..., 1:]
    squares = sum_from_right(rest.square())
    empty = squares == 0
    norms = torch.where(empty, 0.0, torch.where(empty, 1.0, squares).sqrt())  # no gradient at length 0
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


def _written_out(along: Tensor, across: Tensor) -> Tensor:
    """The unit vector from the sines and cosines of its latitudes, by torch's own operations.

    The running product is log2(n) shifted ones: ONNX has no cumprod, and torch's derivative of it divides.
    """
    shift = 1
    while shift < across.shape[-1]:
        across = torch.cat((across[..., :shift], across[..., shift:] * across[..., :-shift]), -1)
        shift *= 2
    one = along.new_ones(*along.shape[:-1], 1)
    return torch.cat((one, across), -1) * torch.cat((along, one), -1)
