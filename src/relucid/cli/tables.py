"""Tables on a terminal of any width: columns that do not fit side by side continue below."""

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import markup
from rich.console import Console
from rich.table import Table as Grid

from relucid.experiments import Results
from relucid.experiments._page import SMOKE, findings
from relucid.printing import printable

if TYPE_CHECKING:
    from relucid.inspect import Changes, Examination


def escape(text: str) -> str:
    """Text of others as it is: rich takes none of it for markup, and a terminal none for a command."""
    return markup.escape(printable(text))


def print_grid(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns that do not fit follow in tables below, each beside the first column.

    Nothing is cut off: a first column that is too wide is wrapped.
    """
    head, rows = [*map(printable, head)], [[*map(printable, cells)] for cells in rows]
    for columns in wrapped(console.width, head, rows):
        grid = Grid()
        for number in columns:
            grid.add_column(escape(head[number]), overflow="fold")
        for cells in rows:
            if any(cells[number] for number in columns[1:]):
                grid.add_row(*(escape(cells[number]) for number in columns))
        console.print(grid)


def wrapped(width: int, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """The column numbers of each table; every table begins with the first column.

    >>> list(wrapped(20, ["row", "error", "time", "memory"], [["a", "1.00", "2 s", "3 MB"]]))
    [[0, 1], [0, 2], [0, 3]]
    """
    widths = [max(len(text) for text in column) + 3 for column in zip(head, *rows, strict=True)]
    left = width - widths[0] - 1
    part: list[int] = []
    for number in range(1, len(head)):
        if part and sum(widths[each] for each in part) + widths[number] > left:
            yield [0, *part]
            part = []
        part.append(number)
    yield [0, *part]


def print_results(results: Results, name: str, store: Path | None) -> None:
    """Print the claims and the table of a study, and how to find out why runs failed."""
    console, study = Console(highlight=False), results.study
    console.print(f"[bold]{escape(study.name)}[/bold] ({results.scale}): {escape(study.title)}")
    if results.scale == "smoke":
        console.print(f"[bold]{SMOKE}[/bold]")
    for finding in findings(results):
        console.print(f"[bold]{escape(finding.claim.where)}:[/bold] {escape(finding.claim.says)}")
        console.print(escape(finding.stands))
        for verdict in finding.verdicts:
            console.print(f"  {escape(str(verdict))}")
    for block in results.blocks():
        rows = [[str(row), *cells] for row, cells in zip(block.index, block.to_numpy(), strict=True)]
        print_grid(console, ["", *block.columns], rows)
    if study.published:
        console.print("In brackets: published values.", style="italic")
    if chosen := results.choices():
        console.print(escape(f"Chosen: {chosen}."), style="italic")
    failed = sum(record["state"] == "failed" for record in results.records.values())
    if failed:
        options = ["--scale", results.scale, *([] if store is None else ["--store", str(store)])]
        command = shlex.join(["relucid", "logs", name, *options])
        console.print(escape(f"Failed runs: {failed}. `{command}` shows why, `run --retry` repeats them."))


def formatted(results: Results, form: str) -> str:
    """The results for another program: the cells as CSV or LaTeX, the table as Markdown, or cells and runs as JSON."""
    if form == "markdown":
        return str(results)
    if form == "latex":
        return str(results.shown().to_latex(escape=True))
    if form == "csv":
        return str(results.table().to_csv())
    cells = [
        {
            **{
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in cell.items()
            },
            "values": results[cell["row"], cell["column"]].tolist(),
        }
        for cell in results.table().reset_index().to_dict("records")
    ]
    whole = {"study": results.study.name, "scale": results.scale, "cells": cells}
    return json.dumps(
        {**whole, "runs": [*results.records.values(), *results.votes()]}, indent=1, ensure_ascii=False
    )


def print_examination(found: "Examination") -> None:
    """Print an examination: a table on a terminal, plain lines for other programs."""
    console, rows = Console(highlight=False), found.rows()
    if not rows:
        console.print("The network has no layer with a ReLU, so there is nothing to examine.")
    if not console.is_terminal:
        print(found.summary())
        return
    _print_rows(console, rows)
    for sentence in found.sentences():
        console.print(escape(sentence), style="yellow")
    for what, why in found.unattributed:
        console.print(escape(f"{what}: {why}"), style="dim")


def print_comparison(changes: "Changes", before: str, after: str) -> None:
    """Print what changed from one network to another."""
    console = Console(highlight=False)
    console.print(f"\n[bold]From {escape(before)} to {escape(after)}[/bold]")
    if not console.is_terminal:
        print(changes.summary())
        return
    _print_rows(console, changes.rows())
    for note in changes.notes():
        console.print(escape(note))


def _print_rows(console: Console, rows: Sequence[dict[str, str]]) -> None:
    """Print a table from dictionaries, without empty columns."""
    used = [key for key in rows[0] if any(row[key] for row in rows)] if rows else []
    if used:
        print_grid(console, used, [[row[key] for key in used] for row in rows])
