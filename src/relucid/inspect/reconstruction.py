"""Reconstruct a layer's input from its features by least squares (crelu Section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucid.nn.activation import crelu_inverse
from relucid.printing import Summarized

Function = Callable[[Tensor], Tensor]


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
    layer: Function,
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
            or without a batch norm in eval mode.
        features: (batch, 2 x filters, ...) after CReLU, or (batch, filters, ...) before it.
        input_shape: Shape of one input, without the batch dimension.
        indices: Indices from max-pooling (``return_indices=True``), if ``features`` are taken after it.
        tolerance: Stop when the residual falls below this.
        iterations: Stop after this many iterations.

    >>> from relucid.nn import crelu
    >>> layer = torch.nn.Linear(3, 8)
    >>> x = torch.tensor([[1.0, -2.0, 3.0]])
    >>> reconstruct(layer, crelu(layer(x)), (3,)).input.round(decimals=3)
    tensor([[ 1., -2.,  3.]])
    """
    start = features.new_zeros(len(features), *input_shape)
    if indices is None:
        operator = Affine(layer, start)
        target = _responses(features, operator.offset.shape)
    else:
        if indices.shape != features.shape:
            raise ValueError(
                f"indices {tuple(indices.shape)} must have the shape of features {tuple(features.shape)}"
            )
        operator = Affine(lambda x: _pooled(layer(x), indices) * (features > 0), start)
        target = features.clamp_min(0)
    return Reconstruction(*_least_squares(operator, target - operator.offset, start, tolerance, iterations))


def reconstruction_ratio(original: Tensor, reconstructed: Tensor) -> Tensor:
    """The ratio |x - x'| / |x| for every input of a batch, (batch,).

    >>> reconstruction_ratio(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
    tensor([0.8000])
    """
    ratio: Tensor = (original - reconstructed).flatten(1).norm(dim=1) / original.flatten(1).norm(dim=1)
    return ratio


class Affine:
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
        """Apply A to a vector."""
        return torch.autograd.grad(self.transposed, self.v, x, retain_graph=True)[0]

    def transpose(self, z: Tensor) -> Tensor:
        """Apply the transpose to a vector."""
        return torch.autograd.grad(self.y, self.x, z, retain_graph=True)[0]


def _least_squares(
    operator: Affine, target: Tensor, start: Tensor, tolerance: float, iterations: int
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
