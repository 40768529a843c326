"""list, run, show and logs: the commands that have to do with studies."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from relucid import data, models, papers
from relucid import studies as engine
from relucid.studies.estimate import estimate
from relucid.studies.executors import BACKENDS, cores
from relucid.studies.formats import FORMATS, banner, figure, legend, published
from relucid.studies.ledger import entry
from relucid.studies.study import named
from relucid.train import Machine

Name = Annotated[
    str, typer.Argument(metavar="STUDY", help="Its name (see `relucid list`) or a file, path/to/my_study.py.")
]
ScaleName = Annotated[str | None, typer.Option("--scale", help="full, small or smoke; small, by default.")]
Only = Annotated[str | None, typer.Option(metavar="ROW", help="One row of the table.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="That many seeds.")]
Directory = Annotated[
    Path | None, typer.Option("--store", help="Directory of results; $RELUCID_STORE or ./runs, by default.")
]


def list_(
    only_models: Annotated[bool, typer.Option("--models", help="Only the models, one a line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the studies, the models and the data sets, and which data sets are present."""
    if as_json:
        studies = {
            name: {"title": s.title, "scales": list(s.scales)} for name, s in papers.built_in().items()
        }
        everything = {"studies": studies, "models": models.names(), "data": data.present()}
        typer.echo(json.dumps(everything["models"] if only_models else everything, indent=1))
        return
    if only_models:
        typer.echo("\n".join(models.names()))
        return
    console = Console()
    grid = Grid("study", "what it compares", "scales", box=None)
    for study in papers.built_in().values():
        grid.add_row(study.name, escape(study.title), ", ".join(study.scales))
    console.print(grid)
    console.print("\nmodels", style="bold")
    console.print(", ".join(models.names()), soft_wrap=True)
    grid = Grid("data set", "", box=None)
    for name, there in data.present().items():
        grid.add_row(name, "present" if there else "missing")
    console.print()
    console.print(grid)
    console.print(f"Files are looked for in {data.directory()}; RELUCID_DATA names another directory.")


def run(
    study: Name,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one a core, by default.")] = None,
    backend: Annotated[str, typer.Option(help=f"Where to run: {', '.join(BACKENDS)}.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray or Dask cluster.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices for one run, by torchrun.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines for one run, by torchrun on each.")] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Try runs again that have failed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what there is to do.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write logs into the store.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only say what goes wrong.")] = False,
    store: Directory = None,
) -> None:
    """Do the runs of a study that have not been done yet, and show its table."""
    found, where = papers.find(study), store or engine.default_store()
    if dry_run:
        _tell_plan(found, scale, only, seeds, where, jobs)
        return
    if devices * nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        _start_torchrun(devices, nodes)
    logs = where / "tensorboard" if tensorboard else None
    try:
        with _bar(found, scale, only, seeds, where, retry, quiet) as report:
            engine.run(
                found,
                scale,
                only=only,
                seeds=seeds,
                store=where,
                jobs=jobs,
                backend=backend,
                address=address,
                retry=retry,
                machine=Machine(devices=devices, nodes=nodes, tensorboard=logs),
                report=report,
            )
    except KeyboardInterrupt:
        typer.echo("Stopped. What is finished is kept; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":
        table = engine.table(found, scale, only=only, seeds=seeds, store=where)
        if not quiet:
            _print(table, study)
        if any(run["state"] == "failed" for run in table.runs):
            raise typer.Exit(1)


def show(
    study: Name,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    form: Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = None,
    store: Directory = None,
) -> None:
    """Show the table of a study beside the published figures."""
    table = engine.table(papers.find(study), scale, only=only, seeds=seeds, store=store)
    if form is None:
        _print(table, study)
    else:
        typer.echo(named(form, FORMATS, "format")(table), nl=False)


def logs(
    study: Name,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    store: Directory = None,
) -> None:
    """Tell what became of every run of a study, and how those that failed did so."""
    results = engine.Store(store or engine.default_store())
    for planned in engine.plan(papers.find(study), scale, only=only, seeds=seeds):
        outcome = results.get(planned.key)
        if outcome is None:
            typer.echo(f"{planned.key[:8]}  not run   {planned.canonical}")
            continue
        took = timedelta(seconds=round(outcome.seconds))
        typer.echo(f"{planned.key[:8]}  {outcome.state:9} {outcome.started} {took}  {planned.canonical}")
        if outcome.error:
            typer.echo(indent(outcome.error.rstrip(), "    "))


def _print(table: engine.Table, name: str) -> None:
    """The table on the terminal."""
    console, study = Console(), table.study
    console.print(f"[bold]{escape(study.name)}[/bold] ({table.scale}): {escape(study.title)}")
    if banner(table):
        console.print(f"[bold]{banner(table)}[/bold]")
    grid = Grid("", *map(escape, study.columns), caption=legend(table) or None)
    for row in dict.fromkeys(row for row, _ in table.cells):
        cells = [(table.cells[row, label], column) for label, column in study.columns.items()]
        grid.add_row(escape(row), *(escape(figure(*cell)) for cell in cells))
        theirs = [published(*cell) for cell in cells]
        if any(theirs):
            grid.add_row(f"  {study.source}", *theirs, style="dim")
    console.print(grid)
    for claim in study.claims:
        if claim.where in table.judged:
            found = entry("", study, claim, table)
            console.print(f"[bold]{escape(claim.where)}:[/bold] {escape(claim.says)}")
            console.print(
                escape(f"Here {found.stands}."),
                *(f"\n  {escape(str(each))}" for each in found.judged),
                sep="",
            )
            if found.remark:
                console.print(escape(found.remark))
    if study.protocol:
        console.print(f"[bold]Protocol:[/bold] {escape(study.protocol)}")
    failed = sum(run["state"] == "failed" for run in table.runs)
    if failed:
        console.print(
            escape(f"Failed runs: {failed}. `relucid logs {name}` tells why, `--retry` tries again.")
        )


@contextmanager
def _bar(
    study: engine.Study,
    scale: str | None,
    only: str | None,
    seeds: int | None,
    store: Path,
    retry: bool,
    quiet: bool,
) -> Iterator[Callable[[engine.Run, engine.Outcome | None], None]]:
    """A progress bar over the runs that are missing, with the time left; what goes wrong is told above it."""
    results = engine.Store(store)
    planned = engine.plan(study, scale, only=only, seeds=seeds)
    again = (None, "failed") if retry else (None,)
    missing = {run.key for run in planned if results.state(run.key) in again}
    results.close()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or os.environ.get("RANK", "0") != "0"
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("runs", total=len(missing))

        def report(run: engine.Run, outcome: engine.Outcome | None) -> None:
            if run.key in missing:
                bar.advance(task)
            if outcome is not None and outcome.error is not None:
                last = outcome.error.strip().splitlines()[-1]
                bar.console.print(escape(f"{outcome.state}: {last}  {run.canonical}"), soft_wrap=True)

        yield report


def _tell_plan(
    study: engine.Study, scale: str | None, only: str | None, seeds: int | None, where: Path, jobs: int | None
) -> None:
    """What there is to do, and about how long it takes."""
    runs = engine.plan(study, scale, only=only, seeds=seeds)
    results = engine.Store(where)
    missing, seconds = estimate(study, scale or study.default_scale, runs, results)
    workers = min(jobs or cores(), max(1, len(missing)))
    time = "an unknown time" if seconds is None else f"about {timedelta(seconds=round(seconds / workers))}"
    for run in missing:
        typer.echo(f"{run.key[:8]}  {run.canonical}")
    typer.echo(f"{len(runs)} runs, {len(missing)} of them to do: {time} with {workers} at a time")


def _start_torchrun(devices: int, nodes: int) -> None:
    """Become torchrun, which starts this very command once a device."""
    if nodes > 1:
        raise ValueError(
            f"{nodes} nodes take a start by torchrun on each of them: torchrun --nnodes {nodes} "
            f"--nproc-per-node {devices} --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m relucid.cli run ..."
        )
    # Where a process dies, torchrun starts all of them again. They would share a store with the dead ones and
    # find their addresses in it, unless each attempt has one of its own.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={devices}",
        "--max-restarts=3",
    ]
    os.execv(sys.executable, [sys.executable, *torchrun, "-m", "relucid.cli", *sys.argv[1:]])
