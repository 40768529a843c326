"""gmp Fig. 2: how far characteristic points move in a step, on the Levy function."""

from typing import TYPE_CHECKING

import numpy as np

from relucid.papers.gmp.drawing import PALE, Arrays, course, panels, play
from relucid.papers.gmp.evolution import ADAM, LARGE, ROWS, study
from relucid.papers.gmp.problems import BEST_RATES, METHODS, with_r_one
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Higher, Lower, Store, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST = f"log2 of the largest step, rate {LARGE:g}"


def remark(table: Table) -> str:
    """State the largest steps, and what Adam alone implies."""
    largest = {m: max(table.cells[m, LARGEST].values) for m in METHODS}
    below = [method for method in METHODS if largest[method] < 0]
    return (
        f"At rate {LARGE:g}, the largest step of a characteristic point is {2 ** largest['GmP']:.2g} under GmP, "
        + ", ".join(f"2^{largest[method]:.0f} under {method}" for method in METHODS if method != "GmP")
        + f". It stays below 1 under {' and '.join(below) or 'none'}. For GmP this follows from Adam: the point is a "
        f"parameter, and no step of Adam exceeds {ADAM:.2f} rates, here {ADAM * LARGE:.2f}."
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw predictions and characteristic points in training (gmp Fig. 2d-g), and the largest steps (Fig. 2c)."""
    plot, found = panels(table, store, BEST_RATES)
    for place, arrays in enumerate(found.values(), start=1):
        x, y = arrays["inputs"][:, 0], arrays["targets"][:, 0]
        plot.add_scatter(x=x, y=y, mode="markers", marker={"color": PALE, "size": 5}, row=1, col=place)
    play(plot, found, _frame)
    plot.update_xaxes(range=[-10.5, 10.5], title="x").update_yaxes(range=[-2, 12])
    alt = (
        "One panel per parameterization: the data, the network's prediction and, below it, a tick at the "
        "characteristic point of each unit. The slider moves through training."
    )
    steps = course(table, store, "moved", "largest step of a characteristic point", LARGE)
    powers = range(-40, 25, 8)
    ticks = {"tickvals": [2.0**power for power in powers], "ticktext": [f"2^{power}" for power in powers]}
    steps.plot.update_yaxes(type="log", **ticks)
    return [Figure("Training on Levy, at the paper's rates", alt, plot), steps]


def _frame(arrays: Arrays, frame: int, colour: str) -> list["go.Scatter"]:
    import plotly.graph_objects as go

    points = -(arrays["radius"][frame, :, None] * arrays["direction"][frame])[:, 0]
    points = points[np.abs(points) <= 10.5]
    ticks = {"symbol": "line-ns-open", "size": 12, "color": colour}
    return [
        go.Scatter(x=arrays["probe"][:, 0], y=arrays["outputs"][frame], mode="lines", line_color=colour),
        go.Scatter(x=points, y=np.full(len(points), -1.0), mode="markers", marker=ticks),
    ]


STUDY = study(
    "gmp/levy",
    {"RMSE": Column("error", digits=3), "log2 of the largest step": Column("log2 step", digits=1)},
    {"data": "levy", "stop_on": "train"},
    title="The Levy function learned by 100 units, and how far their characteristic points move in a step",
    source="gmp Fig. 2",
    claims=(
        Claim(
            "Fig. 2",
            "On Levy's function, no characteristic point moves by more than 1 in a step under GmP.",
            (Lower("GmP", than=0.0, columns=LARGEST),),
            kind="construction",
            remark=remark,
            note="For GmP this follows from Adam alone: the point is a parameter.",
            code=("relucid.inspect.BoundaryTracker",),
            tests=(
                "inspect/test_tracker.py::test_changes_are_the_distance_of_locations_and_the_angle_of_directions",
            ),
        ),
        Claim(
            "Fig. 2, other parameterizations",
            "On Levy's function, characteristic points move by far more than 1 in a step under SP, WN and BN.",
            (Higher(("SP", "WN", "BN"), than=0.0, columns=LARGEST),),
            code=("relucid.inspect.BoundaryTracker",),
        ),
    ),
    figures=figures,
    protocol=(
        "10 networks, each with its own 50 points (noise 0.1) and initial weights; MAE loss, Adam, full batch, at most "
        "10,000 epochs; the rate is cut to a tenth after 500 epochs without a lower training loss, and training ends "
        "after 1000. The test split, a grid without noise, is used once. The paper shows one network per "
        "parameterization, steps at rate 0.1, and errors at 0.1 for GmP and 0.01 for the others. Batch norm is folded "
        "into the unit before its boundary is computed. ± is the standard error."
    ),
)

ONE = with_r_one(STUDY, "gmp/levy-one", ROWS, STUDY.claims[:1])  # the other is not about GmP
STUDIES = (STUDY, ONE)
