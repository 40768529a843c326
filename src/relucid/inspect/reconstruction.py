"""Reconstruct a layer's input from its features by least squares (crelu Section 2.2)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.nn.activation import crelu, crelu_inverse
from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Function = Callable[[Tensor], Tensor]
DENSE = 2**25  # entries of the largest operator that is formed densely


@dataclass(frozen=True)
class Reconstruction(Summarized):
    """Part of an input that a layer's features determine."""

    input: Tensor  #: x', in the input's shape
    iterations: int
    residual: float  #: largest |A^T (A x' - z)| / |A^T z| over the batch: how well the equations are solved

    def summary(self) -> str:
        """A summary in one sentence."""
        shape = "x".join(map(str, self.input.shape))
        return f"{shape} reconstructed in {self.iterations} iterations, residual {self.residual:.1e}"


def reconstruct(
    layer: Function | Sequence[Function],
    features: Tensor,
    input_shape: Sequence[int],
    *,
    indices: Tensor | None = None,
    tolerance: float = 1e-6,
    iterations: int = 1000,
) -> Reconstruction:
    r"""The minimum-norm least-squares input x' of a layer with these features (crelu Algorithms 1 and 2).

    The features of x -> W^T x + b determine only the part of x in range(W): x' = (W^T)^+ (z - b), where z is the
    positive minus the negative phase of the features. Conjugate gradients on the layer and its transpose find it
    without forming the operator. After max-pooling, each positive feature gives one equation, for its phase and
    the place that ``indices`` names.

    Args:
        layer: An affine function: a linear or convolution layer of any stride, padding, dilation and groups, with
            or without a batch norm in eval mode. A sequence of layers with CReLU between them is inverted layer
            by layer.
        features: (batch, 2 x filters, ...) after CReLU, or (batch, filters, ...) before it.
        input_shape: Shape of one input, without the batch dimension.
        indices: Indices from max-pooling (``return_indices=True``), if ``features`` are taken after it.
        tolerance: Stop when the residual falls below this.
        iterations: Stop after this many iterations.

    >>> layer = nn.Linear(3, 8)
    >>> x = torch.tensor([[1.0, -2.0, 3.0]])
    >>> reconstruct(layer, crelu(layer(x)), (3,)).input.round(decimals=3)
    tensor([[ 1., -2.,  3.]])
    """
    if isinstance(layer, Sequence):  # an nn.Sequential is not one: it is a layer
        return _stacked(layer, features, input_shape, tolerance, iterations)
    start = features.new_zeros(len(features), *input_shape)
    if indices is None:
        operator = _Affine(layer, start)
        target = _responses(features, operator.offset.shape)
    else:
        if indices.shape != features.shape:
            raise ValueError(
                f"indices {tuple(indices.shape)} must have the shape of features {tuple(features.shape)}"
            )
        operator = _Affine(lambda x: _pooled(layer(x), indices) * (features > 0), start)
        target = features.clamp_min(0)
    return Reconstruction(*_least_squares(operator, target - operator.offset, start, tolerance, iterations))


def reconstruction_ratio(original: Tensor, reconstructed: Tensor) -> Tensor:
    """The ratio |x - x'| / |x| for every input of a batch, (batch,).

    >>> reconstruction_ratio(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
    tensor([0.8000])
    """
    ratio: Tensor = (original - reconstructed).flatten(1).norm(dim=1) / original.flatten(1).norm(dim=1)
    return ratio


def ratio_of_layer(layer: Function, inputs: Tensor, pool: nn.MaxPool2d | None = None) -> Tensor:
    """The reconstruction ratio of every input from its features after CReLU and ``pool`` (crelu Table S1).

    >>> ratio_of_layer(nn.Linear(4, 8), torch.randn(5, 4)).max() < 1e-4
    tensor(True)
    """
    with torch.no_grad():
        features, indices = crelu(layer(inputs)), None
        if pool is not None:
            features, indices = F.max_pool2d(
                *(features, pool.kernel_size, pool.stride, pool.padding, pool.dilation),
                ceil_mode=pool.ceil_mode,
                return_indices=True,
            )
    return reconstruction_ratio(inputs, reconstruct(layer, features, inputs.shape[1:], indices=indices).input)


def random_layer(layer: nn.Module) -> nn.Module:
    """A copy of a layer with standard normal filters and no bias: the baseline of crelu Table S1.

    Its `ratio_of_layer` is the simulated baseline. `random_ratio` does not apply, since max-pooling selects.
    """
    if not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        raise TypeError(f"random_layer takes a linear or convolution layer, not {type(layer).__name__}")
    layer = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.normal_()
        if layer.bias is not None:
            layer.bias.zero_()
    return layer


def random_ratio(dimension: int, subspace: int) -> float:
    """The reconstruction ratio sqrt(1 - K/D) after projection onto a random K-dimensional subspace of R^D.

    crelu Theorem C.1 states it for the mean. It holds for the root mean square; the mean is smaller.

    >>> random_ratio(dimension=100, subspace=36)
    0.8
    """
    if not 0 <= subspace <= dimension:
        raise ValueError(f"a subspace of dimension {subspace} does not fit into dimension {dimension}")
    return math.sqrt(1 - subspace / dimension)


def frame_bounds(layer: nn.Module, input_shape: Sequence[int]) -> tuple[float, float]:
    """The smallest non-zero and the largest singular value of a layer's linear part (crelu Lemma A.4).

    For x in range(W): smallest * |x| <= |W^T x| <= largest * |x|. Forms the dense operator, so the input must be
    small.

    >>> layer = nn.Linear(2, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
    >>> [round(bound, 6) for bound in frame_bounds(layer, (2,))]
    [2.0, 3.0]
    """
    inputs = math.prod(input_shape)
    weight = next(layer.parameters())
    start = torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)
    responses = _Affine(layer, start).offset.numel()
    if inputs * responses > DENSE:
        raise ValueError(
            f"frame bounds need the dense operator, here {inputs} x {responses}; "
            f"give a smaller input_shape, which is enough since filters are local"
        )
    basis = torch.eye(inputs, dtype=weight.dtype, device=weight.device).view(-1, *input_shape)
    dense = _Affine(layer, torch.zeros_like(basis))(basis).flatten(1)
    values = _squared_singular_values(dense).sqrt()
    return float(values[-1]), float(values[0])


@dataclass(frozen=True)
class PoolingBound:
    """Reconstruction ratio of one input and its bounds (crelu Theorem A.5)."""

    ratio: float
    printed: float  #: sqrt((l~max - lmin) / lmin), which says nothing if it is above 1, as it often is
    tightened: float  #: sqrt(1 - lmin / l~max), never above 1


def pooling_bound(filters: Tensor, coefficients: Tensor, stride: int = 1) -> PoolingBound:
    r"""The ratio and both bounds of crelu Theorem A.5 for x = sum_ij c_i^j w_i^j over one pooling region.

    W_x holds the shifts with c != 0; for each of them, W~_x holds the shift that pooling selects in the phase of
    its *response* <w, x>. (crelu goes by the sign of c, which breaks the proof's inequality.) Both bounds follow
    from lmin |x|^2 <= |W_x^T x|^2 <= |W~_x^T x|^2 <= l~max |x~|^2.

    Args:
        filters: (K, length), one-dimensional.
        coefficients: (K, shifts), at most one non-zero per filter (crelu S1, which prints c > 0 for c != 0).
        stride: Stride between shifts.
    """
    chosen = coefficients != 0
    if filters.dim() != 2 or coefficients.dim() != 2 or len(filters) != len(coefficients):
        raise ValueError("pooling_bound needs filters (K, length) and coefficients (K, shifts)")
    if bool((chosen.sum(1) > 1).any()) or not bool(chosen.any()):
        raise ValueError(
            "each filter may have at most one non-zero coefficient, and some filter must have one (crelu S1)"
        )
    shifts, length = coefficients.shape[1], filters.shape[1]
    shifted = filters.new_zeros(len(filters), shifts, (shifts - 1) * stride + length)
    for j in range(shifts):
        shifted[:, j, j * stride : j * stride + length] = filters
    x = torch.einsum("ij,ijd->d", coefficients, shifted)
    responses = shifted @ x
    largest, least = responses.argmax(1), responses.argmin(1)
    rows, participating = chosen.nonzero().unbind(1)
    selected = torch.where(responses[rows, participating] >= 0, largest[rows], least[rows])
    lmin = _squared_singular_values(shifted[rows, participating])[-1]
    lmax = _squared_singular_values(shifted[rows, selected])[0]
    every = torch.arange(len(filters))
    equations = torch.cat(
        [
            shifted[every, largest][responses[every, largest] > 0],
            shifted[every, least][responses[every, least] < 0],
        ]
    )
    reconstructed = torch.linalg.pinv(equations) @ (equations @ x)
    printed, tightened = ((lmax - lmin).clamp_min(0) / lmin).sqrt(), (1 - lmin / lmax).clamp_min(0).sqrt()
    return PoolingBound(float((x - reconstructed).norm() / x.norm()), float(printed), float(tightened))


def figure_of_images(images: Sequence[Tensor], titles: Sequence[str]) -> Figure:
    """Draw images (3, height, width) side by side: an original and its reconstructions (crelu Fig. 5)."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(1, len(images), subplot_titles=list(titles))
    low, high = images[0].min(), images[0].max()
    for column, image in enumerate(images, 1):
        scaled = ((image - low) / (high - low)).clamp(0, 1).movedim(0, -1)
        figure.add_trace(go.Image(z=(scaled * 255).round().to(torch.uint8).cpu().numpy()), 1, column)
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)


class _Affine:
    """Linear part A of an affine function, with its transpose; ``offset`` is the constant part."""

    def __init__(self, function: Function, start: Tensor) -> None:
        self.x = start.detach().requires_grad_()
        with torch.enable_grad():
            self.y = function(self.x)
            # The transpose of v -> A^T v is A, without the rounding errors of f(x) - f(0).
            self.v = torch.zeros_like(self.y).requires_grad_()
            (self.transposed,) = torch.autograd.grad(self.y, self.x, self.v, create_graph=True)
        self.offset = self.y.detach()
        probe = torch.linspace(-1, 1, start.numel(), dtype=start.dtype, device=start.device).view_as(start)
        with torch.no_grad():
            expected, once = function(-2 * probe) - self.offset, self(probe)
        if not torch.allclose(-2 * once, expected, rtol=1e-2, atol=1e-3 * float(once.abs().max())):
            raise ValueError(
                "reconstruction needs an affine layer, which this is not: remove its activation and call .eval()"
            )

    def __call__(self, x: Tensor) -> Tensor:
        return torch.autograd.grad(self.transposed, self.v, x, retain_graph=True)[0]

    def transpose(self, z: Tensor) -> Tensor:
        return torch.autograd.grad(self.y, self.x, z, retain_graph=True)[0]


def _least_squares(
    operator: _Affine, target: Tensor, start: Tensor, tolerance: float, iterations: int
) -> tuple[Tensor, int, float]:
    """(x, iterations, residual) of conjugate gradients on the normal equations, one system per input.

    Started from 0, x stays in the range of the transpose: it is the shortest least-squares solution.
    """
    x, residual = start.clone(), target.clone()
    gradient = operator.transpose(residual)
    direction, size = gradient, _squares(gradient)
    first = size
    step = 0
    while step < iterations and bool((open_ := size > tolerance**2 * first).any()):
        image = operator(direction)
        # Leave solved systems alone: further steps would consist of rounding errors.
        length = torch.where(open_, size / _squares(image), 0)
        x += _like(length, x) * direction
        residual -= _like(length, image) * image
        gradient = operator.transpose(residual)
        size, before = torch.where(open_, _squares(gradient), size), size
        direction = gradient + _like(torch.where(open_, size / before, 0), x) * direction
        step += 1
    return x, step, float((size / first).nan_to_num(0).max().sqrt())


def _squares(x: Tensor) -> Tensor:
    """The squared norm of every entry of a batch."""
    squares: Tensor = x.flatten(1).square().sum(1)
    return squares


def _like(scalars: Tensor, x: Tensor) -> Tensor:
    return scalars.view(-1, *[1] * (x.dim() - 1))


def _responses(features: Tensor, shape: Sequence[int]) -> Tensor:
    """The linear responses behind these features, checked against the layer's output shape."""
    responses = crelu_inverse(features) if features.shape[1] == 2 * shape[1] else features
    if responses.shape != shape:
        raise ValueError(
            f"for this input_shape the features must be {tuple(shape)}, or have twice the channels after CReLU; "
            f"they are {tuple(features.shape)}"
        )
    return responses


def _pooled(responses: Tensor, indices: Tensor) -> Tensor:
    """Both phases of the responses at the places that pooling selected."""
    both = torch.cat([responses, -responses], 1).flatten(2)
    return both.gather(2, indices.flatten(2)).view(indices.shape)


def _stacked(
    layers: Sequence[Function],
    features: Tensor,
    input_shape: Sequence[int],
    tolerance: float,
    iterations: int,
) -> Reconstruction:
    """Reconstruct the input of the first of several layers, going back layer by layer (crelu Fig. 5)."""
    shapes, x = [tuple(input_shape)], features.new_zeros(1, *input_shape)
    with torch.no_grad():
        for layer in layers[:-1]:
            x = crelu(layer(x))
            shapes.append(tuple(x.shape[1:]))
    steps, residual = 0, 0.0
    for layer, shape in zip(reversed(layers), reversed(shapes), strict=True):
        found = reconstruct(layer, features, shape, tolerance=tolerance, iterations=iterations)
        features, steps, residual = found.input, steps + found.iterations, max(residual, found.residual)
    return Reconstruction(features, steps, residual)


def _squared_singular_values(rows: Tensor) -> Tensor:
    """The squares of the non-zero singular values, largest first."""
    values: Tensor = torch.linalg.svdvals(rows)
    nonzero: Tensor = values[values > values[0] * max(rows.shape) * torch.finfo(rows.dtype).eps]
    return nonzero.square()
