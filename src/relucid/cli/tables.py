"""Tables on a terminal of any width: columns that do not fit side by side continue below."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import markup
from rich.console import Console
from rich.table import Table as Grid

from relucid.inspect import Changes, Examination
from relucid.printing import printable
from relucid.studies import Table
from relucid.studies.formats import banner, cell_text, legend, published
from relucid.studies.ledger import Entry

Row = tuple[Sequence[str], str]  # cells, and their style


def escape(text: str) -> str:
    """Text of others as it is: rich takes none of it for markup, and a terminal none for a command."""
    return markup.escape(printable(text))


def print_grid(console: Console, head: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; rows that share no column, and columns that do not fit, follow in tables below.

    Each repeats the first column, and none is empty. Nothing is cut off: a first column that is too wide is wrapped.
    """
    head, rows = [*map(printable, head)], [([*map(printable, cells)], style) for cells, style in rows]
    for part in together(rows):
        used = [0, *(n for n in range(1, len(head)) if any(cells[n] for cells, _ in part))]
        shown = [([cells[n] for n in used], style) for cells, style in part]
        names = [head[n] for n in used]
        for columns in wrapped(console.width, names, shown):
            grid = Grid()
            for number in columns:
                grid.add_column(escape(names[number]), overflow="fold")
            for cells, style in shown:
                if any(cells[number] for number in columns[1:]):
                    grid.add_row(*(escape(cells[number]) for number in columns), style=style)
            console.print(grid)


def together(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in order, in groups that share columns.

    >>> [len(group) for group in together([(["a", "1", ""], ""), (["b", "2", ""], ""), (["c", "", "3"], "")])]
    [2, 1]
    """
    group: list[Row] = []
    columns: set[int] = set()
    for row in rows:
        filled = {number for number, text in enumerate(row[0]) if number and text}
        if group and filled and columns and not filled & columns:
            yield group
            group, columns = [], set()
        group.append(row)
        columns |= filled
    yield group


def wrapped(width: int, head: Sequence[str], rows: Sequence[Row]) -> Iterator[list[int]]:
    """The column numbers of each table; every table begins with the first column.

    >>> list(wrapped(20, ["row", "error", "time", "memory"], [(["a", "1.00", "2 s", "3 MB"], "")]))
    [[0, 1], [0, 2], [0, 3]]
    """
    widths = [
        max(len(text) for text in column) + 3 for column in zip(head, *(c for c, _ in rows), strict=True)
    ]
    left = width - widths[0] - 1
    part: list[int] = []
    for number in range(1, len(head)):
        if part and sum(widths[each] for each in part) + widths[number] > left:
            yield [0, *part]
            part = []
        part.append(number)
    yield [0, *part]


def print_table(table: Table, name: str, store: Path | None) -> None:
    """Print the table of a study, the published values below ours, and how to find out why runs failed."""
    console, study = Console(highlight=False), table.study
    console.print(f"[bold]{escape(study.name)}[/bold] ({table.scale}): {escape(study.title)}")
    if banner(table):
        console.print(f"[bold]{banner(table)}[/bold]")
    for each in table.entries:
        _print_claim(console, each)
    rows: list[Row] = []
    for row in dict.fromkeys(row for row, _ in table.cells):
        cells = [(table.cells[row, label], column) for label, column in study.columns.items()]
        rows.append(([row, *(cell_text(*cell) for cell in cells)], ""))
        theirs = [published(*cell) for cell in cells]
        if any(theirs):
            rows.append(([f"  {study.source}", *theirs], "dim"))
    print_grid(console, ["", *study.columns], rows)
    if legend(table):
        console.print(escape(legend(table)), style="italic")
    if study.protocol:
        console.print(f"[bold]Protocol:[/bold] {escape(study.protocol)}")
    failed = sum(run["state"] == "failed" for run in table.runs)
    if failed:
        options = ["--scale", table.scale, *([] if store is None else ["--store", str(store)])]
        command = shlex.join(["relucid", "logs", name, *options])
        console.print(escape(f"Failed runs: {failed}. `{command}` shows why, `run --retry` repeats them."))


def _print_claim(console: Console, found: Entry) -> None:
    """Print a claim, how it stands, and every comparison it makes."""
    console.print(f"[bold]{escape(found.claim.where)}:[/bold] {escape(found.claim.says)}")
    console.print(
        escape(f"Here: {found.stands}."), *(f"\n  {escape(str(each))}" for each in found.judged), sep=""
    )
    if found.remark:
        console.print(escape(found.remark))


def print_examination(found: Examination) -> None:
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


def print_comparison(changes: Changes, before: str, after: str) -> None:
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
        print_grid(console, used, [([row[key] for key in used], "") for row in rows])
