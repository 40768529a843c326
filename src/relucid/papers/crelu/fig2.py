"""crelu Fig. 2 and 3: filters of trained networks come in opposite pairs, except in CReLU networks."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from relucid.inspect.null_distribution import extreme_p_value
from relucid.papers.crelu.measures import LAYERS
from relucid.papers.crelu.protocols import SINGLE
from relucid.papers.crelu.table1 import BASELINE, HALF, SAME_RUNS, SCALES, study
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Claim, Column, Derived, Lower, Near, Quantity, Store, Table
from relucid.studies.expect import Samples

if TYPE_CHECKING:
    import plotly.graph_objects as go

DRAWN = ("conv1", "conv2", "conv3", "conv4")  # the layers of crelu Fig. 3
MARGIN = 0.05  # of a cosine
ALT = "Histograms of {}, each with the density of random filters as a line."


def remark(table: Table) -> str:
    """State the mean cosines of trained and of random filters."""
    sentences = []
    for row in (BASELINE, "CReLU"):
        runs = [run["metrics"] for run in table.behind(row)]
        if not runs:  # a row that this scale does not have
            continue
        mu, random = (np.mean([run[f"conv1 {name}"] for run in runs]) for name in ("mu", "random mu"))
        sentences.append(f"{row}: mean cosine {mu:.2f} in conv1, of random filters {random:.2f}")
    return f"{'; '.join(sentences)}."


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw histograms of mu against random filters, for ReLU networks (crelu Fig. 2) and CReLU networks (Fig. 3)."""
    return of_rows(table, store, (BASELINE, "CReLU"))


def of_rows(table: Table, store: Store, rows: Sequence[str]) -> list[Figure]:
    """Draw histograms of mu against random filters, a figure for each of these rows."""
    found = []
    for row in rows:
        arrays = [store.arrays(run["key"]) for run in table.behind(row)]
        if arrays and all(f"{layer} mu" in each for each in arrays for layer in DRAWN):
            weights = {layer: int(table.behind(row)[0]["metrics"][f"{layer} weights"]) for layer in DRAWN}
            mu = {layer: [each[f"{layer} mu"] for each in arrays] for layer in DRAWN}
            title = f"Cosines with the most opposite filter: {row}"
            found.append(Figure(title, ALT.format(", ".join(DRAWN)), histograms(mu, weights)))
    return found


def histograms(mu: dict[str, list[np.ndarray]], weights: dict[str, int]) -> "go.Figure":
    """Draw a histogram of mu for every layer, beside the density of random filters.

    Args:
        mu: by layer, an array (filters,) for every network.
        weights: by layer, the number of weights of a filter.
    """
    from plotly.subplots import make_subplots

    plot = make_subplots(1, len(mu), subplot_titles=list(mu), shared_xaxes=True)
    edges = torch.linspace(-1, 0.5, 151, dtype=torch.float64)
    for column, (layer, of_networks) in enumerate(mu.items(), 1):
        density = extreme_p_value(edges, weights[layer], len(of_networks[0]) - 1).diff() / edges.diff()
        plot.add_histogram(
            x=np.concatenate(of_networks),
            xbins={"start": -1, "end": 0.5, "size": 0.05},
            histnorm="probability density",
            name="learned filters",
            marker_color=PALETTE[0],
            showlegend=column == 1,
            row=1,
            col=column,
        )
        plot.add_scatter(
            x=((edges[1:] + edges[:-1]) / 2).numpy(),
            y=density.numpy(),
            name="random filters",
            line_color=PALETTE[1],
            showlegend=column == 1,
            row=1,
            col=column,
        )
    return plot.update_xaxes(range=[-1, 0.5], title="mu").update_yaxes(title="density", col=1)


def cosine(layer: str) -> Quantity:
    """The baseline's mean cosine of a filter with its most opposite one, seed by seed."""

    def sample(table: Table) -> Samples:
        return {
            f"seed {run['config']['seed']}": run["metrics"][f"{layer} mu"] for run in table.behind(BASELINE)
        }

    return Quantity(f"{BASELINE}, mean cosine in {layer}", sample, (BASELINE,))


STUDIES = (
    study(
        "pairing",
        SCALES,
        title="Mean cosine of a filter with its most opposite one, minus that of random filters",
        columns={layer: Column(f"{layer} excess", SINGLE, best=None) for layer in LAYERS},
        source="crelu Fig. 2, 3",
        protocol=SAME_RUNS,
        claims=(
            Claim(
                "Section 2.1, Fig. 2",
                "Filters of the first layers of ReLU networks are far more opposite to each other than random ones.",
                (Lower(BASELINE, than=0.0, columns=("conv1", "conv2")),),
                remark=remark,
                note="The figure shows AlexNet; these are the ConvPool networks of Table 1.",
                code=("relucid.inspect.pairing", "relucid.inspect.null_distribution.extreme_p_value"),
                tests=(
                    "inspect/test_pairing.py::test_pairing_equals_the_comparison_of_every_filter_with_every_other",
                    "inspect/test_null_distribution.py::test_the_extreme_cosine_of_random_filters_follows_the_null_distribution",
                ),
            ),
            Claim(
                "Fig. 3",
                "With CReLU there are fewer pairs left to learn: the filters of conv1 are less opposite than with "
                "ReLU.",
                (Lower(BASELINE, than=("CReLU", HALF), columns="conv1", paired=True),),
                stated="2026-11-17",
                note="On the ConvPool networks of Table 1; CReLU (half) was added with its results in view.",
                code=("relucid.inspect.pairing",),
            ),
            Claim(
                "Fig. 3, like random filters",
                f"With CReLU, filters are no more opposite than random ones: mean cosines within {MARGIN:g} of theirs.",
                (Near(("CReLU", HALF), DRAWN, 0.0, MARGIN),),
                stated="2026-11-17",
                note="On the ConvPool networks of Table 1; the margin is ours.",
                code=("relucid.inspect.pairing",),
            ),
            Claim(
                "Section 2.1, over depth",
                "The cosines with the most opposite filters shift towards zero, layer by layer from conv1 to conv5.",
                tuple(
                    Derived(cosine(later), "higher", cosine(layer), paired=True)
                    for layer, later in pairwise(LAYERS[:5])
                ),
                stated="2026-11-17",
                note="On the ConvPool networks of Table 1. Random filters shift, too: they have more weights in deeper "
                "layers.",
                code=("relucid.inspect.pairing",),
            ),
        ),
        figures=figures,
    ),
)
