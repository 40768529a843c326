"""claims: the ledger of the papers' claims, and how each claim stands."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.options import Directory

if TYPE_CHECKING:
    from relucid.studies import Table
    from relucid.studies.ledger import Entry

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
    """Show every claim of the papers, how it stands, and by how much."""
    from rich.console import Console
    from rich.markup import escape

    from relucid.papers import PAPERS
    from relucid.studies.study import named

    if paper is not None:
        named(paper, PAPERS, "paper")
    console = Console()
    for each in ledger(results, store):
        if each.empirical and paper in (None, each.paper):
            console.print(f"[bold]{each.paper} {escape(each.claim.where)}[/bold]  {escape(each.claim.says)}")
            console.print(f"  {escape(each.stands)}", style="dim" if each.table is None else None)
            for judged in each.judged[:SHOWN]:
                console.print(f"    {escape(str(judged))}")
            if len(each.judged) > SHOWN and each.study:
                console.print(f"    and {len(each.judged) - SHOWN} more: relucid show {each.study.name}")


def ledger(results: Path | None, store: Path | None) -> "list[Entry]":
    """Every claim, judged by a directory of recorded results, or else by a store."""
    from relucid.cli.studies import checked
    from relucid.papers import recorded, statements, studies
    from relucid.studies.ledger import entries

    if results is not None and not results.is_dir():
        raise ValueError(f"there is no directory {results}")
    where = results or (RESULTS if store is None and RESULTS.is_dir() else None)
    tables = recorded(where) if where else [*_from_store(checked(store))]
    if not tables:
        here = where or store or f"./{RESULTS} or {checked(store)}"
        typer.echo(
            f"There are no results in {here}, so no claim counts as run; --results names a directory of them, such as "
            "results in relucid's repository.",
            err=True,
        )
    return entries(studies(), statements(), tables)


def _from_store(store: Path) -> "Iterator[Table]":
    """The tables of the built-in studies in a store, at every scale that has runs."""
    from relucid.papers import built_in
    from relucid.studies import table

    if not store.is_dir():
        return
    for study in built_in().values():
        for scale in study.scales:
            found = table(study, scale, store=store)
            if found.runs:
                yield found
