"""The page of the quickstart: four findings, each with its figure and its table."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import plotly.graph_objects as go

from relucid.papers.gmp.evolution import LARGE
from relucid.papers.gmp.fig3 import in_training
from relucid.papers.ours.findings import (
    ANEW,
    BOUNDARIES,
    DEPTH,
    ERROR,
    HALF,
    KEPT,
    LAYERS,
    MEND,
    MENDING,
    METHODS,
    PARAMETERS,
    STEP,
    TURN,
    UNCHANGED,
)
from relucid.report.figure import PALETTE, Figure, literal
from relucid.report.improvement import differences
from relucid.report.page import Cell, CellStyle, Grid, render
from relucid.report.study import grid_of_environments, grid_of_runs
from relucid.studies.expect import Claim, Lower
from relucid.studies.formats import banner, cell_text
from relucid.studies.judge import judge
from relucid.studies.ledger import Entry, entry
from relucid.studies.store import Store
from relucid.studies.study import Column
from relucid.studies.table import Cell as StudyCell
from relucid.studies.table import Table


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
        return len(self.figures) > 1 or any("xaxis2" in each.plot.layout for each in self.figures)


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
    found = {
        claim.where: entry("", table.study, claim, table)
        for claim in table.study.claims
        if claim.where in table.judged
    }
    layout = {
        "Find and mend": ((MEND, f"{MEND}: is it the size?"), MENDING, (ERROR, PARAMETERS)),
        "Half the parameters": (("half the parameters",), (ANEW, HALF), (ERROR, PARAMETERS)),
        "Boundaries that do not jump": ((BOUNDARIES,), tuple(METHODS), (TURN, ERROR)),
        "Depth at constant memory": ((DEPTH,), tuple(LAYERS), (*KEPT.values(), *STEP.values())),
    }
    figures = [mending(table), halving(table), turning(table, store), deepening(table)]
    return [
        Part(title, [found[where] for where in claims if where in found], drawn, grid(table, rows, columns))
        for (title, (claims, rows, columns)), drawn in zip(layout.items(), figures, strict=True)
    ]


def grid(table: Table, rows: Sequence[str], columns: Sequence[str]) -> Grid:
    """A table of these rows and columns."""
    lines = []
    for row in rows:
        cells = [(table.cells[row, column], table.study.columns[column]) for column in columns]
        lines.append([Cell(row), *(_shown(cell, column) for cell, column in cells)])
    return Grid("Means and their standard errors", [("", ""), *((column, "") for column in columns)], lines)


def _shown(cell: StudyCell, column: Column) -> Cell:
    """A cell, coloured if it is better or worse than the baseline."""
    style: CellStyle = "" if cell.better is None else "good" if cell.better else "bad"
    return Cell(cell_text(replace(cell, better=None), column), cell.mean, style)


def mending(table: Table) -> list[Figure]:
    """Draw the differences from the unchanged network, with intervals."""
    others = tuple(row for row in MENDING if row != UNCHANGED)
    judged = judge(table, Claim("", "", (Lower(others, than=UNCHANGED, columns=ERROR),)))
    return [differences(judged, ERROR)] if any(each.found for each in judged) else []


def halving(table: Table) -> list[Figure]:
    """Draw the errors of all repetitions over the number of parameters."""
    plot = go.Figure(layout={"height": 320, "xaxis_title": "parameters", "yaxis_title": literal(ERROR)})
    for row, color in zip((ANEW, HALF), PALETTE, strict=False):
        cell, size = table.cells[row, ERROR], table.cells[row, PARAMETERS].mean
        if cell.samples and size is not None:
            plot.add_scatter(
                name=row,
                mode="markers",
                x=[size] * len(cell.values),
                y=cell.values,
                marker={"color": color, "size": 9},
            )
    plot.update_xaxes(rangemode="tozero").update_yaxes(rangemode="tozero")
    said = "; ".join(f"{trace.name}: {', '.join(f'{y:.2f}' for y in trace.y)}" for trace in plot.data)
    return [Figure("Test error of every repetition, over parameters", f"{said}.", plot)]


def turning(table: Table, store: Store) -> list[Figure]:
    """Draw the boundaries through training, with a slider."""
    rates = dict.fromkeys(METHODS.values(), LARGE)
    return [in_training(table, store, rates, f"Training at a rate of {LARGE:g}; the slider moves through it")]


def deepening(table: Table) -> list[Figure]:
    """Draw the megabytes kept and the milliseconds per step, over depth."""
    figures = []
    for what, unit, columns in ("Kept for the backward pass", "MB", KEPT), ("Time per step", "ms", STEP):
        plot = go.Figure(layout={"height": 320, "xaxis_title": "layers", "yaxis_title": unit})
        for (side, column), color in zip(columns.items(), PALETTE, strict=False):
            points = [(layers, table.cells[row, column].mean) for row, layers in LAYERS.items()]
            x, y = zip(*points, strict=True)
            plot.add_scatter(name=side, mode="lines+markers", x=x, y=y, line_color=color)
        plot.update_yaxes(rangemode="tozero")
        said = "; ".join(
            f"{trace.name}: {', '.join(f'{y or 0:.2f}' for y in trace.y)}" for trace in plot.data
        )
        figures.append(Figure(f"{what}, over depth", f"In {unit}, {said}.", plot))
    return figures
