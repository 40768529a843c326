"""Figures of the studies of gmp."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from relucid.report.figure import PALETTE, Figure
from relucid.studies import Store, Table
from relucid.studies.gmp.evolution import LARGE
from relucid.studies.gmp.problems import BEST_RATES, METHODS, RATES

Arrays = Mapping[str, np.ndarray]
COLOURS = dict(zip(METHODS, PALETTE, strict=False))
PALE = "#9690af"  # what is given, beside what is learned


def uci(table: Table, store: Store) -> list[Figure]:
    """Our errors over the published ones (gmp Table 3), under either protocol."""
    study, plot = table.study, go.Figure()
    for row in dict.fromkeys(row for row, _ in table.cells):
        method, _, held_out = row.partition(", ")
        cells = {name: table.cells[row, name] for name in study.columns}
        theirs = {name: float(np.ravel(study.published[method][name])[0]) for name in cells}
        plot.add_scatter(
            x=list(cells),
            y=[cell.mean and cell.mean / theirs[name] for name, cell in cells.items()],
            error_y_array=[(cell.error or 0) / theirs[name] for name, cell in cells.items()],
            name=row,
            mode="markers",
            marker={"color": COLOURS[method], "size": 9, "symbol": "circle-open" if held_out else "circle"},
            offsetgroup=row,
        )
    plot.update_layout(scattermode="group").update_yaxes(title=f"error / error in {study.source}")
    alt = (
        "Dots of our error divided by the published one, with standard errors, for each set, method and "
        "protocol; a dot at 1 repeats the paper."
    )
    return [Figure("Our errors beside the published ones", alt, plot)]


def rates(table: Table, store: Store) -> list[Figure]:
    """Errors over the learning rate, a panel a problem."""
    problems = list(dict.fromkeys(row.rpartition(" ")[0] for row, _ in table.cells))
    width = -(-len(problems) // 2)
    plot = make_subplots(2, width, subplot_titles=problems)
    for place, problem in enumerate(problems):
        for method in METHODS:
            cells = {
                rate: cell
                for rate, column in zip(RATES, table.study.columns, strict=True)
                if (cell := table.cells.get((f"{problem} {method}", column)))
            }
            plot.add_scatter(
                x=list(cells),
                y=[cell.mean for cell in cells.values()],
                error_y_array=[cell.error for cell in cells.values()],
                name=method,
                legendgroup=method,
                showlegend=place == 0,
                line_color=COLOURS[method],
                row=place // width + 1,
                col=place % width + 1,
            )
    plot.update_xaxes(type="log", tickvals=[0.001, 0.01, 0.1]).update_yaxes(type="log")
    alt = (
        "A panel for each problem with lines of the test error over the learning rate, both logarithmic, one a "
        "parameterization: the wider the valley, the more robust."
    )
    return [Figure("Test error over the learning rate", alt, plot)]


def levy(table: Table, store: Store) -> list[Figure]:
    """Predictions and characteristic points in training (gmp Fig. 2d-g), and the largest steps (Fig. 2c)."""
    plot, found = _panels(table, store, BEST_RATES)
    for place, arrays in enumerate(found.values(), start=1):
        x, y = arrays["inputs"][:, 0], arrays["targets"][:, 0]
        plot.add_scatter(x=x, y=y, mode="markers", marker={"color": PALE, "size": 5}, row=1, col=place)
    _play(plot, found, _levy_frame)
    plot.update_xaxes(range=[-10.5, 10.5], title="x").update_yaxes(range=[-2, 12])
    alt = (
        "A panel for each parameterization with the data, the network's prediction and, below it, a tick for "
        "the characteristic point of each unit; the slider goes through training."
    )
    steps = _course(table, store, "moved", "largest step of a characteristic point")
    powers = range(-40, 25, 8)
    ticks = {"tickvals": [2.0**power for power in powers], "ticktext": [f"2^{power}" for power in powers]}
    steps.plot.update_yaxes(type="log", **ticks)
    return [Figure("Training on Levy, at the paper's rates", alt, plot), steps]


def _levy_frame(arrays: Arrays, frame: int, colour: str) -> list[go.Scatter]:
    points = -(arrays["radius"][frame, :, None] * arrays["direction"][frame])[:, 0]
    points = points[np.abs(points) <= 10.5]
    ticks = {"symbol": "line-ns-open", "size": 12, "color": colour}
    return [
        go.Scatter(x=arrays["probe"][:, 0], y=arrays["outputs"][frame], mode="lines", line_color=colour),
        go.Scatter(x=points, y=np.full(len(points), -1.0), mode="markers", marker=ticks),
    ]


def banana(table: Table, store: Store) -> list[Figure]:
    """Boundaries in training (gmp Fig. 3j-m), their paths (Fig. 3a-h), and the largest turns (Fig. 3i)."""
    plot, found = _panels(table, store, BEST_RATES)
    for place, arrays in enumerate(found.values(), start=1):
        _add_classes(plot, arrays, place)
    _play(plot, found, _banana_frame)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "A panel for each parameterization with points of both classes, the lines where units switch, a star "
        "on each where it is nearest to the origin, and a bold line between the classes that are predicted; the "
        "slider goes through training."
    )
    return [
        Figure("Training on Banana, at the paper's rates", alt, plot),
        *(_paths(table, store, rate) for rate in (0.01, LARGE)),
        _course(table, store, "turned", "largest turn of a direction in degrees"),
    ]


def _add_classes(plot: go.Figure, arrays: Arrays, place: int) -> None:
    """Add the first points of the data in the colours of their classes."""
    (x, y), classes = arrays["inputs"][:200].T, arrays["targets"][:200]
    marker = {"color": [PALETTE[int(each)] for each in classes], "size": 4, "opacity": 0.5}
    plot.add_scatter(x=x, y=y, mode="markers", marker=marker, row=1, col=place)


def _banana_frame(arrays: Arrays, frame: int, colour: str) -> list[Any]:
    direction, radius = arrays["direction"][frame], arrays["radius"][frame]
    x, y = _lines(direction, radius)
    stars = -radius[:, None] * direction
    side = round(len(arrays["probe"]) ** 0.5)
    grid = arrays["probe"].reshape(side, side, 2)
    # Only the sign near 0 is drawn: a byte a point is enough, and a frame stays small.
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
    """The paths of the units' locations through training at one rate."""
    plot, found = _panels(table, store, dict.fromkeys(METHODS, rate))
    for place, arrays in enumerate(found.values(), start=1):
        _add_classes(plot, arrays, place)
        for unit in np.moveaxis(-arrays["radius"][..., None] * arrays["direction"], 1, 0):
            plot.add_scatter(x=unit[:, 0], y=unit[:, 1], mode="lines", line_width=1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "A panel for each parameterization with a line for each of its ten units: where the point of its boundary "
        "that is nearest to the origin has been, at the moments that were kept."
    )
    return Figure(f"Paths of the units' locations, rate {rate:g}", alt, plot)


def perturbation(table: Table, store: Store) -> list[Figure]:
    """The boundary of one unit before and after perturbations (gmp Fig. 1b-e)."""
    found = {run["config"]["method"]: store.arrays(run["key"]) for run in _runs(table)}
    plot = make_subplots(1, max(1, len(found)), subplot_titles=list(found) or None, shared_yaxes=True)
    for place, arrays in enumerate(found.values(), start=1):
        for number, epsilon in enumerate(arrays["epsilon"]):
            x, y = _lines(arrays["direction"][[number]], arrays["radius"][[number]])
            look = {"name": f"ε = {epsilon:g}", "line_color": PALETTE[number], "legendgroup": str(number)}
            plot.add_scatter(x=x, y=y, mode="lines", **look, showlegend=place == 1, row=1, col=place)
    plot.update_xaxes(range=[-3, 3]).update_yaxes(range=[-3, 3])
    alt = (
        "A panel for each parameterization with the boundary of one unit and where it is after all of the unit's "
        "parameters have grown by epsilon: the nearer to where it was, the more stable."
    )
    return [Figure("The boundary of a unit of small weights, perturbed", alt, plot)]


def vgg6(table: Table, store: Store) -> list[Figure]:
    """Courses of training at the largest batch (gmp Fig. 4)."""
    return [_accuracies(table, store, "Course of training, largest batch", {"times": 4})]


def resnet50(table: Table, store: Store) -> list[Figure]:
    """Courses of training."""
    return [_accuracies(table, store, "Course of training", {})]


def _accuracies(table: Table, store: Store, title: str, setting: dict[str, Any]) -> Figure:
    """Top-5 accuracies over the epochs that all seeds have reached, means over the seeds."""
    plot = make_subplots(1, 2, subplot_titles=["training", "validation"], shared_yaxes=True)
    for colour, (row, config) in zip(PALETTE, table.study.rows.items(), strict=False):
        outcomes = [store.get(run["key"]) for run in _runs(table, **config, **setting)]
        for place, name in enumerate(("train_error5", "val_error5"), start=1):
            courses = [outcome.history[name] for outcome in outcomes if outcome]
            means = [100 - float(np.mean(epoch)) for epoch in zip(*courses, strict=False)]
            look = {"name": row, "legendgroup": row, "showlegend": place == 1, "line_color": colour}
            plot.add_scatter(x=list(range(1, len(means) + 1)), y=means, **look, row=1, col=place)
    plot.update_xaxes(title="epoch").update_yaxes(title="top-5 accuracy %", col=1)
    alt = (
        "Lines of the top-5 accuracy over the epochs, one a parameterization, in training and in validation."
    )
    return Figure(title, alt, plot)


def _runs(table: Table, **setting: Any) -> list[dict[str, Any]]:
    """The finished runs of this setting."""
    finished = [run for run in table.runs if run["state"] == "finished"]
    return [run for run in finished if all(run["config"][name] == value for name, value in setting.items())]


def _found(table: Table, store: Store, rates: Mapping[str, float]) -> dict[str, Arrays]:
    """What the runs at these rates have left, by method."""
    runs = {method: _runs(table, method=method, rate=rate) for method, rate in rates.items()}
    return {method: store.arrays(found[0]["key"]) for method, found in runs.items() if found}


def _panels(table: Table, store: Store, rates: Mapping[str, float]) -> tuple[go.Figure, dict[str, Arrays]]:
    """A panel for each method at its rate, and what its run has left."""
    found = _found(table, store, rates)
    titles = [f"{method}, rate {rates[method]:g}" for method in found]
    plot = make_subplots(1, max(1, len(found)), subplot_titles=titles or None, shared_yaxes=True)
    return plot.update_layout(showlegend=False), found


def _play(
    plot: go.Figure, found: dict[str, Arrays], draw: Callable[[Arrays, int, str], Sequence[Any]]
) -> None:
    """Add what moves to each panel, and a frame for each moment that was kept.

    The moments are the same in all panels; one whose training has ended stays as it was.
    """
    still = len(plot.data)
    for place, (method, arrays) in enumerate(found.items(), start=1):
        for trace in draw(arrays, 0, COLOURS[method]):
            plot.add_trace(trace, row=1, col=place)
    moving = list(range(still, len(plot.data)))
    moments = max((arrays["step"] for arrays in found.values()), key=len, default=np.array([]))
    plot.frames = [
        go.Frame(
            name=f"step {step}",
            traces=moving,
            data=[
                trace
                for method, arrays in found.items()
                for trace in draw(arrays, min(frame, len(arrays["step"]) - 1), COLOURS[method])
            ],
        )
        for frame, step in enumerate(moments)
    ]


def _course(table: Table, store: Store, name: str, title: str) -> Figure:
    """The largest changes over training, all methods at the large rate."""
    plot = go.Figure()
    for method, arrays in _found(table, store, dict.fromkeys(METHODS, LARGE)).items():
        y = np.rad2deg(arrays[name]) if name == "turned" else arrays[name]
        plot.add_scatter(x=arrays["course"], y=y, name=method, mode="lines", line_color=COLOURS[method])
    plot.update_xaxes(title="step of training", type="log").update_yaxes(title=title)
    alt = (
        f"Lines of the {title} over training at rate {LARGE:g}, one a parameterization: lower is more stable."
    )
    return Figure(f"{title.capitalize()}, rate {LARGE:g}", alt, plot)


def _lines(direction: np.ndarray, radius: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """The lines u . x + lambda = 0 as one broken line, for u (N, 2) and lambda (N,)."""
    middle, along = -radius[:, None] * direction, 20 * direction[:, ::-1] * [-1, 1]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (x1, y1), (x2, y2) in zip((middle - along).tolist(), (middle + along).tolist(), strict=True):
        xs += [round(x1, 3), round(x2, 3), None]
        ys += [round(y1, 3), round(y2, 3), None]
    return xs, ys
