"""How much of its input a layer loses (crelu Sections 2.2 and 4.2): ratios and random baselines."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.inspect.reconstruction import Function, reconstruct, reconstruction_ratio
from relucid.nn.activation import crelu

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
