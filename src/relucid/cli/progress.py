"""What `run` prints during the runs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relucid.studies import Outcome, Plan, Run, Store


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
    planned: Plan, store: Path, *, retry: bool, quiet: bool
) -> Iterator[Callable[[Run, Outcome | None], None]]:
    """Show a progress bar over the missing runs, with the time left; failures are printed above it."""
    with Store(store) as results:
        missing = {run.key for run in results.missing(planned, retry=retry)}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or os.environ.get("RANK", "0") != "0"
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("runs", total=len(missing))

        def report(run: Run, outcome: Outcome | None) -> None:
            if run.key in missing:
                bar.advance(task)
            if outcome is not None and outcome.error is not None:
                last = outcome.error.strip().splitlines()[-1]
                bar.console.print(escape(f"{outcome.state}: {last}  {run.canonical}"), soft_wrap=True)

        yield report
