"""The page of the quickstart: four findings, each with its figure and its table."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import plotly.graph_objects as go

from relucid.papers.gmp.evolution import LARGE
from relucid.papers.gmp.fig3 import in_training
from relucid.papers.ours import findings
from relucid.papers.ours.mend import above_dead_units, over_tasks
from relucid.papers.ours.plasticity import HALF, RELU, smoothed
from relucid.report.figure import PALETTE, Figure
from relucid.report.page import Grid, GridCell, render
from relucid.report.study import grid_of_environments, grid_of_runs, shown
from relucid.studies import Cell, Column, Store, Table
from relucid.studies.formats import banner, cell_text
from relucid.studies.ledger import Entry


@dataclass(frozen=True)
class Part:
    """A finding on the page."""

    title: str
    entries: Sequence[Entry]
    figures: Sequence[Figure]
    grid: Grid

    @property
    def wide(self) -> bool:
        """Whether a figure takes the whole width: one with panels side by side, or several."""
        return len(self.figures) > 1 or any(each.wide for each in self.figures)


def quickstart_page(table: Table, store: Store, name: str) -> str:
    """Render the page of the quickstart."""
    command = f"relucid {{}} {shlex.quote(name)} --scale {shlex.quote(table.scale)}"
    return render(
        "quickstart.html",
        study=table.study,
        banner=banner(table),
        parts=parts(table, store),
        missing=not table.complete,
        time=timedelta(seconds=round(sum(run["seconds"] for run in table.runs))),
        runs=grid_of_runs(table),
        environments=grid_of_environments(table),
        commands=[command.format("run"), command.format("report") + " -o page.html"],
    )


def parts(table: Table, store: Store) -> list[Part]:
    """The four findings."""
    entries = table.entries
    layout = {
        findings.LEARNING: ((RELU, HALF), (findings.FIRST, findings.LAST, findings.DEAD)),
        findings.MEND: (findings.MENDING, (findings.FITTED, findings.LEFT, findings.PARAMETERS)),
        findings.BOUNDARIES: (tuple(findings.METHODS), (findings.TURN, findings.ERROR)),
        findings.DEPTH: (tuple(findings.LAYERS), (*findings.KEPT.values(), *findings.STEP.values())),
    }
    figures = [learning(table), mending(table), turning(table, store), deepening(table)]
    return [
        Part(
            f"{where[:1].upper()}{where[1:]}",
            [each for each in entries if each.claim.where.partition(":")[0] == where],
            drawn,
            grid(table, rows, columns),
        )
        for (where, (rows, columns)), drawn in zip(layout.items(), figures, strict=True)
    ]


def grid(table: Table, rows: Sequence[str], columns: Sequence[str]) -> Grid:
    """A table of these rows and columns."""
    lines = []
    for row in rows:
        cells = [(table.cells[row, column], table.study.columns[column]) for column in columns]
        lines.append([GridCell(row), *(_shown(cell, column) for cell, column in cells)])
    return Grid("Means and their standard errors", [("", ""), *((column, "") for column in columns)], lines)


def _shown(cell: Cell, column: Column) -> GridCell:
    """A cell without a mark: it is coloured if it is better or worse than the baseline."""
    return replace(shown(cell, column), text=cell_text(replace(cell, better=None), column))


def learning(table: Table) -> list[Figure]:
    """Draw accuracy and dead units over the tasks: both networks at their own rates, and ReLU at CReLU's."""
    found = {row: record for row in (RELU, HALF) for record in table.behind(row, findings.LAST)}
    if len(found) < 2:
        return []
    rates = {row: record["metrics"]["rate"] for row, record in found.items()}
    lines = {f"{row}, rate {rates[row]:g}": (found[row], "") for row in found}
    lines.setdefault(f"{RELU}, rate {rates[HALF]:g}", (found[RELU], f" at {rates[HALF]:g}"))
    courses = {
        name: (smoothed(record["history"][f"score{at}"]), smoothed(record["history"][f"dead{at}"]))
        for name, (record, at) in lines.items()
    }
    plot = above_dead_units(courses, "accuracy %", (PALETTE[1], PALETTE[0], PALETTE[2]))
    ends = "; ".join(
        f"{trace.name}: {trace.y[0]:.0f} to {trace.y[-1]:.0f}" for trace in plot.data if trace.showlegend
    )
    return [
        Figure("Accuracy while learning, and dead units, task after task", f"Accuracy in %, {ends}.", plot)
    ]


def mending(table: Table) -> list[Figure]:
    """Draw the share of labels fitted, task by task, before and after mending."""
    found = {row: record for row in findings.MENDING for record in table.behind(row, findings.FITTED)}
    return [over_tasks(found)] if found else []


def turning(table: Table, store: Store) -> list[Figure]:
    """Draw the boundaries through training, with a slider."""
    rates = dict.fromkeys(findings.METHODS.values(), LARGE)
    return [in_training(table, store, rates, f"Training at a rate of {LARGE:g}; the slider moves through it")]


def deepening(table: Table) -> list[Figure]:
    """Draw the megabytes needed and the milliseconds per step, over depth."""
    return [
        _over_depth(table, "Needed for the backward pass", "MB", findings.KEPT),
        _over_depth(table, "Time per step", "ms", findings.STEP),
    ]


def _over_depth(table: Table, what: str, unit: str, columns: Mapping[str, str]) -> Figure:
    axes: dict[str, Any] = {
        "xaxis_title": "layers",
        "yaxis_title": unit,
        "xaxis_type": "log",
        "yaxis_type": "log",
    }
    plot = go.Figure(layout={"height": 320, **axes})
    for (side, column), color in zip(columns.items(), PALETTE, strict=False):
        y = [table.cells[row, column].mean for row in findings.LAYERS]
        plot.add_scatter(
            name=side, mode="lines+markers", x=[*findings.LAYERS.values()], y=y, line_color=color
        )
    described = "; ".join(
        f"{trace.name}: {', '.join(f'{y or 0:.2f}' for y in trace.y)}" for trace in plot.data
    )
    return Figure(f"{what}, over depth", f"In {unit}, {described}.", plot)
