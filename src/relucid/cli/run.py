"""run: execute the runs of a study."""

import os
import shlex
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.options import (
    Address,
    Compile,
    Directory,
    ExecutorName,
    Jobs,
    Only,
    PrecisionName,
    Quiet,
    ScaleName,
    Seeds,
    StudyName,
    Workers,
    machine_of,
)
from relucid.cli.studies import find

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.experiments import Results

Threads = Annotated[
    int,
    typer.Option(
        min=1, max=1024, metavar="N", help="Threads per run; changing it changes results by rounding."
    ),
]
GPUsPerRun = Annotated[
    float,
    typer.Option(
        min=0, metavar="N", help="GPUs that Ray or Dask reserves for each run; 0.5: two runs share one."
    ),
]
Devices = Annotated[
    int, typer.Option(min=1, max=10**4, metavar="N", help="Devices that share one run, through torchrun.")
]
Nodes = Annotated[
    int,
    typer.Option(min=1, max=10**4, metavar="N", help="Machines that share one run; start torchrun on each."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Repeat the runs that failed.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print how many runs are left and how long they take; run nothing."),
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
    workers: Workers = None,
    precision: PrecisionName = None,
    compiled: Compile = False,
    retry: Retry = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    store: Directory = None,
) -> None:
    """Execute the runs of a study that are still missing, and show its table."""
    from relucid import experiments
    from relucid.cli.progress import missing, progress, stopping
    from relucid.cli.tables import print_results
    from relucid.experiments._executors import cores
    from relucid.experiments._store import default_store

    chosen, where = find(study), store or default_store()
    scale = scale or chosen.default_scale
    if dry_run:
        with experiments.Store(where, create=False) as records:
            results = experiments.Results(chosen, scale, records, only=only, seeds=seeds)
            _print_plan(results, study, jobs or max(1, cores() // threads), devices * nodes)
        return
    if devices * nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        _start_torchrun(devices, nodes)
    runs = chosen.runs(scale, only=only, seeds=seeds)
    with stopping(), progress(missing(runs, where, retry=retry), quiet) as report:
        results = experiments.run(
            chosen, scale, only=only, seeds=seeds, store=where, jobs=jobs, threads=threads, executor=executor,
            address=address, gpus_per_run=gpus_per_run, retry=retry,
            machine=machine_of(workers, precision, compiled, devices=devices, nodes=nodes), report=report,
        )  # fmt: skip
    if os.environ.get("RANK", "0") == "0":
        if not quiet:
            print_results(results, study, store)
        if changed := results.changed():
            typer.echo(f"relucid: {changed}", err=True)
        if any(record["state"] == "failed" for record in results.records.values()):
            raise typer.Exit(1)


def _print_plan(results: "Results", name: str, workers: int, devices: int) -> None:
    """Print how many runs are left, and how long they take by the seconds of those that are done."""
    from relucid.experiments._execute import time_left

    left, seconds = time_left(results)
    workers = 1 if devices > 1 else min(workers, max(1, left))
    if seconds is None:
        took = "an unknown time, which the first ones will tell"
    else:
        shared = f" on {devices} devices, if each adds as much as the first" if devices > 1 else ""
        clock = timedelta(seconds=round(seconds / workers / devices))
        took = f"about {clock} with {workers} at a time{shared}, by the runs that are done"
    typer.echo(
        f"{len({planned.run.key for planned in results.plan})} runs, {left} left: {took if left else 'nothing to do'}."
    )
    typer.echo(f"`{shlex.join(['relucid', 'logs', name, '--scale', results.scale])}` lists them.")


def _start_torchrun(devices: int, nodes: int) -> None:
    """Become torchrun, which starts this same command once per device."""
    if nodes > 1:
        raise ValueError(
            f"with {nodes} nodes, start torchrun on each of them: torchrun --nnodes {nodes} "
            f"--nproc-per-node {devices} --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m relucid run ..."
        )
    # If a process dies, torchrun restarts all of them. Unless each attempt has a TCP store of its own, the new
    # processes would find the dead ones' addresses in the shared one.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={devices}", "--max-restarts=3"]
    os.execv(sys.executable, [sys.executable, "-m", *torchrun, "-m", "relucid", *sys.argv[1:]])
