"""crelu Fig. 2 and 3: filters of trained networks come in opposite pairs, except in CReLU networks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from relucid.experiments import Cell, Claim, Column, Contrast, Quantity, Results, arrays_of, lower, near
from relucid.inspect._statistics import extreme_p_value
from relucid.report.figure import PALETTE, Figure
from relucid_reproductions.crelu import table4
from relucid_reproductions.crelu.measures import LAYERS
from relucid_reproductions.crelu.protocols import SINGLE
from relucid_reproductions.crelu.table1 import BASELINE, CRELU, HALF, measuring

if TYPE_CHECKING:
    import plotly.graph_objects as go

DRAWN = LAYERS[:4]  # the layers of crelu Fig. 3
MARGIN = 0.05  # of a cosine
FEWER = (
    "With CReLU there are fewer pairs left to learn: the filters of conv1 are less opposite than with ReLU."
)


def cosine(layer: str) -> Quantity:
    """The baseline's mean cosine of a filter with its most opposite one."""
    cells = [Cell(BASELINE, layer, f"{layer} mu")]
    return Quantity(f"{BASELINE}, mean cosine in {layer}", cells, lambda mu: mu)


def of_rows(results: Results) -> list[Figure]:
    """Draw histograms of mu against random filters, a figure for each row with arrays."""
    figures = []
    for row in dict.fromkeys(row for row, _ in results.cells):
        records = results.behind(row, DRAWN[0])
        arrays = [arrays_of(record) for record in records]
        if (
            row in (BASELINE, CRELU, table4.FOUR)
            and arrays
            and all(f"{DRAWN[0]} mu" in kept for kept in arrays)
        ):
            weights = {layer: int(records[0]["metrics"][f"{layer} weights"]) for layer in DRAWN}
            mu = {layer: [kept[f"{layer} mu"] for kept in arrays] for layer in DRAWN}
            figures.append(histograms(f"Cosines with the most opposite filter: {row}", mu, weights))
    return figures


def histograms(title: str, mu: Mapping[str, Sequence[np.ndarray]], weights: Mapping[str, int]) -> Figure:
    """Draw a histogram of mu for every layer, beside the density of random filters.

    Args:
        title: of the figure.
        mu: by layer, an array (filters,) for every network.
        weights: by layer, the number of weights of a filter.
    """
    from plotly.subplots import make_subplots

    plot: go.Figure = make_subplots(1, len(mu), subplot_titles=list(mu), shared_xaxes=True)
    edges = torch.linspace(-1, 0.5, 151, dtype=torch.float64)
    for column, (layer, networks) in enumerate(mu.items(), 1):
        density = extreme_p_value(edges, weights[layer], len(networks[0]) - 1).diff() / edges.diff()
        place = {"row": 1, "col": column, "showlegend": column == 1}
        plot.add_histogram(
            x=np.concatenate(networks), xbins={"start": -1, "end": 0.5, "size": 0.05},
            histnorm="probability density", name="learned filters", marker_color=PALETTE[0], **place,
        )  # fmt: skip
        middle = ((edges[1:] + edges[:-1]) / 2).numpy()
        plot.add_scatter(x=middle, y=density.numpy(), name="random filters", line_color=PALETTE[1], **place)
    plot.update_xaxes(range=[-1, 0.5], title="mu").update_yaxes(title="density", col=1)
    return Figure(
        title, f"Histograms of {', '.join(mu)}, each with the density of random filters as a line.", plot
    )


STUDIES = [
    measuring(
        "crelu/pairing",
        "Mean cosine of a filter with its most opposite one, minus that of random filters",
        {layer: Column(f"{layer} excess", SINGLE, best=None) for layer in LAYERS},
        claims=[
            Claim(
                "Section 2.1, Fig. 2",
                "Filters of the first layers of ReLU networks are far more opposite to each other than random ones.",
                lower(BASELINE, 0.0, LAYERS[:2]),
            ),
            Claim("Fig. 3", FEWER, lower(BASELINE, (CRELU, HALF), "conv1", paired=True), stated="2026-11-17"),
            Claim(
                "Fig. 3, like random filters",
                f"With CReLU, filters are no more opposite than random ones: mean cosines within {MARGIN:g} of theirs.",
                near((CRELU, HALF), 0.0, DRAWN, MARGIN),
                stated="2026-11-17",
            ),
            Claim(
                "Section 2.1, over depth",
                "The cosines with the most opposite filters shift towards zero, layer by layer from conv1 to conv5.",
                [
                    Contrast(cosine(later), cosine(layer), "higher", paired=True)
                    for layer, later in pairwise(LAYERS[:5])
                ],
                stated="2026-11-17",
            ),
        ],
        figures=[of_rows],
    ),
    table4.measuring(
        "pairing",
        "Mean cosine of a filter with its most opposite one, minus that of random filters, on ImageNet",
        rows={row: table4.ROWS[row] for row in (table4.BASELINE, table4.FOUR)},
        columns={layer: Column(f"{layer} excess", best=None) for layer in LAYERS},
        claims=[Claim("Fig. 3, ImageNet", FEWER, lower(table4.BASELINE, table4.FOUR, "conv1"))],
        figures=[of_rows],
    ),
]
