"""Figures of the studies of structure."""

from collections.abc import Iterator
from itertools import product
from statistics import mean

import plotly.graph_objects as go

from relucid.report.figure import PALETTE, Figure
from relucid.studies import Cell, Outcome, Store, Table, cells
from relucid.studies.structure.depth import MSE, RULES, excess


def depth(table: Table, store: Store) -> list[Figure]:
    """The loss over the depth, less that of an output of 0, and over the epochs at the greatest depth."""
    found = excess(table)
    plot = go.Figure()
    for colour, (name, rule) in zip(PALETTE, {**RULES, "least squares": "lstsq"}.items(), strict=True):
        over = {
            depth: Cell(tuple(values.values()), 0, {}) for (of, depth), values in found.items() if of == rule
        }
        depths = sorted(over)
        errors = [over[depth].error for depth in depths]
        means = [over[depth].mean for depth in depths]
        plot.add_scatter(x=depths, y=means, error_y_array=errors, name=name, line_color=colour)
    plot.update_xaxes(title="layers", tickvals=list(MSE)).update_yaxes(title="mean squared error - that of 0")
    alt = "Lines of the loss after training over the number of layers, one a rule, and one of least squares."
    last = list(table.study.columns)[-1]
    return [
        Figure("Loss over depth", alt, plot),
        _courses(table, store, last, "train_loss", "mean squared error", f"Course of training, {last}"),
    ]


def convergence(table: Table, store: Store) -> list[Figure]:
    """The layers to reach the minimizer over kappa; algorithms that did not reach it are left out."""
    study = table.study
    kappas = [column.config["kappa"] for column in study.columns.values()]
    missed = {each["config"]["rule"] for each in table.runs if each["metrics"].get("reached") == 0}
    looks = product(("solid", "dot"), PALETTE)
    plot = go.Figure()
    for row, config in study.rows.items():
        if config["rule"] not in missed:
            dash, colour = next(looks)
            layers = [table.cells[row, column].mean for column in study.columns]
            plot.add_scatter(x=kappas, y=layers, name=row, line={"color": colour, "dash": dash})
    plot.update_xaxes(type="log", title="kappa = L / mu", tickvals=kappas)
    plot.update_yaxes(type="log", title="layers", dtick=1)
    alt = "Lines of the layers over the condition number, both logarithmic, one an algorithm: the steeper, the slower."
    return [Figure("Layers to reach the minimizer", alt, plot)]


def training(table: Table, store: Store) -> list[Figure]:
    """The training error over the epochs, a figure for each setting of the study."""
    labels: dict[str, str] = {}
    for label, column in table.study.columns.items():
        labels.setdefault(str(column.config), label)  # the first of those that show the same runs
    titles = {label: f", {label}" if len(labels) > 1 else "" for label in labels.values()}
    return [
        _courses(table, store, label, "train_error", "training error %", f"Course of training{of}")
        for label, of in titles.items()
    ]


def _courses(table: Table, store: Store, column: str, name: str, quantity: str, title: str) -> Figure:
    """The course of training of every row in a column, the mean of its runs."""
    plot = go.Figure()
    for row in dict.fromkeys(row for row, _ in table.cells):
        outcomes = _outcomes(table, store, row, column)
        courses = [outcome.history[name] for outcome in outcomes if name in outcome.history]
        if courses:
            means = [mean(epoch) for epoch in zip(*courses, strict=False)]
            plot.add_scatter(x=list(range(1, len(means) + 1)), y=means, name=row, mode="lines")
    plot.update_xaxes(title="epoch").update_yaxes(title=quantity)
    alt = f"Lines of the {quantity} over the epochs, one for each of: {', '.join(table.study.rows)}."
    return Figure(title, alt, plot)


def _outcomes(table: Table, store: Store, row: str, column: str) -> Iterator[Outcome]:
    """The finished runs of a cell, at the learning rate that was chosen for it if one was."""
    chosen = table.cells[row, column].chosen
    for run in cells(table.study, table.scale, only=row)[row, column]:
        outcome = store.get(run.key)
        if outcome is None or outcome.state != "finished":
            continue
        if all(run.config[name] == value for name, value in chosen.items()):
            yield outcome
