"""run, show, logs and import: the commands for studies."""

import json
import os
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.names import names
from relucid.cli.options import Directory, Only, ScaleName, Seeds, StudyName, completing

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.studies import Study


def run(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**4, metavar="N", help="Runs at a time; by default one per core.", show_default=False
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Threads per run; changing it changes results by rounding."),
    ] = 1,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Where to run: {', '.join(names()['backends'])}.",
            autocompletion=completing(names()["backends"]),
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of the Ray or Dask cluster.", show_default=False),
    ] = None,
    gpus_per_run: Annotated[
        float,
        typer.Option(
            min=0, metavar="N", help="GPUs that Ray or Dask reserves for each run; 0.5: two runs share one."
        ),
    ] = 0,
    devices: Annotated[
        int, typer.Option(min=1, metavar="N", help="Devices that share one run, through torchrun.")
    ] = 1,
    nodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Machines that share one run; start torchrun on each.")
    ] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat the runs that failed.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Count runs from before the code of your study changed.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat runs from before the code of your study changed.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only print what there is to do, how long it takes, and by a pilot how many seeds you need.",
        ),
    ] = False,
    tflops: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            metavar="T",
            help="With --dry-run: times from counted operations, at 10^12 T of them per second and device.",
            show_default=False,
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="P", help="With --dry-run: the price of one device, for costs.", show_default=False
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs into the store.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only report problems.")] = False,
    store: Directory = None,
) -> None:
    """Execute the runs of a study that are still missing, and show its table."""
    if keep and rerun:
        raise ValueError("--keep and --rerun exclude each other: pass one of them")
    if not dry_run and not (tflops is None and price_per_hour is None):
        raise ValueError("--tflops and --price-per-hour are for --dry-run: add it, or leave them out")
    if tensorboard and find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs tensorboard: pip install tensorboard")
    from relucid import studies as engine
    from relucid.cli.forecast import Fleet, tell_plan
    from relucid.cli.progress import progress
    from relucid.cli.tables import print_table
    from relucid.train import Machine

    found, where = find(study), store or engine.default_store()
    planned = engine.plan(found, scale, only=only, seeds=seeds)
    if dry_run:
        fleet = Fleet(jobs, gpus_per_run, devices * nodes, tflops, price_per_hour)
        chosen = scale or found.default_scale
        tell_plan(found, chosen, planned, where, fleet, seeds=seeds, name=study)
        return
    if devices * nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        _start_torchrun(devices, nodes)
    logs = where / "tensorboard" if tensorboard else None
    try:
        with progress(planned, where, retry=retry, quiet=quiet) as report:
            engine.run(
                found,
                scale,
                only=only,
                seeds=seeds,
                store=where,
                jobs=jobs,
                threads=threads,
                backend=backend,
                address=address,
                gpus_per_run=gpus_per_run,
                retry=retry,
                changed="keep" if keep else "rerun" if rerun else "refuse",
                machine=Machine(devices=devices, nodes=nodes, tensorboard=logs),
                report=report,
            )
    except engine.ChangedError as error:
        typer.echo(f"relucid: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("Stopped. Finished runs are kept; the same command continues from here.", err=True)
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":
        with foreign(f"{study} fails", engine.StoreError):
            table = engine.table(found, scale, only=only, seeds=seeds, store=where)
        if not quiet:
            print_table(table, study, store)
        if any(each["state"] == "failed" for each in table.runs):
            raise typer.Exit(1)


def show(
    study: StudyName,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"Format to print instead of a table for the terminal: {', '.join(names()['formats'])}.",
            autocompletion=completing(names()["formats"]),
        ),
    ] = None,
    store: Directory = None,
) -> None:
    """Show the table of a study, with the published values beside it."""
    from relucid import studies as engine
    from relucid.cli.tables import print_table
    from relucid.studies.changes import outdated, said
    from relucid.studies.study import named
    from relucid.studies.travel import exported

    write = None if form is None else named(form, engine.FORMATS, "format")
    found, where = find(study), store or engine.default_store()
    with foreign(f"{study} fails", engine.StoreError):
        table = engine.table(found, scale, only=only, seeds=seeds, store=where)
    results = engine.Store(where, create=False)
    if write is None:
        print_table(table, study, store)
    elif form == "json":
        typer.echo(json.dumps(exported(table, results), indent=1, ensure_ascii=False))
    else:
        typer.echo(write(table), nl=False)
    old = outdated(engine.plan(found, scale, only=only, seeds=seeds), results)
    results.close()
    if old:
        advice = f"`relucid run {study} --keep` counts them, `--rerun` repeats them"
        typer.echo(f"{said(old)}; they are not shown: {advice}", err=True)


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
    results = engine.Store(store or engine.default_store(), create=False)
    runs = engine.plan(found, scale, only=only, seeds=seeds)
    if not runs:
        typer.echo("This study has no runs.")
    for planned in runs:
        outcome = results.get(planned.key)
        if outcome is None:
            typer.echo(f"{planned.key[:8]}  not run   {planned.canonical}")
            continue
        took = timedelta(seconds=round(outcome.seconds))
        typer.echo(f"{planned.key[:8]}  {outcome.state:9} {outcome.started} {took}  {planned.canonical}")
        for trained in outcome.environment.get("trained", ()):
            typer.echo(f"    trained {trained}")
        if outcome.error:
            typer.echo(indent(outcome.error.rstrip(), "    "))


def import_(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Files that `relucid show --format json` wrote, or other stores."
        ),
    ],
    store: Directory = None,
) -> None:
    """Add runs from result files or from other stores to a store; nothing in it is overwritten."""
    from relucid import studies as engine
    from relucid.studies.travel import bring

    results, conflicts = engine.Store(store or engine.default_store()), 0
    for source in sources:
        imported = bring(source, results)
        typer.echo(f"{source}: {imported.added} runs added, {imported.there} already there")
        if imported.damaged:
            typer.echo(f"{source}: {imported.damaged} damaged runs were skipped", err=True)
        for conflict in imported.conflicts:
            typer.echo(f"{source}: refused, the store has a different outcome: {conflict}", err=True)
        conflicts += len(imported.conflicts)
    results.close()
    if conflicts:
        raise typer.Exit(1)


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
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={devices}",
        "--max-restarts=3",
    ]
    os.execv(sys.executable, [sys.executable, *torchrun, "-m", "relucid.cli", *sys.argv[1:]])
