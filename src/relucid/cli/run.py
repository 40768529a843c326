"""run: execute the runs of a study."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import (
    Address,
    Directory,
    ExecutorName,
    Jobs,
    Only,
    Quiet,
    ScaleName,
    Seeds,
    StudyName,
)
from relucid.cli.studies import find

if TYPE_CHECKING:  # each command imports what it needs: --help need not wait for torch
    from relucid.studies import Plan

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
    quiet: Quiet = False,
    store: Directory = None,
) -> None:
    """Execute the runs of a study that are still missing, and show its table."""
    if keep and rerun:
        raise ValueError("--keep and --rerun exclude each other: pass one of them")
    if not dry_run and tflops is not None:
        raise ValueError("--tflops is for --dry-run: add it, or leave it out")
    from relucid import studies as engine
    from relucid.cli.forecast import Fleet, print_forecast
    from relucid.cli.progress import progress, stopping
    from relucid.train import Machine

    found, where = find(study), store or engine.default_store()
    planned = engine.plan(found, scale, only=only, seeds=seeds)
    if dry_run:
        fleet = Fleet(jobs, devices * nodes, tflops, threads)
        print_forecast(planned, found, where, fleet, seeds=seeds, name=study)
        return
    if devices * nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        _start_torchrun(devices, nodes)
    with _explaining_changes(), stopping(), progress(planned, where, retry=retry, quiet=quiet) as report:
        engine.run(
            planned, store=where, jobs=jobs, threads=threads, executor=executor, address=address,
            gpus_per_run=gpus_per_run, retry=retry, changed="keep" if keep else "rerun" if rerun else "refuse",
            machine=Machine(devices=devices, nodes=nodes), report=report,
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
