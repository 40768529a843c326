"""A table of results as text: for people, for papers, for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from relucid.studies.study import Column

if TYPE_CHECKING:  # a table prints as text by what is here
    from relucid.studies.table import Cell, Table


def cell_text(cell: Cell, column: Column) -> str:
    """The mean, standard error and marks of a cell, and how many of its runs are missing.

    "+" and "-": better and worse than the baseline; "!": not what was published. All of them at 5%.

    >>> from relucid.studies.table import Cell
    >>> cell_text(Cell({"a": 1.0, "b": 2.0}, runs=3, states={"finished": 2}, better=True), Column("loss", digits=1))
    '1.5 ± 0.5 + (2 of 3 runs)'
    """
    if cell.mean is None:
        text = "" if column.optional and cell.states.get("finished") else "·"
    else:
        text = f"{cell.mean:.{column.digits}f}"
        text += "" if cell.error is None else f" ± {cell.error:.{column.digits}f}"
    marks = ("" if cell.better is None else "+-"[not cell.better]) + ("!" if cell.confirms is False else "")
    troubles = [f"{cell.states[state]} {state}" for state in ("diverged", "failed") if cell.states.get(state)]
    if not troubles and sum(cell.states.values()) < cell.runs:
        troubles = [f"{sum(cell.states.values())} of {cell.runs} runs"]
    return " ".join(part for part in (text, marks, f"({', '.join(troubles)})" if troubles else "") if part)


def published(cell: Cell, column: Column) -> str:
    """The published value, with its standard error if the paper gives one."""
    value, error = cell.published
    if value is None:
        return ""
    return f"{value:.{column.digits}f}" + ("" if error is None else f" ± {error:.{column.digits}f}")


def banner(table: Table) -> str:
    """The warning above the results of a smoke test; empty for any other scale."""
    if table.scale != "smoke":
        return ""
    return "Smoke test: seconds of training, to see that everything runs. The numbers mean nothing."


def legend(table: Table) -> str:
    """Explain the marks that occur, and say what was chosen for which cell."""
    return "; ".join([*marked(table), *chosen(table)])


def marked(table: Table) -> list[str]:
    """Explain the marks that occur."""
    found = []
    if any(cell.better is not None for cell in table.cells.values()):
        other = table.study.baseline or "what the claims compare it with"
        found.append(f"marks: + better, - worse than {other}, beyond chance")
    if any(cell.confirms is False for cell in table.cells.values()):
        found.append(f"! differs from {table.study.source or 'what was published'}, beyond chance")
    return found


def chosen(table: Table) -> list[str]:
    """Say what was chosen for the cells, each choice once: "lr 0.1 for ResNet; lr 0.05 for all others"."""
    places: dict[str, list[str]] = {}
    for (row, column), cell in table.cells.items():
        if cell.chosen and table.study.columns[column].best is not None:
            choice = ", ".join(f"{name} {value}" for name, value in cell.chosen.items())
            places.setdefault(choice, []).append(f"{row} ({column})")
    if not places:
        return []
    usual = max(places, key=lambda choice: len(places[choice]))
    others = [f"{choice} for {', '.join(where)}" for choice, where in places.items() if choice != usual]
    rest = f"{usual} for all{' others' if others else ''}"
    return [f"chosen: {'; '.join([*others, rest])}"]


def to_csv(table: Table) -> str:
    """The table as CSV, one line per cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("mean", "error", "values", "published", "published_error", "runs", "finished")
    writer.writerow(["row", "column", *names])
    for (row, column), cell in table.cells.items():
        finished = cell.states.get("finished", 0)
        numbers = [cell.mean, cell.error, len(cell.values), *cell.published, cell.runs, finished]
        writer.writerow([row, column, *("" if number is None else number for number in numbers)])
    return buffer.getvalue()


def to_json(table: Table) -> str:
    """Everything as JSON, including the runs."""
    return json.dumps(table.to_dict(), indent=1, ensure_ascii=False) + "\n"


def to_markdown(table: Table) -> str:
    """A Markdown table with the published values in brackets."""
    head = [banner(table), ""] if banner(table) else []
    parts = [*head, markdown(lines(table)), "", *filter(None, [legend(table)])]
    return "\n".join(parts).rstrip() + "\n"


def markdown(cells: Sequence[Sequence[str]]) -> str:
    r"""Lines of cells as a Markdown table; the first has the headings.

    >>> print(markdown([["", "error"], ["a|b", "1.0"]]))
    |  | error |
    | --- | --- |
    | a\|b | 1.0 |
    """
    ruled = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in ruled)


def to_latex(table: Table) -> str:
    """A LaTeX tabular with the published values in brackets."""
    rows = [" & ".join(_escaped(cell) for cell in line) + r" \\" for line in lines(table)]
    columns = "l" + "c" * len(table.study.columns)
    body = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        rows[0],
        r"\hline",
        *rows[1:],
        r"\hline",
        r"\end{tabular}",
    ]
    note = "; ".join(filter(None, (banner(table), legend(table))))
    return "\n".join([*body, *([f"% {note}"] if note else [])]) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "json": to_json,
    "latex": to_latex,
    "markdown": to_markdown,
}
"""Functions that write a table as text, by the name of the format."""


def rows(table: Table) -> list[dict[str, str]]:
    """Rows of text by heading, with the published values in brackets; the row labels have no heading."""
    found = []
    for row in dict.fromkeys(row for row, _ in table.cells):
        line = {"": row}
        for label, column in table.study.columns.items():
            cell = table.cells[row, label]
            theirs = published(cell, column)
            line[label] = cell_text(cell, column) + (f" [{theirs}]" if theirs else "")
        found.append(line)
    return found


def lines(table: Table) -> list[list[str]]:
    """The lines of the table as text, with headings and labels."""
    return [["", *table.study.columns], *([*row.values()] for row in rows(table))]


def _escaped(text: str) -> str:
    """Escape text for LaTeX."""
    special = {
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "~": r"\textasciitilde{}",
        "^": r"\^{}",
    }
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)
