"""What `run` says of the runs that it is about to do, and while it does them."""

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
    """A progress bar over the runs that are missing, with the time left; what goes wrong is told above it."""
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


def tell_plan(study: Study, scale: str | None, planned: list[Run], store: Path, jobs: int | None) -> None:
    """Tell what there is to do, and about how long it takes."""
    results = Store(store, create=False)
    if found := outdated(planned, results):
        typer.echo(f"{said(found)}: say --keep to count them, or --rerun", err=True)
    missing, seconds = estimate(study, scale or study.default_scale, planned, results)
    workers = min(jobs or cores(), max(1, len(missing)))
    time = "an unknown time" if seconds is None else f"about {timedelta(seconds=round(seconds / workers))}"
    for run in missing:
        typer.echo(f"{run.key[:8]}  {run.canonical}")
    typer.echo(f"{len(planned)} runs, {len(missing)} of them to do: {time} with {workers} at a time")
    _tell_power(study, scale, store)


def _tell_power(study: Study, scale: str | None, store: Path) -> None:
    """Tell what the claims' comparisons would detect, by the noise of what has been run."""
    if not study.claims:
        return
    cells = table(study, scale, store=store)
    repetitions = max(cell.runs for cell in cells.cells.values())
    found = list(power(cells, repetitions))
    if not found:
        typer.echo("No pilot yet: after `--seeds 2` this tells what the planned seeds would detect.")
    for each in found:
        typer.echo(f"with {repetitions} repetitions, {each}")
