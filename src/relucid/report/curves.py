"""Training curves: the mean of each row's runs, epoch by epoch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from relucid.report.figure import Figure, literal
from relucid.studies import Store, Table, cells


def averaged(courses: Iterable[Sequence[float | None]]) -> list[float]:
    """The means of several courses, up to the end of the shortest; the store has null for NaN and infinity."""
    return [
        fmean(math.nan if value is None else value for value in epoch)
        for epoch in zip(*courses, strict=False)
    ]


def over_epochs(title: str, quantity: str, courses: Mapping[str, Sequence[float]]) -> Figure:
    """Draw one line per row over the epochs."""
    import plotly.graph_objects as go

    plot = go.Figure(layout={"xaxis_title": "epoch", "yaxis_title": literal(quantity), "height": 380})
    drawn = {row: y for row, y in courses.items() if y}
    for (row, y), dash in zip(drawn.items(), cycle(("solid", "dash", "dot", "dashdot")), strict=False):
        plot.add_scatter(x=list(range(1, len(y) + 1)), y=y, name=literal(row), mode="lines", line_dash=dash)
    ends = ", ".join(f"{row} from {y[0]:.3g} to {y[-1]:.3g}" for row, y in drawn.items())
    return Figure(title, f"Mean {quantity} over the runs, epoch by epoch: {ends}.", plot)


def training(table: Table, store: Store) -> list[Figure]:
    """Draw the training error over the epochs, one figure per setting of the study."""
    labels: dict[str, str] = {}
    for label, column in table.study.columns.items():
        labels.setdefault(str(column.config), label)  # the first of those that show the same runs
    titles = {label: f", {label}" if len(labels) > 1 else "" for label in labels.values()}
    found = (
        of_column(table, label, "train_error", "training error %", f"Training curves{of}")
        for label, of in titles.items()
    )
    return [figure for figure in found if figure.plot.data]


def of_column(table: Table, column: str, name: str, quantity: str, title: str) -> Figure:
    """Draw the training curve of every row in a column."""
    rows = dict.fromkeys(row for row, _ in table.cells)
    return over_epochs(title, quantity, {row: _course(table.behind(row, column), name) for row in rows})


def recorded(table: Table) -> list[Figure]:
    """Draw one figure per quantity recorded for every epoch.

    Only where all columns of a row show the same runs and nothing is chosen among them, so that a row has one course.
    """
    study, planned = table.study, cells(table.study, table.scale)
    keys = {row: {run.key for run in planned[row, next(iter(study.columns))]} for row in study.rows}
    alone = all(keys[row] == {run.key for run in runs} for (row, _), runs in planned.items())
    if study.choose or not alone:
        return []
    runs = {row: table.behind(row) for row in study.rows}
    names = dict.fromkeys(name for of_row in runs.values() for run in of_row for name in run["history"])
    courses = {name: {row: _course(of_row, name) for row, of_row in runs.items()} for name in names}
    return [
        over_epochs(f"{name} during training", name, lines)
        for name, lines in courses.items()
        if any(len(set(y)) > 1 for y in lines.values())
    ]


def _course(runs: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """The mean course of a quantity over the runs that recorded it."""
    return averaged(run["history"][name] for run in runs if name in run["history"])
