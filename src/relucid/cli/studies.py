"""show, logs and import: the commands for results of studies."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import FORMATS, Directory, Only, ScaleName, Seeds, StudyName, one_of

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.studies import Outcome, Run, Store, Study, Table


Format = Annotated[
    str | None,
    one_of(
        FORMATS, "--format", f"Format to print instead of a table for the terminal: {', '.join(FORMATS)}."
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="DIRECTORY",
        help="Write the table and its runs to a file in this directory, named for the study and the scale.",
    ),
]
Sources = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Files that `relucid show --format json` wrote, or other stores."),
]


def show(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    form: Format = None,
    directory: Record = None,
    store: Directory = None,
) -> None:
    """Show the table of a study, with the published values beside it."""
    from relucid import studies as engine
    from relucid.cli.tables import print_table
    from relucid.studies.study import named
    from relucid.studies.travel import export_results, record

    if directory is not None and (only is not None or seeds is not None):
        raise ValueError("--record writes a whole study; it does not go with --only or --seeds")
    write = None if form is None else named(form, engine.FORMATS, "format")
    with tabulated(study, scale, only, seeds, store) as (table, results):
        if directory is not None:
            typer.echo(f"Written to {record(table, results, directory)}", err=True)
        if write is None:
            print_table(table, study, store)
        elif form == "json":
            typer.echo(json.dumps(export_results(table, results), indent=1, ensure_ascii=False))
        else:
            typer.echo(write(table), nl=False)


def logs(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    store: Directory = None,
) -> None:
    """Show the state of every run of a study, and why runs failed."""
    from relucid import studies as engine

    found = find(study)
    if store is not None and not store.exists():
        raise ValueError(f"there is no store {store}: name a directory that `relucid run --store` has filled")
    runs = engine.plan(found, scale, only=only, seeds=seeds)
    if not runs:
        typer.echo("This study has no runs.")
    with engine.Store(checked(store), create=False) as results:
        for planned in runs:
            _print_log(planned, results.get(planned.key))


def _print_log(run: "Run", outcome: "Outcome | None") -> None:
    """Print the state of a run, how it was trained, and why it failed."""
    if outcome is None:
        typer.echo(f"{run.key[:8]}  not run   {run.canonical}")
        return
    took = timedelta(seconds=round(outcome.seconds))
    typer.echo(f"{run.key[:8]}  {outcome.state:9} {outcome.started} {took}  {run.canonical}")
    for trained in outcome.environment.get("trained", ()):
        typer.echo(f"    trained {trained}")
    if outcome.error:
        typer.echo(indent(outcome.error.rstrip(), "    "))


def import_(sources: Sources, store: Directory = None) -> None:
    """Add runs from result files or from other stores to a store; nothing in it is overwritten."""
    from relucid import studies as engine

    conflicts = 0
    with engine.Store(store or engine.default_store()) as results:
        for source in sources:
            imported = engine.import_results(source, results)
            typer.echo(f"{source}: {imported.added} runs added, {imported.there} already there")
            if imported.damaged:
                typer.echo(f"{source}: {imported.damaged} damaged runs were skipped", err=True)
            for conflict in imported.conflicts:
                typer.echo(f"{source}: refused, the store has a different outcome: {conflict}", err=True)
            conflicts += len(imported.conflicts)
    if conflicts:
        raise typer.Exit(1)


@contextmanager
def tabulated(
    study: str, scale: str | None, only: str | None, seeds: int | None, store: Path | None
) -> "Iterator[tuple[Table, Store]]":
    """Open the table of a study and its store; refuse if it has not been run, mention runs of earlier code."""
    from relucid import studies as engine
    from relucid.studies.changes import describe, outdated

    where, planned = checked(store), engine.plan(find(study), scale, only=only, seeds=seeds)
    with foreign(f"{study} fails", engine.StoreError):
        table = engine.table(planned, store=where)
    with engine.Store(where, create=False) as results:
        old = outdated(planned, results)
        if planned and not table.runs and not old:
            given = {"--scale": scale, "--only": only, "--store": store}
            options = [
                text for name, value in given.items() if value is not None for text in (name, str(value))
            ]
            command = shlex.join(["relucid", "run", study, *options])
            raise ValueError(
                f"nothing has been run yet at scale {table.scale}, in the store {where}: {command}"
            )
        try:
            yield table, results
        finally:
            if old:
                advice = f"`relucid run {study} --keep` counts them, `--rerun` repeats them"
                typer.echo(f"{describe(old)}; they are not shown: {advice}", err=True)


def checked(store: Path | None) -> Path:
    """The store to read; refuse a directory that the user names and that holds other things than results."""
    from relucid.studies import default_store
    from relucid.studies.store import is_store

    if store is None:
        return default_store()
    if store.is_dir() and any(store.iterdir()) and not is_store(store):
        raise ValueError(f"{store} is not a store: name a directory that `relucid run --store` has filled")
    return store


def find(study: str) -> "Study":
    """Find a study by name; an error in a user's file is reported with its line."""
    from relucid import papers

    with foreign(f"{study} cannot be read"):
        return papers.find(study)
