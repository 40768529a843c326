"""What `run` prints during the runs."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relucid.experiments import Record, Run, Store
from relucid.printing import printable


@contextmanager
def stopping() -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped. Finished runs are kept; the same command continues from here.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def progress(missing: Collection[str], quiet: bool) -> Iterator[Callable[[Run, Record | None], None]]:
    """Show a progress bar over the runs with these keys, with the time left; failures are printed above it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or os.environ.get("RANK", "0") != "0"
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("runs", total=len(missing))

        def report(run: Run, record: Record | None) -> None:
            if run.key in missing:
                bar.advance(task)
            if record is not None and record.get("error"):
                last = printable(record["error"].strip().splitlines()[-1])
                text = f"{record['state']}: {last}  (run {run.key[:8]})"
                bar.console.print(escape(text), soft_wrap=True)

        yield report


def missing(runs: Sequence[Run], store: Path, *, retry: bool) -> set[str]:
    """The keys of the runs that are still to do."""
    with Store(store, create=False) as records:
        known = ((run.key, records.get(run.key)) for run in runs)
        return {key for key, record in known if record is None or (retry and record["state"] == "failed")}
