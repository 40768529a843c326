"""Tools to draw the figures of gmp."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relucid.experiments import Results, arrays_of
from relucid.report.figure import PALETTE, Figure
from relucid_reproductions.gmp.problems import METHODS

if TYPE_CHECKING:
    import plotly.graph_objects as go

Arrays = Mapping[str, np.ndarray]
COLORS = dict(zip(METHODS, PALETTE, strict=False))
PALE = "#9690af"  # for data, beside what is learned


def lines(direction: np.ndarray, radius: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """The lines u . x + lambda = 0 as one broken line, for u (N, 2) and lambda (N,)."""
    middle, along = -radius[:, None] * direction, 20 * direction[:, ::-1] * [-1, 1]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (x1, y1), (x2, y2) in zip((middle - along).tolist(), (middle + along).tolist(), strict=True):
        xs += [round(x1, 3), round(x2, 3), None]
        ys += [round(y1, 3), round(y2, 3), None]
    return xs, ys


def arrays_by_method(results: Results, rates: Mapping[str, float]) -> dict[str, Arrays]:
    """The arrays of the runs at these rates, by method, where they were kept."""
    arrays = {
        record["config"]["method"]: arrays_of(record)
        for record in results.runs()
        if rates.get(record["config"].get("method")) == record["config"].get("rate", math.nan)
    }
    return {method: arrays[method] for method in rates if arrays.get(method)}


def panels(results: Results, rates: Mapping[str, float]) -> tuple["go.Figure", dict[str, Arrays]]:
    """An empty plot with a panel for each method at its rate, and the arrays of the methods' runs."""
    from plotly.subplots import make_subplots

    arrays = arrays_by_method(results, rates)
    titles = [f"{method}, rate {rates[method]:g}" for method in arrays]
    plot = make_subplots(1, max(1, len(arrays)), subplot_titles=titles or None, shared_yaxes=True)
    return plot.update_layout(showlegend=False), arrays


def play(
    plot: "go.Figure", recorded: dict[str, Arrays], draw: Callable[[Arrays, int, str], Sequence[Any]]
) -> None:
    """Add the moving traces to each panel, and a frame for each recorded moment.

    The moments are the same in all panels; where training has ended, the last frame stays.
    """
    import plotly.graph_objects as go

    still = len(plot.data)
    for place, (method, arrays) in enumerate(recorded.items(), start=1):
        for trace in draw(arrays, 0, COLORS[method]):
            plot.add_trace(trace, row=1, col=place)
    moving = list(range(still, len(plot.data)))
    moments = max((arrays["step"] for arrays in recorded.values()), key=len, default=np.array([]))
    plot.frames = [
        go.Frame(
            name=f"step {step}",
            traces=moving,
            data=[
                trace
                for method, arrays in recorded.items()
                for trace in draw(arrays, min(frame, len(arrays["step"]) - 1), COLORS[method])
            ],
        )
        for frame, step in enumerate(moments)
    ]


def course(results: Results, name: str, title: str, rate: float) -> Figure:
    """Draw the largest changes over training, for all methods at one rate."""
    import plotly.graph_objects as go

    plot = go.Figure()
    for method, arrays in arrays_by_method(results, dict.fromkeys(METHODS, rate)).items():
        y = np.rad2deg(arrays[name]) if name == "turned" else arrays[name]
        plot.add_scatter(x=arrays["course"], y=y, name=method, mode="lines", line_color=COLORS[method])
    plot.update_xaxes(title="step of training", type="log").update_yaxes(title=title)
    alt = f"Lines of the {title} over training at rate {rate:g}, one per parameterization: lower is more stable."
    return Figure(f"{title.capitalize()}, rate {rate:g}", alt, plot)
