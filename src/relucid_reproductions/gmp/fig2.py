"""gmp Fig. 2: how far characteristic points move in a step, on the Levy function."""

from typing import TYPE_CHECKING

import numpy as np

from relucid.experiments import Claim, Column, Results, higher, lower
from relucid.report.figure import Figure
from relucid_reproductions.gmp.drawing import PALE, Arrays, course, panels, play
from relucid_reproductions.gmp.evolution import ADAM, LARGE, ROWS, study
from relucid_reproductions.gmp.problems import BEST_RATES, OTHERS, with_r_one

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST = f"log2 of the largest step, rate {LARGE:g}"
BOUND = ADAM * LARGE  # the longest step of a parameter at that rate


def figures(results: Results) -> list[Figure]:
    """Draw predictions and characteristic points in training (gmp Fig. 2d-g), and the largest steps (Fig. 2c)."""
    plot, recorded = panels(results, BEST_RATES)
    for place, arrays in enumerate(recorded.values(), start=1):
        x, y = arrays["inputs"][:, 0], arrays["targets"][:, 0]
        plot.add_scatter(x=x, y=y, mode="markers", marker={"color": PALE, "size": 5}, row=1, col=place)
    play(plot, recorded, _frame)
    plot.update_xaxes(range=[-10.5, 10.5], title="x").update_yaxes(range=[-2, 12])
    alt = (
        "One panel per parameterization: the data, the network's prediction and, below it, a tick at the "
        "characteristic point of each unit. The slider moves through training."
    )
    steps = course(results, "moved", "largest step of a characteristic point", LARGE)
    powers = range(-40, 25, 8)
    ticks = {"tickvals": [2.0**power for power in powers], "ticktext": [f"2^{power}" for power in powers]}
    steps.plot.update_yaxes(type="log", **ticks)
    return [Figure("Training on Levy, at the paper's rates", alt, plot), steps]


def _frame(arrays: Arrays, frame: int, color: str) -> list["go.Scatter"]:
    import plotly.graph_objects as go

    points = -(arrays["radius"][frame, :, None] * arrays["direction"][frame])[:, 0]
    points = points[np.abs(points) <= 10.5]
    ticks = {"symbol": "line-ns-open", "size": 12, "color": color}
    return [
        go.Scatter(x=arrays["probe"][:, 0], y=arrays["outputs"][frame], mode="lines", line_color=color),
        go.Scatter(x=points, y=np.full(len(points), -1.0), mode="markers", marker=ticks),
    ]


levy = study(
    "gmp/levy",
    "The Levy function learned by 100 units, and how far their characteristic points move in a step",
    {"RMSE": Column("error", digits=3), "log2 of the largest step": Column("log2 step", digits=1)},
    {"data": "levy", "stop_on": "train"},
    claims=[
        Claim(
            "Fig. 2",
            "On Levy's function, no characteristic point moves by more than 1 in a step under GmP.",
            lower("GmP", 0.0, LARGEST),
            kind="construction",
        ),
        Claim(
            "Fig. 2, other parameterizations",
            "On Levy's function, characteristic points move by far more than 1 in a step under SP, WN and BN.",
            higher(OTHERS, 0.0, LARGEST),
        ),
    ],
    figures=[figures],
)
STUDIES = [levy, with_r_one(levy, ROWS, levy.claims[:1])]  # the other claim is not about GmP
