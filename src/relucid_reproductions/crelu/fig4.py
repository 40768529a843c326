"""crelu Fig. 4: how invariant the features of ReLU and of CReLU networks are."""

import math
from collections.abc import Mapping
from typing import Any

from relucid.experiments import Cell, Claim, Column, Contrast, Results, Study, higher
from relucid.report.figure import Figure
from relucid_reproductions.crelu import table4
from relucid_reproductions.crelu.measures import LAYERS
from relucid_reproductions.crelu.protocols import SINGLE
from relucid_reproductions.crelu.table1 import BASELINE, CRELU, HALF, measuring

PLOTTED = (BASELINE, CRELU, HALF)
TITLE = "How often a unit still fires when the {} is changed, divided by how often it fires, on {}"
HIGHER = "CReLU networks have higher invariance scores than ReLU networks in all layers."
COLUMNS = {layer: Column(f"{layer} invariance", SINGLE, best="highest") for layer in LAYERS}


def over_layers(results: Results) -> list[Figure]:
    """Draw the invariance score over the layers, one line per network."""
    import plotly.graph_objects as go

    plot, table = go.Figure(), results.table()
    for row, cells in table.groupby(level="row", sort=False):
        layers = cells.index.get_level_values("column")
        plot.add_scatter(x=list(layers), y=cells["mean"], error_y_array=cells["error"].fillna(0), name=row)
    plot.update_yaxes(title="invariance score")
    alt = f"Lines of the score over the layers, one for each of: {', '.join(results.study.rows)}."
    return [Figure("Invariance over depth", alt, plot)]


def local_maxima(scores: Mapping[str, float]) -> list[str]:
    """The names whose score is higher than those right before and after, of which the first and the last have one.

    >>> local_maxima({"conv1": 3.0, "conv2": 2.0, "conv3": 2.5, "conv4": 4.0, "conv5": 1.0})
    ['conv1', 'conv4']
    """
    values = [-math.inf, *scores.values(), -math.inf]
    around = zip(values, values[1:], values[2:], strict=False)
    return [name for name, (left, score, right) in zip(scores, around, strict=True) if left < score > right]


def peaks(results: Results) -> list[str]:
    """The layers after which crelu 4.2 would place CReLU: conv1, conv4 and conv7 in the paper."""
    return local_maxima({layer: results[table4.BASELINE, layer].mean() for layer in LAYERS})


def rises(rows: Any, layer: str, before: str) -> list[Contrast]:
    """The score is higher in a layer than in another one of the same network."""
    return [Contrast(Cell(row, layer), Cell(row, before), "higher") for row in rows]


def study(name: str, where: str, data: str, *more: Claim) -> Study:
    """The study of invariance on a data set."""
    return measuring(
        name,
        TITLE.format("image", data),
        COLUMNS,
        paired=True,
        claims=[
            Claim(where, HIGHER, higher(CRELU, BASELINE, LAYERS)),
            Claim(
                f"{where}, pooling",
                "The scores rise after max-pooling: from conv2 to conv3, and from conv4 to conv6.",
                rises(PLOTTED, "conv3", "conv2") + rises(PLOTTED, "conv6", "conv4"),
                stated="2026-11-17",
            ),
            Claim(
                f"{where}, not monotone",
                "The scores do not rise from layer to layer throughout: conv2 is below conv1.",
                [Contrast(Cell(row, "conv2"), Cell(row, "conv1"), "lower") for row in PLOTTED],
                stated="2026-11-17",
            ),
            Claim(
                f"{where}, depth",
                "The scores generally rise with depth: conv7 is above conv1.",
                rises(PLOTTED, "conv7", "conv1"),
                stated="2026-11-19",
            ),
            *more,
        ],
        figures=[over_layers],
    )


STUDIES = [
    study(
        "crelu/invariance",
        "Fig. 4",
        "CIFAR-10",
        Claim(
            "Fig. 4, half the filters",
            "CReLU networks with half the filters have higher invariance scores than ReLU networks in all layers.",
            higher(HALF, BASELINE, LAYERS),
            stated="2026-11-17",
        ),
    ),
    study("crelu/invariance-100", "Fig. 4b", "CIFAR-100"),
    table4.measuring(
        "invariance",
        TITLE.format("photograph", "ImageNet"),
        rows={row: table4.ROWS[row] for row in (table4.BASELINE, table4.SEVEN)},
        columns={layer: Column(f"{layer} invariance", best="highest") for layer in LAYERS},
        claims=[
            Claim("Fig. 4, ImageNet", HIGHER, higher(table4.SEVEN, table4.BASELINE, LAYERS)),
            Claim(
                "Fig. 4, ImageNet, peaks",
                "The scores of the ReLU network have local maxima at conv1, conv4 and conv7.",
                [
                    contrast
                    for peak, beside in (
                        ("conv1", "conv2"),
                        ("conv4", "conv3"),
                        ("conv4", "conv5"),
                        ("conv7", "conv6"),
                    )
                    for contrast in rises([table4.BASELINE], peak, beside)
                ],
                stated="2026-11-17",
            ),
        ],
        figures=[over_layers],
    ),
]
