"""gmp Fig. 3: how far directions turn in a step, on the Banana set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relucid.experiments import Claim, Column, Results, lower
from relucid.report.figure import PALETTE, Figure
from relucid_reproductions.gmp.drawing import PALE, Arrays, course, lines, panels, play
from relucid_reproductions.gmp.evolution import ADAM, LARGE, ROWS, study
from relucid_reproductions.gmp.problems import BEST_RATES, METHODS, OTHERS, with_r_one

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST = f"largest turn in degrees, rate {LARGE:g}"
BOUND = np.rad2deg(ADAM * LARGE)  # the largest change of an angle in a step at that rate


def figures(results: Results) -> list[Figure]:
    """Draw boundaries in training (gmp Fig. 3j-m), their paths (Fig. 3a-h), and the largest turns (Fig. 3i)."""
    return [
        in_training(results, BEST_RATES, "Training on Banana, at the paper's rates"),
        *(_paths(results, rate) for rate in (0.01, LARGE)),
        course(results, "turned", "largest turn of a direction in degrees", LARGE),
    ]


def in_training(results: Results, rates: Mapping[str, float], title: str) -> Figure:
    """Draw boundaries through training, with a slider; one panel per method, at its rate."""
    plot, recorded = panels(results, rates)
    for place, arrays in enumerate(recorded.values(), start=1):
        _add_classes(plot, arrays, place)
    play(plot, recorded, _frame)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "One panel per parameterization: points of both classes, the lines where units switch, a star at each line's "
        "nearest point to the origin, and a bold line between the predicted classes. The slider moves through training."
    )
    return Figure(title, alt, plot)


def _add_classes(plot: "go.Figure", arrays: Arrays, place: int) -> None:
    """Add the first points of the data in the colors of their classes."""
    (x, y), classes = arrays["inputs"][:200].T, arrays["targets"][:200]
    marker = {"color": [PALETTE[int(label)] for label in classes], "size": 4, "opacity": 0.5}
    plot.add_scatter(x=x, y=y, mode="markers", marker=marker, row=1, col=place)


def _frame(arrays: Arrays, frame: int, color: str) -> list[Any]:
    import plotly.graph_objects as go

    direction, radius = arrays["direction"][frame], arrays["radius"][frame]
    x, y = lines(direction, radius)
    stars = -radius[:, None] * direction
    side = round(len(arrays["probe"]) ** 0.5)
    grid = arrays["probe"].reshape(side, side, 2)
    # Only the zero line is drawn: one byte per point is enough and keeps frames small.
    logits = np.round(127 * np.clip(arrays["outputs"][frame], -1, 1)).astype(np.int8).reshape(side, side)
    look = {
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": PALETTE[5], "width": 3},
        "showscale": False,
    }
    return [
        go.Scatter(x=x, y=y, mode="lines", line={"color": PALE, "width": 1}),
        go.Scatter(x=stars[:, 0], y=stars[:, 1], mode="markers", marker={"symbol": "star", "color": color}),
        go.Contour(x=grid[:, 0, 0], y=grid[0, :, 1], z=logits.T, **look),
    ]


def _paths(results: Results, rate: float) -> Figure:
    """Draw the paths of the units' locations through training at one rate."""
    plot, recorded = panels(results, dict.fromkeys(METHODS, rate))
    for place, arrays in enumerate(recorded.values(), start=1):
        _add_classes(plot, arrays, place)
        for unit in np.moveaxis(-arrays["radius"][..., None] * arrays["direction"], 1, 0):
            plot.add_scatter(x=unit[:, 0], y=unit[:, 1], mode="lines", line_width=1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "One panel per parameterization, with one line for each of its ten units: the path of the boundary's nearest "
        "point to the origin, at the recorded moments."
    )
    return Figure(f"Paths of the units' locations, rate {rate:g}", alt, plot)


banana = study(
    "gmp/banana",
    "The Banana set learned by 10 units, and how far their directions turn in a step",
    {"test error %": Column("error", digits=1), "largest turn in degrees": Column("turn", digits=0)},
    {"data": "banana", "stop_on": "test"},
    splits=tuple(ROWS),
    claims=[
        Claim(
            "Fig. 3",
            "On Banana, directions turn little in a step under GmP, but by up to 180 degrees under the others.",
            lower("GmP", OTHERS, LARGEST),
            kind="construction",
        )
    ],
    figures=[figures],
)
STUDIES = [banana, with_r_one(banana, ROWS, banana.claims)]
