"""How much of its input a layer loses (crelu Sections 2.2 and 4.2): ratios, random baselines and bounds on them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.inspect.reconstruction import Affine, Function, reconstruct, reconstruction_ratio
from relucid.nn.activation import crelu

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DENSE = 2**25  # entries of the largest operator that is formed densely


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


def reconstruct_through(layers: Sequence[Function], features: Tensor, input_shape: Sequence[int]) -> Tensor:
    """The input of the first of several layers with CReLU between them, reconstructed layer by layer (crelu Fig. 5)."""
    shapes, x = [tuple(input_shape)], features.new_zeros(1, *input_shape)
    with torch.no_grad():
        for layer in layers[:-1]:
            x = crelu(layer(x))
            shapes.append(tuple(x.shape[1:]))
    for layer, shape in zip(reversed(layers), reversed(shapes), strict=True):
        features = reconstruct(layer, features, shape).input
    return features


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
    responses = Affine(layer, start).offset.numel()
    if inputs * responses > DENSE:
        raise ValueError(
            f"frame bounds need the dense operator, here {inputs} x {responses}; "
            f"give a smaller input_shape, which is enough since filters are local"
        )
    basis = torch.eye(inputs, dtype=weight.dtype, device=weight.device).view(-1, *input_shape)
    dense = Affine(layer, torch.zeros_like(basis))(basis).flatten(1)
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


def _squared_singular_values(rows: Tensor) -> Tensor:
    """The squares of the non-zero singular values, largest first."""
    values: Tensor = torch.linalg.svdvals(rows)
    nonzero: Tensor = values[values > values[0] * max(rows.shape) * torch.finfo(rows.dtype).eps]
    return nonzero.square()
