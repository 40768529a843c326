"""What `run` prints before and during the runs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relucid.studies import Outcome, Run, Store, Study, table
from relucid.studies.changes import outdated, said
from relucid.studies.estimate import estimate
from relucid.studies.executors import cores
from relucid.studies.power import power


@contextmanager
def progress(
    planned: list[Run], store: Path, *, retry: bool, quiet: bool
) -> Iterator[Callable[[Run, Outcome | None], None]]:
    """Show a progress bar over the missing runs, with the time left; failures are printed above it."""
    results = Store(store)
    again = (None, "failed") if retry else (None,)
    missing = {run.key for run in planned if results.state(run.key) in again}
    results.close()
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


def print_plan(study: Study, scale: str | None, planned: list[Run], store: Path, jobs: int | None) -> None:
    """Print the missing runs, and about how long they will take."""
    results = Store(store, create=False)
    if found := outdated(planned, results):
        typer.echo(f"{said(found)}: pass --keep to count them, or --rerun to repeat them", err=True)
    missing, seconds = estimate(study, scale or study.default_scale, planned, results)
    workers = min(jobs or cores(), max(1, len(missing)))
    time = "time unknown" if seconds is None else f"about {timedelta(seconds=round(seconds / workers))}"
    for run in missing:
        typer.echo(f"{run.key[:8]}  {run.canonical}")
    typer.echo(f"{len(planned)} runs, {len(missing)} still to do: {time} with {workers} at a time")
    _print_power(study, scale, store)


def _print_power(study: Study, scale: str | None, store: Path) -> None:
    """Print what the claims' comparisons would detect, given the noise of the runs so far."""
    if not study.claims:
        return
    cells = table(study, scale, store=store)
    repetitions = max(cell.runs for cell in cells.cells.values())
    found = list(power(cells, repetitions))
    if not found:
        typer.echo("No pilot yet: after `--seeds 2`, this shows what the planned seeds would detect.")
    for each in found:
        typer.echo(f"with {repetitions} repetitions, {each}")
