"""Figures that suit any study: means with their errors by column, and curves over epochs by row."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import pandas as pd

from relucid.experiments import Results
from relucid.report.figure import PALETTE, Figure, literal, wrapped

if TYPE_CHECKING:
    import plotly.graph_objects as go


def points(results: Results, columns: Iterable[str] | None = None) -> list[Figure]:
    """Draw a figure per column: means with standard errors, ours and published.

    Args:
        results: of the study.
        columns: those to draw; by default all in which lower or higher values are better.
    """
    table, shown, figures = results.table(), results.study.columns, []
    for label in columns or [label for label, column in shown.items() if column.best is not None]:
        stats = table[(table.index.get_level_values("column") == label) & (table["n"] > 0)].droplevel(
            "column"
        )
        if not len(stats):
            continue
        ours, theirs = stats[["mean", "error"]], stats[["published", "published_error"]].dropna(how="all")
        sides = {whose: side for whose, side in (("ours", ours), ("published", theirs)) if len(side)}
        digits, best = shown[label].digits, shown[label].best
        told = [
            f"{whose}: {', '.join(f'{row} {value:.{digits}f}' for row, value, _ in side.itertuples())}"
            for whose, side in sides.items()
        ]
        title = f"{label} ({best} is best)" if best else label
        alt = f"Means with standard errors, {'; '.join(told)}."
        figures.append(Figure(title, alt, _side_by_side(label, sides)))
    return figures


def _side_by_side(label: str, sides: Mapping[str, pd.DataFrame]) -> "go.Figure":
    import plotly.graph_objects as go

    plot = go.Figure(layout={"xaxis_title": literal(label), "height": 130 + 34 * len(sides["ours"])})
    looks = zip(sides.items(), PALETTE, ("circle", "diamond-open"), strict=False)
    for (whose, side), color, symbol in looks:
        values, errors = (side.iloc[:, place].tolist() for place in (0, 1))
        plot.add_scatter(
            name=whose,
            mode="markers",
            x=values,
            y=[*map(wrapped, side.index)],
            error_x={"array": errors},
            marker={"color": color, "symbol": symbol, "size": 10},
        )
    plot.update_yaxes(autorange="reversed", type="category")
    return plot.update_layout(showlegend=len(sides) > 1)


def curves(
    results: Results,
    history: str = "train_error",
    quantity: str = "training error %",
    title: str = "Training curves",
    columns: Iterable[str] | None = None,
) -> list[Figure]:
    """Draw what the runs recorded of every epoch: a mean curve per row, a figure per setting of the study.

    Args:
        results: of the study.
        history: its name in the runs' history.
        quantity: what it is, for the axis.
        title: of the figure; the column is added where there are several settings.
        columns: those to draw; by default the first of those that show the same runs.
    """
    if columns is None:
        first: dict[str, str] = {}
        for label, column in results.study.columns.items():
            first.setdefault(str(column.config), label)
        columns = first.values()
    labels = [label for label in columns if any(of == label for _, of in results.cells)]
    drawn = {label: mean_curves(results, label, history) for label in labels}
    return [
        over_epochs(f"{title}, {label}" if len(labels) > 1 else title, quantity, lines)
        for label, lines in drawn.items()
        if lines
    ]


def mean_curves(results: Results, column: str, history: str) -> dict[str, list[float]]:
    """The mean curve of every row in a column, up to the end of its shortest run."""
    rows = [row for row, of in results.cells if of == column]
    known = {row: list(results[row, column, history, True]) for row in rows}
    return {row: averaged(courses) for row, courses in known.items() if courses}


def averaged(courses: Iterable[Sequence[float | None]]) -> list[float]:
    """The means of several courses, up to the end of the shortest; what a run recorded as null is NaN.

    >>> averaged([[1.0, 2.0, 3.0], [3.0, None]])
    [2.0, nan]
    """
    return [float(pd.Series(epoch, dtype=float).mean(skipna=False)) for epoch in zip(*courses, strict=False)]


def over_epochs(title: str, quantity: str, courses: Mapping[str, Sequence[float]]) -> Figure:
    """Draw one line per row over the epochs."""
    import plotly.graph_objects as go

    plot = go.Figure(layout={"xaxis_title": "epoch", "yaxis_title": literal(quantity), "height": 380})
    drawn = {row: y for row, y in courses.items() if y}
    for (row, y), dash in zip(drawn.items(), cycle(("solid", "dash", "dot", "dashdot")), strict=False):
        plot.add_scatter(x=list(range(1, len(y) + 1)), y=y, name=literal(row), mode="lines", line_dash=dash)
    ends = ", ".join(f"{row} from {y[0]:.3g} to {y[-1]:.3g}" for row, y in drawn.items())
    return Figure(title, f"Mean {quantity} over the runs, epoch by epoch: {ends}.", plot)


def recorded(results: Results) -> list[Figure]:
    """Draw a figure per quantity recorded for every epoch.

    Only where all columns of a row show the same runs and nothing is chosen among them, so that a row has one curve.
    """
    first = next(iter(results.study.columns))
    keys = {cell: {planned.run.key for planned in runs} for cell, runs in results.tried.items()}
    if results.study.choose or any(runs != keys.get((row, first)) for (row, _), runs in keys.items()):
        return []
    names = dict.fromkeys(name for record in results.records.values() for name in record.get("history", {}))
    lines = {name: mean_curves(results, first, name) for name in names}
    return [
        over_epochs(f"{name} during training", name, of_rows)
        for name, of_rows in lines.items()
        if any(len(set(y)) > 1 for y in of_rows.values())
    ]
