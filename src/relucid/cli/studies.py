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
    from relucid.experiments import Record, Results, Run, Study

Format = Annotated[
    str | None,
    one_of(
        FORMATS, "--format", f"Format to print instead of a table for the terminal: {', '.join(FORMATS)}."
    ),
]
Recorded = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="DIRECTORY",
        help="Append the runs to the JSON Lines in this directory, a file per runner; known runs stay as they are.",
    ),
]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="Files or directories that `relucid show` wrote, or other stores."
    ),
]


def show(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    form: Format = None,
    directory: Recorded = None,
    store: Directory = None,
) -> None:
    """Show the table of a study, with the published values beside it."""
    from relucid.cli.tables import formatted, print_results
    from relucid.experiments._records import append
    from relucid.experiments._study import named

    if form is not None:
        named(form, dict.fromkeys(FORMATS), "format")
    with resulting(study, scale, only, seeds, store) as results:
        if directory is not None:
            added = append([*results.records.values(), *results.votes()], directory)
            typer.echo(f"{added} runs added to {directory}", err=True)
        if form is None:
            print_results(results, study, store)
        else:
            typer.echo(formatted(results, form).rstrip("\n"))


def logs(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    store: Directory = None,
) -> None:
    """Show the state of every run of a study, and why runs failed."""
    from relucid.experiments import Store

    chosen = find(study)
    if store is not None and not store.exists():
        raise ValueError(f"there is no store {store}: name a directory that `relucid run --store` has filled")
    with Store(checked(store), create=False) as records:
        for run in chosen.runs(scale, only=only, seeds=seeds):
            _print_log(run, records.get(run.key))


def _print_log(run: "Run", record: "Record | None") -> None:
    """Print the state of a run, how it was trained, and why it failed."""
    config = json.dumps(run.config, default=list)
    if record is None:
        typer.echo(f"{run.key[:8]}  not run   {config}")
        return
    took = timedelta(seconds=round(record["seconds"]))
    typer.echo(f"{run.key[:8]}  {record['state']:9} {record['started']} {took}  {config}")
    for trained in record.get("environment", {}).get("trained", ()):
        typer.echo(f"    trained {trained}")
    if record.get("error"):
        typer.echo(indent(record["error"].rstrip(), "    "))


def import_(sources: Sources, store: Directory = None) -> None:
    """Add runs from JSON Lines or from other stores to a store; nothing in it is overwritten."""
    from relucid.experiments import Store
    from relucid.experiments._store import default_store
    from relucid.experiments._transfer import import_records

    refused = False
    with Store(store or default_store()) as records:
        for source in sources:
            keys = import_records(source, records)
            typer.echo(f"{source}: {len(keys['added'])} runs added, {len(keys['known'])} already there")
            if keys["damaged"]:
                typer.echo(f"{source}: {len(keys['damaged'])} damaged runs were skipped", err=True)
            for key in keys["refused"]:
                typer.echo(f"{source}: refused, the store has a different outcome of run {key[:8]}", err=True)
            refused |= bool(keys["refused"])
    if refused:
        raise typer.Exit(1)


@contextmanager
def resulting(
    study: str, scale: str | None, only: str | None, seeds: int | None, store: Path | None
) -> "Iterator[Results]":
    """Read the results of a study; refuse if it has not been run, say if its code has changed since."""
    from relucid.experiments import Results, Store

    where, chosen = checked(store), find(study)
    scale = scale or chosen.default_scale
    with Store(where, create=False) as records:
        results = Results(chosen, scale, records, only=only, seeds=seeds)
        if not results.records:
            given = {"--scale": scale, "--only": only, "--store": store}
            options = [
                text for name, value in given.items() if value is not None for text in (name, str(value))
            ]
            command = shlex.join(["relucid", "run", study, *options])
            raise ValueError(f"nothing has been run yet in the store {where}: {command}")
        yield results
    for warning in (results.changed(), *results.unknown_metrics()):
        if warning:
            typer.echo(f"relucid: {warning}", err=True)


def checked(store: Path | None) -> Path:
    """The store to read; refuse a directory that the user names and that holds other things than results."""
    from relucid.experiments._store import default_store, is_store

    if store is None:
        return default_store()
    if store.is_dir() and any(store.iterdir()) and not is_store(store):
        raise ValueError(f"{store} is not a store: name a directory that `relucid run --store` has filled")
    return store


def find(study: str) -> "Study":
    """Find a study by name; an error in a user's file is reported with its line."""
    from relucid.experiments import _catalog

    with foreign(f"{study} cannot be read"):
        return _catalog.find(study)
