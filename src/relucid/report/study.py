"""The page of a study: what is claimed, what was found, its table, figures and runs, and how to repeat it."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import mean
from typing import TYPE_CHECKING, Any

from relucid.printing import printable
from relucid.report.curves import recorded
from relucid.report.figure import PALETTE, Figure, literal, wrapped
from relucid.report.page import CellStyle, Grid, GridCell, render
from relucid.studies import Cell, Column, Store, Table, plan
from relucid.studies.formats import banner, cell_text, legend, published

if TYPE_CHECKING:
    import plotly.graph_objects as go


def study_page(
    table: Table, store: Store, name: str, *, only: str | None = None, seeds: int | None = None
) -> str:
    """Render the page of a study from its table and its store.

    Args:
        table: the results.
        store: where they are.
        name: the identifier that the user passed.
        only: the row that the table is confined to.
        seeds: the number of seeds that the table is confined to.
    """
    if table.study.page is not None:
        return table.study.page(table, store, name)
    study, states = table.study, Counter(run["state"] for run in table.runs)
    part = {"--scale": table.scale, "--only": only, "--seeds": seeds}
    options = [text for option, value in part.items() if value is not None for text in (option, str(value))]
    command = f"relucid {{}} {printable(shlex.join([name, *options]))}"
    figures = []
    if states["finished"] and study.figures:
        figures += study.figures(table, store)
    if not study.figures:
        figures += recorded(table)
    if study.published or not study.figures:
        figures += comparisons(table)
    return render(
        "study.html",
        study=study,
        scale=table.scale,
        banner=banner(table),
        claims=table.entries,
        words=words(table),
        states=states,
        missing=len(plan(study, table.scale, only=only, seeds=seeds)) - len(table.runs),
        time=timedelta(seconds=round(sum(run["seconds"] for run in table.runs))),
        grid=grid(table),
        legend=legend(table),
        figures=figures,
        runs=grid_of_runs(table),
        environments=grid_of_environments(table),
        commands=[command.format("run"), command.format("report") + " -o page.html"],
    )


def words(table: Table) -> list[str]:
    """Write one sentence per column: which row is best, and which differ significantly from the baseline."""
    sentences = []
    for label, column in table.study.columns.items():
        known = {
            row: cell for (row, of), cell in table.cells.items() if of == label and cell.mean is not None
        }
        if column.best is None or len(known) < 2:
            continue
        best = (min if column.best == "lowest" else max)(known, key=lambda row: known[row].mean or 0.0)
        sentence = f"{label}: {column.best} for {best}, {cell_text(known[best], column)}."
        for word, sign in ("Better", True), ("Worse", False):
            if rows := [row for row, cell in known.items() if cell.better is sign]:
                sentence += (
                    f" {word} than {table.study.baseline or 'compared'} beyond chance: {', '.join(rows)}."
                )
        sentences.append(sentence)
    return sentences


def grid(table: Table) -> Grid:
    """The table of a study, with the published values beside ours."""
    columns = table.study.columns
    theirs = {of for (_, of), cell in table.cells.items() if cell.published[0] is not None}
    head = [("", "")]
    for label in columns:
        head += [(label, "ours" if label in theirs else "")] + [(label, "published")] * (label in theirs)
    rows = []
    for row in dict.fromkeys(row for row, _ in table.cells):
        line = [GridCell(row)]
        for label, column in columns.items():
            cell = table.cells[row, label]
            line.append(shown(cell, column))
            if label in theirs:
                line.append(GridCell(published(cell, column), cell.published[0], "dim"))
        rows.append(line)
    caption = "Means and their standard errors" + (f", beside {table.study.source}" if theirs else "")
    return Grid(caption, head, rows)


def shown(cell: Cell, column: Column) -> GridCell:
    """A cell of the table, coloured if it is better or worse than what it is compared with."""
    style: CellStyle = "" if cell.better is None else "good" if cell.better else "bad"
    return GridCell(cell_text(cell, column), cell.mean, style)


def comparisons(table: Table) -> list[Figure]:
    """Draw one figure per column with a notion of better: means with standard errors, ours and published."""
    figures = []
    for label, column in table.study.columns.items():
        points: dict[str, list[tuple[str, float, float | None]]] = {"ours": [], "published": []}
        for (row, of), cell in table.cells.items():
            if of == label and cell.mean is not None and column.best is not None:
                for whose, (value, error) in zip(
                    points, ((cell.mean, cell.error), cell.published), strict=True
                ):
                    if value is not None:
                        points[whose].append((row, value, error))
        if points["ours"]:
            described = [
                f"{whose}: " + ", ".join(f"{row} {value:.{column.digits}f}" for row, value, _ in found)
                for whose, found in points.items()
                if found
            ]
            alt = f"Means with standard errors, {'; '.join(described)}."
            figures.append(Figure(f"{label} ({column.best} is best)", alt, _side_by_side(label, points)))
    return figures


def _side_by_side(label: str, points: Mapping[str, Sequence[tuple[str, float, float | None]]]) -> "go.Figure":
    """Draw the means and errors of every row, ours and published."""
    import plotly.graph_objects as go

    plot = go.Figure(layout={"xaxis_title": literal(label), "height": 130 + 34 * len(points["ours"])})
    looks = zip(points.items(), PALETTE, ("circle", "diamond-open"), strict=False)
    for (whose, found), color, symbol in looks:
        if found:
            rows, values, errors = zip(*found, strict=True)
            plot.add_scatter(
                name=whose,
                mode="markers",
                x=values,
                y=[*map(wrapped, rows)],
                error_x={"array": errors},
                marker={"color": color, "symbol": symbol, "size": 10},
            )
    plot.update_yaxes(autorange="reversed", type="category")
    return plot.update_layout(showlegend=bool(points["published"]))


def grid_of_runs(table: Table) -> Grid:
    """A table of all runs: settings, outcome and metrics."""
    configs = [{name: json.dumps(value) for name, value in run["config"].items()} for run in table.runs]
    names = dict.fromkeys(name for config in configs for name in config)
    varied = [name for name in names if len({config.get(name) for config in configs}) > 1]
    metrics = list(dict.fromkeys(name for run in table.runs for name in run["metrics"]))
    rows = []
    for run, config in zip(table.runs, configs, strict=True):
        line = [GridCell(run["key"][:8]), *(GridCell(config.get(name, "")) for name in varied)]
        style: CellStyle = "" if run["state"] == "finished" else "bad"
        line += [GridCell(run["state"], style=style), GridCell(f"{run['seconds']:.1f}", run["seconds"])]
        rows.append(line + [_measured(run["metrics"].get(name)) for name in metrics])
    head = [(name, "") for name in ("run", *varied, "state", "seconds", *metrics)]
    return Grid(f"{len(rows)} runs", head, rows)


def _measured(value: Any) -> GridCell:
    """A number, or the mean of several."""
    number = mean(value) if isinstance(value, list) and value and None not in value else value
    return GridCell(f"{number:.4g}", number) if isinstance(number, int | float) else GridCell("")


def grid_of_environments(table: Table) -> Grid:
    """A table of the runs' environments, one column per machine."""
    found = Counter(json.dumps(run["environment"]) for run in table.runs)
    machines = []
    for text in found:
        environment = json.loads(text)
        environment["trained"] = "; ".join(map(str, environment.get("trained", ())))
        machines.append({**environment.pop("versions", {}), **environment})
    names = dict.fromkeys(name for machine in machines for name, value in machine.items() if value)
    rows = [
        [GridCell(name), *(GridCell(str(machine.get(name) or "")) for machine in machines)] for name in names
    ]
    return Grid("What the runs ran on", [("", ""), *((f"{runs} runs", "") for runs in found.values())], rows)
