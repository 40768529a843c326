"""What `run` says of the runs that it is about to do, and while it does them."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import indent

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relucid.studies import Outcome, Run, Store, Study
from relucid.studies.changes import outdated, said
from relucid.studies.compare import number
from relucid.studies.estimate import estimate
from relucid.studies.executors import cores
from relucid.studies.power import MOST, Planned, pilot, power

MORE = (4, 8, 16, 32)  # seeds, for those who ask how many they need


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


def tell_plan(
    study: Study,
    scale: str,
    planned: list[Run],
    store: Path,
    *,
    jobs: int | None,
    seeds: int | None,
    name: str,
) -> None:
    """Tell what there is to do, about how long it takes, and what it could tell; `name` is what the user calls it."""
    results = Store(store, create=False)
    if found := outdated(planned, results):
        typer.echo(f"{said(found)}: say --keep to count them, or --rerun", err=True)
    missing, seconds = estimate(study, scale, planned, results)
    results.close()
    workers = min(jobs or cores(), max(1, len(missing)))
    time = "an unknown time" if seconds is None else f"about {timedelta(seconds=round(seconds / workers))}"
    source = "by the runs done so far" if len(missing) < len(planned) else "by the study's own guess"
    known = "" if seconds is None or not missing else f", {source}"
    typer.echo(f"{len(planned)} runs, {len(missing)} of them to do: {time} with {workers} at a time{known}.")
    typer.echo(f"`{shlex.join(['relucid', 'logs', name, '--scale', scale])}` lists them.")
    _tell_power(study, scale, store, seeds, name)


def _tell_power(study: Study, scale: str, store: Path, seeds: int | None, name: str) -> None:
    """Tell what the comparisons would detect, by the noise of what has been run."""
    if scale == "smoke":
        typer.echo(
            "What can be detected is told at other scales: a smoke test is not to be compared with anything."
        )
        return
    found = pilot(study, scale, store, seeds=seeds)
    if found is None:
        command = shlex.join(["relucid", "run", name, "--scale", scale, "--seeds", "2"])
        typer.echo(f"How many seeds do you need? After a pilot, `{command}`, this command tells.")
        return
    lines = list(power(found))
    if not lines:
        typer.echo("Nothing that this study compares varies from run to run: more seeds would tell no more.")
        return
    done = f"the {found.seeds} seeds" if found.seeds else "all"
    typer.echo(
        f"By the noise of {done} that have been run, the smallest difference found at 5% with 80% power:"
    )
    where = ""
    for each in lines:
        if each.where != where:
            typer.echo(each.where)
        where = each.where
        typer.echo(indent(_said(each, "seeds" if found.seeds else "repetitions"), "  "))
    if found.seeds == 2:
        typer.echo("Two seeds tell little of the noise: it may be half as large, or several times.")


def _said(each: Planned, unit: str) -> str:
    """A comparison, what the planned seeds would find, and how many would find what is wanted."""
    lines = [
        each.expected.label,
        f"  {each.seeds} {unit}: {number(each.detectable)}, with a standard error of {number(each.error)}",
    ]
    if each.wanted is not None:
        needed = f"{each.needed} {unit}" if each.needed else f"more than {MOST} {unit}"
        kind = "margin of the claim" if each.expected.margin else "published effect, at the level here"
        lines.append(f"  {number(each.wanted)}, the {kind}, takes {needed}")
    more = ", ".join(f"{seeds}: {number(each.with_seeds(seeds))}" for seeds in MORE if seeds != each.seeds)
    return "\n".join([*lines, f"  other numbers of {unit}: {more}"])
