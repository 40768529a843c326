"""gmp Fig. 3: how far directions turn in a step, on the Banana set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relucid.papers.gmp.drawing import PALE, Arrays, course, lines, panels, play
from relucid.papers.gmp.evolution import ADAM, LARGE, ROWS, study
from relucid.papers.gmp.problems import BEST_RATES, METHODS, with_r_one
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Claim, Column, Lower, Store, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGEST = f"largest turn in degrees, rate {LARGE:g}"


def remark(table: Table) -> str:
    """State the largest turns, and what Adam alone implies."""
    largest = {m: max(table.cells[m, LARGEST].values) for m in METHODS}
    return (
        f"At rate {LARGE:g}, the largest turn of a direction in a step is {largest['GmP']:.0f}° under GmP, "
        + ", ".join(f"{largest[method]:.0f}° under {method}" for method in METHODS if method != "GmP")
        + f". For GmP a bound follows from Adam: no step of an angle exceeds {ADAM:.2f} rates, here "
        f"{np.rad2deg(ADAM * LARGE):.0f}°."
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw boundaries in training (gmp Fig. 3j-m), their paths (Fig. 3a-h), and the largest turns (Fig. 3i)."""
    return [
        in_training(table, store, BEST_RATES, "Training on Banana, at the paper's rates"),
        *(_paths(table, store, rate) for rate in (0.01, LARGE)),
        course(table, store, "turned", "largest turn of a direction in degrees", LARGE),
    ]


def in_training(table: Table, store: Store, rates: Mapping[str, float], title: str) -> Figure:
    """Draw boundaries through training, with a slider; one panel per method, at its rate."""
    plot, found = panels(table, store, rates)
    for place, arrays in enumerate(found.values(), start=1):
        _add_classes(plot, arrays, place)
    play(plot, found, _frame)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "One panel per parameterization: points of both classes, the lines where units switch, a star at each line's "
        "nearest point to the origin, and a bold line between the predicted classes. The slider moves through training."
    )
    return Figure(title, alt, plot)


def _add_classes(plot: "go.Figure", arrays: Arrays, place: int) -> None:
    """Add the first points of the data in the colours of their classes."""
    (x, y), classes = arrays["inputs"][:200].T, arrays["targets"][:200]
    marker = {"color": [PALETTE[int(each)] for each in classes], "size": 4, "opacity": 0.5}
    plot.add_scatter(x=x, y=y, mode="markers", marker=marker, row=1, col=place)


def _frame(arrays: Arrays, frame: int, colour: str) -> list[Any]:
    import plotly.graph_objects as go

    direction, radius = arrays["direction"][frame], arrays["radius"][frame]
    x, y = lines(direction, radius)
    stars = -radius[:, None] * direction
    side = round(len(arrays["probe"]) ** 0.5)
    grid = arrays["probe"].reshape(side, side, 2)
    # Only the zero line is drawn: one byte per point is enough and keeps frames small.
    logits = np.round(127 * np.clip(arrays["outputs"][frame], -1, 1)).astype(np.int8).reshape(side, side)
    bold = {"color": PALETTE[5], "width": 3}
    level = {"start": 0, "end": 0, "size": 1, "coloring": "none"}
    return [
        go.Scatter(x=x, y=y, mode="lines", line={"color": PALE, "width": 1}),
        go.Scatter(x=stars[:, 0], y=stars[:, 1], mode="markers", marker={"symbol": "star", "color": colour}),
        go.Contour(
            x=grid[:, 0, 0],
            y=grid[0, :, 1],
            z=logits.T,
            contours=level,
            line=bold,
            showscale=False,
        ),
    ]


def _paths(table: Table, store: Store, rate: float) -> Figure:
    """Draw the paths of the units' locations through training at one rate."""
    plot, found = panels(table, store, dict.fromkeys(METHODS, rate))
    for place, arrays in enumerate(found.values(), start=1):
        _add_classes(plot, arrays, place)
        for unit in np.moveaxis(-arrays["radius"][..., None] * arrays["direction"], 1, 0):
            plot.add_scatter(x=unit[:, 0], y=unit[:, 1], mode="lines", line_width=1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "One panel per parameterization, with one line for each of its ten units: the path of the boundary's nearest "
        "point to the origin, at the recorded moments."
    )
    return Figure(f"Paths of the units' locations, rate {rate:g}", alt, plot)


STUDY = study(
    "gmp/banana",
    {"test error %": Column("error", digits=1), "largest turn in degrees": Column("turn", digits=0)},
    {"data": "banana", "stop_on": "test"},
    title="The Banana set learned by 10 units, and how far their directions turn in a step",
    source="gmp Fig. 3",
    splits=tuple(ROWS),
    claims=(
        Claim(
            "Fig. 3",
            "On Banana, directions turn little in a step under GmP, but by up to 180 degrees under the others.",
            (Lower("GmP", than=("SP", "WN", "BN"), columns=LARGEST),),
            kind="construction",
            remark=remark,
            erratum="The figure's 10 units are right; the text's 100 is a slip.",
            code=("relucid.inspect.BoundaryTracker",),
        ),
    ),
    figures=figures,
    protocol=(
        "10 networks, each with its own 1000 of the 5300 points (800 for training), order and initial weights; "
        "standardised features, cross entropy, Adam, batches of 128, at most 5000 epochs; the rate is cut to a tenth "
        "after 50 epochs without a better test accuracy, training ends after 100, and the best weights count. As in "
        "the authors' runs, the test split chooses the weights whose error is reported (gmp/rates avoids this). The "
        "paper shows one network per parameterization. ± is the standard error."
    ),
)

ONE = with_r_one(STUDY, "gmp/banana-one", ROWS, STUDY.claims)
STUDIES = (STUDY, ONE)
