"""Figures of the studies of crelu, and of merging."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from relucid.inspect import figure_of_images
from relucid.inspect.null import extreme_p_value
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Store, Table
from relucid.studies.crelu.convpool import BASELINE
from relucid.studies.crelu.measures import STAGES
from relucid.studies.merge import SHARES

DRAWN = ("conv1", "conv2", "conv3", "conv4")  # the layers of crelu Fig. 3


def pairing(table: Table, store: Store) -> list[Figure]:
    """Histograms of mu against random filters, of ReLU networks (crelu Fig. 2) and of CReLU networks (Fig. 3)."""
    found = []
    for row in (BASELINE, "CReLU"):
        runs = _runs(table, row)
        if runs:
            title = f"Cosines with the most opposite filter: {row}"
            alt = f"Histograms of {', '.join(DRAWN)}, each with the density of random filters as a line."
            found.append(Figure(title, alt, _histograms(runs, store)))
    return found


def _histograms(runs: list[dict[str, Any]], store: Store) -> go.Figure:
    plot = make_subplots(1, len(DRAWN), subplot_titles=DRAWN, shared_xaxes=True)
    edges = torch.linspace(-1, 0.5, 151, dtype=torch.float64)
    arrays = [store.arrays(run["key"]) for run in runs]
    for column, layer in enumerate(DRAWN, 1):
        mu = [each[f"{layer} mu"] for each in arrays]
        dimension, others = int(runs[0]["metrics"][f"{layer} weights"]), len(mu[0]) - 1
        density = extreme_p_value(edges, dimension, others).diff() / edges.diff()
        plot.add_histogram(
            x=np.concatenate(mu),
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


def invariance(table: Table, store: Store) -> list[Figure]:
    """The invariance score over the layers, a line a network (crelu Fig. 4)."""
    plot = go.Figure()
    layers = list(table.study.columns)
    for row in dict.fromkeys(row for row, _ in table.cells):
        cells = [table.cells[row, layer] for layer in layers]
        plot.add_scatter(
            x=layers,
            y=[cell.mean for cell in cells],
            error_y_array=[cell.error or 0.0 for cell in cells],
            name=row,
        )
    plot.update_yaxes(title="invariance score")
    rows = ", ".join(table.study.rows)
    return [
        Figure("Invariance over depth", f"Lines of the score over the layers, one for each of: {rows}.", plot)
    ]


def reconstruction(table: Table, store: Store) -> list[Figure]:
    """Images and what the features of a CReLU network tell of them (crelu Fig. 5)."""
    runs = _runs(table, "CReLU")
    if not runs:
        return []
    stages = torch.from_numpy(store.arrays(runs[0]["key"])["reconstructions"]).float()
    stages = stages.expand(-1, -1, 3, -1, -1)  # grey images have one channel
    columns = stages.transpose(0, 1).transpose(1, 2).flatten(2, 3)  # the images of a stage below each other
    alt = f"Test images, one below the other, and beside each what can be told of it {', '.join(STAGES[1:])}."
    return [Figure("Images reconstructed from features", alt, figure_of_images(list(columns), STAGES))]


def merge(table: Table, store: Store) -> list[Figure]:
    """The test error over the parameters that are left, a line a method."""
    plot = go.Figure()
    for row in table.study.rows:
        metrics = [run["metrics"] for run in _runs(table, row)]
        if metrics:
            x, y = (
                [float(np.mean([each[f"{name} at {share}"] for each in metrics])) for share in SHARES]
                for name in ("parameters", "error")
            )
            plot.add_scatter(x=x, y=y, name=row, mode="lines+markers")
    plot.update_xaxes(title="parameters", autorange="reversed").update_yaxes(title="test error %")
    alt = f"Lines of the error over the number of parameters left, one for each of: {', '.join(table.study.rows)}."
    return [Figure("Error against parameters", alt, plot)]


def _runs(table: Table, row: str) -> list[dict[str, Any]]:
    """The finished runs of a row, with what was chosen for it."""
    cell = table.cells.get((row, next(iter(table.study.columns))))
    if cell is None:
        return []
    wanted = {**table.study.rows[row], **cell.chosen}
    return [
        run for run in table.runs if run["state"] == "finished" and wanted.items() <= run["config"].items()
    ]
