"""What `run` prints during the runs."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
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
def progress(
    runs: Sequence[Run], store: Path, *, retry: bool, quiet: bool
) -> Iterator[Callable[[Run, Record | None], None]]:
    """Show a progress bar over the missing runs, with the time left; failures are printed above it."""
    with Store(store, create=False) as records:
        known = ((run.key, records.get(run.key)) for run in runs)
        missing = {key for key, record in known if record is None or (retry and record["state"] == "failed")}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or os.environ.get("RANK", "0") != "0"
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("runs", total=len(missing))

        def report(run: Run, record: Record | None) -> None:
            if run.key in missing:
                bar.advance(task)
            if record is not None and record.get("error"):
                last = printable(record["error"].strip().splitlines()[-1])
                text = f"{record['state']}: {last}  {json.dumps(record['config'])}"
                bar.console.print(escape(text), soft_wrap=True)

        yield report
