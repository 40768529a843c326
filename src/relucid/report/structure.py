"""Figures of the studies of structure."""

from collections.abc import Iterator
from statistics import mean

import plotly.graph_objects as go

from relucid.report.figure import PALETTE, Figure
from relucid.studies import Outcome, Store, Table, cells


def depth(table: Table, store: Store) -> list[Figure]:
    """The loss over the depth, ours and the paper's, and over the epochs at the greatest depth."""
    study = table.study
    depths = [column.config["depth"] for column in study.columns.values()]
    plot = go.Figure()
    for colour, row in zip(PALETTE, study.rows, strict=False):
        found = [table.cells[row, column] for column in study.columns]
        errors = [cell.error or 0.0 for cell in found]
        plot.add_scatter(
            x=depths, y=[cell.mean for cell in found], error_y_array=errors, name=row, line_color=colour
        )
        theirs = {"color": colour, "dash": "dot"}
        published = [cell.published[0] for cell in found]
        plot.add_scatter(x=depths, y=published, name=f"{row}, {study.source}", line=theirs, mode="lines")
    plot.update_xaxes(title="layers", tickvals=depths).update_yaxes(title="mean squared error")
    last = list(study.columns)[-1]
    ours = Figure(
        "Loss over depth",
        f"Lines of the loss after training over the number of layers, one a rule, with {study.source}'s dotted.",
        plot,
    )
    return [ours, _courses(table, store, last, "train_loss", "mean squared error")]


def convergence(table: Table, store: Store) -> list[Figure]:
    """The layers to reach the minimizer over kappa; algorithms that did not reach it are left out."""
    study = table.study
    kappas = [column.config["kappa"] for column in study.columns.values()]
    missed = {each["config"]["rule"] for each in table.runs if each["metrics"].get("reached") == 0}
    plot = go.Figure()
    for row, config in study.rows.items():
        if config["rule"] not in missed:
            plot.add_scatter(
                x=kappas, y=[table.cells[row, column].mean for column in study.columns], name=row
            )
    plot.update_xaxes(type="log", title="kappa = L / mu", tickvals=kappas)
    plot.update_yaxes(type="log", title="layers")
    alt = "Lines of the layers over the condition number, both logarithmic, one an algorithm: the steeper, the slower."
    return [Figure("Layers to reach the minimizer", alt, plot)]


def training(table: Table, store: Store) -> list[Figure]:
    """The training error over the epochs, a figure for each setting of the study."""
    labels: dict[str, str] = {}
    for label, column in table.study.columns.items():
        labels.setdefault(str(column.config), label)  # the first of those that show the same runs
    return [_courses(table, store, label, "train_error", "training error %") for label in labels.values()]


def _courses(table: Table, store: Store, column: str, name: str, title: str) -> Figure:
    """The course of training of every row in a column, the mean of its runs."""
    plot = go.Figure()
    for row in dict.fromkeys(row for row, _ in table.cells):
        outcomes = _outcomes(table, store, row, column)
        courses = [outcome.history[name] for outcome in outcomes if name in outcome.history]
        if courses:
            means = [mean(epoch) for epoch in zip(*courses, strict=False)]
            plot.add_scatter(x=list(range(1, len(means) + 1)), y=means, name=row, mode="lines")
    plot.update_xaxes(title="epoch").update_yaxes(title=title)
    alt = f"Lines of the {title} over the epochs, one for each of: {', '.join(table.study.rows)}."
    return Figure(f"Course of training, {column}", alt, plot)


def _outcomes(table: Table, store: Store, row: str, column: str) -> Iterator[Outcome]:
    """The finished runs of a cell, at the learning rate that was chosen for it if one was."""
    chosen = table.cells[row, column].chosen
    for run in cells(table.study, table.scale, only=row)[row, column]:
        outcome = store.get(run.key)
        if outcome is None or outcome.state != "finished":
            continue
        if all(run.config[name] == value for name, value in chosen.items()):
            yield outcome
