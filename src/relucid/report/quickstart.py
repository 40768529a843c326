"""Figures of the quickstart: what the examination found, and the course of training."""

import numpy as np
import plotly.graph_objects as go

from relucid.report.figure import Figure
from relucid.report.study import curves
from relucid.studies import Store, Table


def figures(table: Table, store: Store) -> list[Figure]:
    """How often the units were on before conversion, and how training went on after it."""
    # The networks of a seed are the same before conversion: one run of each will do.
    keys = {run["config"]["seed"]: run["key"] for run in table.runs if run["state"] == "finished"}
    return [activity([store.arrays(key) for key in keys.values()]), *curves(table, store)]


def activity(found: list[dict[str, np.ndarray]]) -> Figure:
    """The share of inputs on which each unit is on, layer by layer, the units of all seeds together."""
    layers, active = (np.concatenate([arrays[name] for arrays in found]) for name in ("layer", "active"))
    plot = go.Figure(
        go.Box(x=layers, y=100 * active, boxpoints="all", pointpos=0, marker_size=4),
        {"xaxis_title": "layer", "yaxis_title": "% of inputs", "yaxis_range": [-5, 105], "height": 340},
    )
    alt = (
        f"A box a layer. Of {len(active)} units {(active == 0).sum()} are never on and {(active == 1).sum()} always; "
        f"half of them are on for at least {100 * np.median(active):.0f} % of the inputs."
    )
    return Figure("How often the units are on before conversion", alt, plot)
