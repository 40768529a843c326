"""run, show, logs and import: the commands for studies."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import (
    FORMATS,
    Address,
    Directory,
    ExecutorName,
    Jobs,
    Only,
    Quiet,
    ScaleName,
    Seeds,
    StudyName,
    completing,
)

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.studies import Outcome, Plan, Run, Store, Study, Table


class Selection(TypedDict):
    """The part of a study that is run or shown."""

    scale: str | None
    only: str | None
    seeds: int | None


Threads = Annotated[
    int, typer.Option(min=1, metavar="N", help="Threads per run; changing it changes results by rounding.")
]
GPUsPerRun = Annotated[
    float,
    typer.Option(
        min=0, metavar="N", help="GPUs that Ray or Dask reserves for each run; 0.5: two runs share one."
    ),
]
Devices = Annotated[
    int, typer.Option(min=1, metavar="N", help="Devices that share one run, through torchrun.")
]
Nodes = Annotated[
    int, typer.Option(min=1, metavar="N", help="Machines that share one run; start torchrun on each.")
]
Retry = Annotated[bool, typer.Option("--retry", help="Repeat the runs that failed.")]
Keep = Annotated[bool, typer.Option("--keep", help="Count runs from before the code of your study changed.")]
Rerun = Annotated[
    bool, typer.Option("--rerun", help="Repeat runs from before the code of your study changed.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the runs left, the estimated time and, given a pilot, the number of seeds needed; run nothing.",
    ),
]
TFLOPs = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        metavar="T",
        help="With --dry-run: estimate times from counted operations, at T TFLOP/s per device.",
        show_default=False,
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs into the store.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Format to print instead of a table for the terminal: {', '.join(FORMATS)}.",
        autocompletion=completing(FORMATS),
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


def run(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    threads: Threads = 1,
    executor: ExecutorName = "local",
    address: Address = None,
    gpus_per_run: GPUsPerRun = 0,
    devices: Devices = 1,
    nodes: Nodes = 1,
    retry: Retry = False,
    keep: Keep = False,
    rerun: Rerun = False,
    dry_run: DryRun = False,
    tflops: TFLOPs = None,
    tensorboard: TensorBoard = False,
    quiet: Quiet = False,
    store: Directory = None,
) -> None:
    """Execute the runs of a study that are still missing, and show its table."""
    if keep and rerun:
        raise ValueError("--keep and --rerun exclude each other: pass one of them")
    if not dry_run and tflops is not None:
        raise ValueError("--tflops is for --dry-run: add it, or leave it out")
    if tensorboard and find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs tensorboard: pip install tensorboard")
    from relucid import studies as engine
    from relucid.cli.forecast import Fleet, print_forecast
    from relucid.cli.progress import progress, stopping
    from relucid.train import Machine

    found, where = find(study), store or engine.default_store()
    planned = engine.plan(found, scale, only=only, seeds=seeds)
    if dry_run:
        print_forecast(planned, found, where, Fleet(jobs, devices * nodes, tflops), seeds=seeds, name=study)
        return
    if devices * nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        _start_torchrun(devices, nodes)
    logs = where / "tensorboard" if tensorboard else None
    with _explaining_changes(), stopping(), progress(planned, where, retry=retry, quiet=quiet) as report:
        engine.run(
            planned, store=where, jobs=jobs, threads=threads, executor=executor, address=address,
            gpus_per_run=gpus_per_run, retry=retry, changed="keep" if keep else "rerun" if rerun else "refuse",
            machine=Machine(devices=devices, nodes=nodes, tensorboard=logs), report=report,
        )  # fmt: skip
    if os.environ.get("RANK", "0") == "0":
        _conclude(planned, study, store, quiet=quiet)


@contextmanager
def _explaining_changes() -> Iterator[None]:
    """Say what to choose if runs are from before the code of the study changed."""
    from relucid.studies import ChangedError

    try:
        yield
    except ChangedError as error:
        typer.echo(f"relucid: {error}", err=True)
        raise typer.Exit(2) from None


def _conclude(planned: "Plan", name: str, store: Path | None, *, quiet: bool) -> None:
    """Print the table; fail if runs have failed."""
    from relucid import studies as engine
    from relucid.cli.tables import print_table

    with foreign(f"{name} fails", engine.StoreError):
        table = engine.table(planned, store=store)
    if not quiet:
        print_table(table, name, store)
    if any(each["state"] == "failed" for each in table.runs):
        raise typer.Exit(1)


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
    part: Selection = {"scale": scale, "only": only, "seeds": seeds}
    with tabulated(study, part, store) as (table, results):
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
def tabulated(study: str, part: Selection, store: Path | None) -> "Iterator[tuple[Table, Store]]":
    """Open the table of a study and its store; refuse if it has not been run, mention runs of earlier code."""
    from relucid import studies as engine
    from relucid.studies.changes import describe, outdated

    where, planned = checked(store), engine.plan(find(study), **part)
    with foreign(f"{study} fails", engine.StoreError):
        table = engine.table(planned, store=where)
    with engine.Store(where, create=False) as results:
        old = outdated(planned, results)
        if planned and not table.runs and not old:
            given = {"--scale": part["scale"], "--only": part["only"], "--store": store}
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


def _start_torchrun(devices: int, nodes: int) -> None:
    """Become torchrun, which starts this same command once per device."""
    if nodes > 1:
        raise ValueError(
            f"with {nodes} nodes, start torchrun on each of them: torchrun --nnodes {nodes} "
            f"--nproc-per-node {devices} --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m relucid.cli run ..."
        )
    # If a process dies, torchrun restarts all of them. Unless each attempt has a TCP store of its own, the new
    # processes would find the dead ones' addresses in the shared one.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={devices}", "--max-restarts=3"]
    os.execv(sys.executable, [sys.executable, "-m", *torchrun, "-m", "relucid.cli", *sys.argv[1:]])
