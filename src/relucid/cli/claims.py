"""claims: the ledger of the papers' claims, and the outcome of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.options import Directory

if TYPE_CHECKING:
    from relucid.experiments._ledger import Entry

RESULTS = Path("results")
SHOWN = 3  # comparisons per claim


def claims(
    paper: Annotated[
        str | None, typer.Argument(help="Only this paper: crelu, gmp, structure or ours.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Directory of recorded results; by default ./results, or else the store."),
    ] = None,
    store: Directory = None,
) -> None:
    """Show every claim of the papers, its outcome, and by how much."""
    from relucid.cli.studies import checked
    from relucid.experiments import Store, read
    from relucid.experiments._catalog import rooms, studies
    from relucid.experiments._ledger import ledger
    from relucid.experiments._page import Archive
    from relucid.experiments._study import named

    if paper is not None:
        named(paper, rooms(), "paper")
    if results is not None and not results.is_dir():
        raise ValueError(f"there is no directory {results}")
    where = results or (RESULTS if store is None and RESULTS.is_dir() else None)
    records = read(where) if where else Store(checked(store), create=False)
    if not len(records):
        typer.echo(
            f"There are no results in {where or checked(store)}, so no claim counts as run; --results names a "
            "directory of them, such as results in relucid's repository.",
            err=True,
        )
    archive = Archive(records)
    for room in rooms() if paper is None else [paper]:
        for entry in ledger(studies(room), archive):
            if entry.claim.kind == "experiment":
                _print_entry(room, entry)


def _print_entry(room: str, entry: "Entry") -> None:
    """Print a claim, its outcome, and its first comparisons."""
    from rich.console import Console

    from relucid.cli.tables import escape

    console = Console()
    console.print(f"[bold]{escape(room)} {escape(entry.claim.where)}[/bold]  {escape(entry.claim.says)}")
    if entry.finding is None:
        console.print(escape(f"  Not run: relucid run {entry.study.name}"), style="dim")
        return
    console.print(escape(f"  {entry.finding.stands}"))
    for verdict in entry.finding.verdicts[:SHOWN]:
        console.print(f"    {escape(str(verdict))}")
    if len(entry.finding.verdicts) > SHOWN:
        console.print(f"    and {len(entry.finding.verdicts) - SHOWN} more: relucid show {entry.study.name}")
