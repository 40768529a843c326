"""Training curves, for any study."""

from collections.abc import Iterator
from statistics import fmean

from relucid.report.figure import Figure
from relucid.studies import Outcome, Store, Table, cells


def training(table: Table, store: Store) -> list[Figure]:
    """Draw the training error over the epochs, one figure per setting of the study."""
    labels: dict[str, str] = {}
    for label, column in table.study.columns.items():
        labels.setdefault(str(column.config), label)  # the first of those that show the same runs
    titles = {label: f", {label}" if len(labels) > 1 else "" for label in labels.values()}
    found = (
        curves(table, store, label, "train_error", "training error %", f"Training curves{of}")
        for label, of in titles.items()
    )
    return [figure for figure in found if figure.plot.data]


def curves(table: Table, store: Store, column: str, name: str, quantity: str, title: str) -> Figure:
    """Draw the training curve of every row in a column, averaged over its runs."""
    import plotly.graph_objects as go

    plot = go.Figure()
    for row in dict.fromkeys(row for row, _ in table.cells):
        outcomes = _outcomes(table, store, row, column)
        found = [outcome.history[name] for outcome in outcomes if name in outcome.history]
        if found:
            means = [fmean(epoch) for epoch in zip(*found, strict=False)]
            plot.add_scatter(x=list(range(1, len(means) + 1)), y=means, name=row, mode="lines")
    plot.update_xaxes(title="epoch").update_yaxes(title=quantity)
    alt = f"Lines of the {quantity} over the epochs, one for each of: {', '.join(table.study.rows)}."
    return Figure(title, alt, plot)


def _outcomes(table: Table, store: Store, row: str, column: str) -> Iterator[Outcome]:
    """The finished runs of a cell, at its chosen learning rate if there is one."""
    chosen = table.cells[row, column].chosen
    for run in cells(table.study, table.scale, only=row)[row, column]:
        outcome = store.get(run.key)
        if outcome is None or outcome.state != "finished":
            continue
        if all(run.config[name] == value for name, value in chosen.items()):
            yield outcome
