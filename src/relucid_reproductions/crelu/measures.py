"""What a trained ConvPool network has learned: opposite filters, phases, reconstruction, invariance."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from relucid.data import Examples, Moments
from relucid.inspect import invariance, pairing, phase_correlation, reconstruct
from relucid.inspect._statistics import extreme_p_value
from relucid.nn import CReLU
from relucid_reproductions.crelu.reconstruction import random_layer, ratio_of_layer, reconstruct_through

LAYERS = tuple(f"conv{number}" for number in range(1, 8))
POOLED = {"conv2": "pool1", "conv5": "pool2"}  # the layers of crelu Table S1
KERNEL, REGION = 3, 5  # 3x3 filters at the 3x3 places of a pooling region see 5x5 pixels
STAGES = ("image", "from conv1", "from conv2", "from pool1")  # of the array "reconstructions"
BATCH = 250  # images at a time, for invariance
DRAWN = 4  # images whose reconstructions are kept

Metrics = dict[str, float]
Arrays = dict[str, np.ndarray]


def measured(network: nn.Sequential, images: Tensor, samples: int) -> tuple[Metrics, Arrays]:
    """Measure a trained network; also return the arrays that its figures are drawn from.

    Args:
        network: ConvPool, of any design.
        images: (n, channels, height, width), normalized: for invariance.
        samples: how many of them, from the first, are reconstructed.
    """
    network = network.cpu().eval()
    metrics, arrays = paired(network, LAYERS)
    metrics |= invariant(network, list(images.split(BATCH)), LAYERS)
    if isinstance(network.get_submodule("act1"), CReLU):
        metrics |= phases(network, len(LAYERS)) | _reconstruction(network, images[:samples])
        metrics["mean non-pair"] = fmean(metrics[f"{name} non-pair"] for name in LAYERS)
        arrays["reconstructions"] = _reconstructions(network, images[:DRAWN])
    return metrics, arrays


def random_mu(dimension: int, others: int) -> float:
    """The mean cosine of a random filter with the most opposite of ``others`` others (red in crelu Fig. 2, 3).

    E mu = 1 - integral of P(mu <= t) over [-1, 1].

    >>> round(random_mu(dimension=3, others=1), 6)
    0.0
    """
    grid = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    return 1 - float(torch.trapezoid(extreme_p_value(grid, dimension, others), grid))


def paired(network: nn.Module, layers: Sequence[str]) -> tuple[Metrics, Arrays]:
    """Measure mu per layer (crelu Section 2.1): its mean, that of random filters, their difference, and all values."""
    metrics: Metrics = {}
    arrays: Arrays = {}
    for name in layers:
        found = pairing(_weight(network, name))
        mu, random = float(found.opposite.nanmean()), random_mu(found.dimension, found.others)
        metrics |= {f"{name} mu": mu, f"{name} random mu": random, f"{name} excess": mu - random}
        arrays[f"{name} mu"] = found.opposite.numpy()
        metrics[f"{name} weights"] = float(found.dimension)
    return metrics, arrays


def phases(network: nn.Module, layers: int) -> Metrics:
    """Correlate the weights that read the two phases of CReLU after the first so many layers (crelu Table 6).

    Of the same and of different units.
    """
    metrics: Metrics = {}
    for number in range(1, layers + 1):
        if isinstance(network.get_submodule(f"act{number}"), CReLU):
            found = phase_correlation(_weight(network, f"conv{number + 1}"))
            metrics |= {f"conv{number} pair": found.pair[0], f"conv{number} non-pair": found.non_pair[0]}
    return metrics


def _reconstruction(network: nn.Sequential, images: Tensor) -> Metrics:
    """Measure reconstruction ratios after CReLU and pooling, for learned and random filters (crelu Table S1)."""
    metrics = {}
    for name, pool in POOLED.items():
        layer, pooling, inputs = network.get_submodule(name), network.get_submodule(pool), images
        assert isinstance(pooling, nn.MaxPool2d)
        with torch.no_grad():
            for before in _before(network, name):
                inputs = before(inputs)
        for kind, used in {"learned": layer, "random": random_layer(layer)}.items():
            metrics[f"{name} {kind}"] = float(ratio_of_layer(used, inputs, pooling).mean())
            metrics[f"{name} {kind}, one region"] = float(_ratio_of_region(used, inputs))
    return metrics


def _ratio_of_region(layer: nn.Module, inputs: Tensor) -> Tensor:
    """The mean ratio for a single pooling region: 3x3 places of 3x3 filters, 5x5 inputs (Algorithm 2)."""
    assert isinstance(layer, nn.Conv2d)
    top, left = ((side - REGION) // 2 for side in inputs.shape[-2:])
    alone = nn.Conv2d(layer.in_channels, layer.out_channels, KERNEL, bias=layer.bias is not None)
    alone.load_state_dict(layer.state_dict())
    patch = inputs[..., top : top + REGION, left : left + REGION]
    return ratio_of_layer(alone, patch, nn.MaxPool2d(KERNEL)).mean()


def _reconstructions(network: nn.Sequential, images: Tensor) -> np.ndarray:
    """Reconstruct images from conv1, conv2 and pool1; return images and all three, (n, 4, channels, height, width)."""
    conv1, conv2, pool = (network.get_submodule(name) for name in ("conv1", "conv2", "pool1"))
    crelu, shape = network.get_submodule("act1"), images.shape[1:]
    assert isinstance(pool, nn.MaxPool2d)
    with torch.no_grad():
        first = crelu(conv1(images))
        second = crelu(conv2(first))
        pooled, indices = nn.functional.max_pool2d(
            second, pool.kernel_size, pool.stride, ceil_mode=pool.ceil_mode, return_indices=True
        )
    of_pooled = reconstruct(conv2, pooled, first.shape[1:], indices=indices).input
    stages = [
        images,
        reconstruct(conv1, first, shape).input,
        reconstruct_through([conv1, conv2], second, shape),
        reconstruct(conv1, of_pooled, shape).input,
    ]
    return torch.stack(stages, 1).numpy().astype(np.float16)


@dataclass(frozen=True)
class Normalized:
    """Batches of normalized images, decoded anew each time they are iterated."""

    examples: Examples
    indices: Tensor
    moments: Moments

    def __iter__(self) -> Iterator[Tensor]:
        for chunk in self.indices.split(BATCH):
            yield self.moments.normalize(self.examples.batch(chunk)[0])


def invariant(
    network: nn.Module, batches: Iterable[Tensor], layers: Sequence[str], crop: int | None = None
) -> Metrics:
    """Measure the invariance score of these layers (crelu Fig. 4); a layer that never fires has none."""
    found = invariance(network, batches, layers, crop=crop).layers
    return {f"{name} invariance": each.score for name, each in found.items() if math.isfinite(each.score)}


def _before(network: nn.Sequential, name: str) -> Iterator[nn.Module]:
    """The modules before the one with this name."""
    for other, module in network.named_children():
        if other == name:
            return
        yield module


def _weight(network: nn.Module, name: str) -> Tensor:
    weight = network.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    return weight.detach()
