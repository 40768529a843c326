"""What `run --dry-run` says: what there is to do, how long it takes, what it costs and what it would detect."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import typer

from relucid.studies import Run, Store, Study, table
from relucid.studies.changes import outdated, said
from relucid.studies.estimate import Estimate, estimate, makespan
from relucid.studies.executors import cores
from relucid.studies.power import power


@dataclass(frozen=True)
class Fleet:
    """The devices that the runs of a study are to have.

    Args:
        jobs: runs at a time, one per core by default.
        gpus_per_run: GPUs of each run; 0 is one core.
        shared: devices that share one run, by torchrun: runs then go one after another.
        tflops: 10^12 operations per second that a device sustains, see `relucid.studies.estimate`.
        price: of one device for an hour.
    """

    jobs: int | None = None
    gpus_per_run: float = 0
    shared: int = 1
    tflops: float | None = None
    price: float | None = None

    def workers(self, runs: int) -> int:
        """How many of these runs go at a time."""
        return 1 if self.shared > 1 else min(self.jobs or cores(), max(1, runs))

    def seconds(self, found: Estimate) -> float | None:
        """How long all of it takes; devices that share a run are taken to be that many times as fast as one."""
        if found.seconds is None:
            return None
        return makespan(found.seconds, self.workers(len(found.missing))) / self.shared

    def cost(self, found: Estimate) -> float | None:
        """The price of all devices for as long as it takes."""
        seconds = self.seconds(found)
        if self.price is None or seconds is None:
            return None
        devices = (
            self.shared if self.shared > 1 else self.workers(len(found.missing)) * (self.gpus_per_run or 1)
        )
        return self.price * devices * seconds / 3600


def tell_plan(study: Study, scale: str | None, planned: list[Run], store: Path, fleet: Fleet) -> None:
    """Tell what there is to do, about how long it takes and what it costs."""
    results = Store(store, create=False)
    if found := outdated(planned, results):
        typer.echo(f"{said(found)}: say --keep to count them, or --rerun", err=True)
    expected = estimate(study, scale or study.default_scale, planned, results, fleet.tflops)
    for run in expected.missing:
        typer.echo(f"{run.key[:8]}  {run.canonical}")
    typer.echo(f"{len(planned)} runs, {len(expected.missing)} of them to do: {forecast(expected, fleet)}")
    _tell_power(study, scale, store)


def forecast(expected: Estimate, fleet: Fleet) -> str:
    """The time and the cost of runs in words, and where they come from.

    >>> forecast(Estimate([], [60.0, 60.0], "2 runs on a toaster"), Fleet(jobs=1, price=3))
    'about 0:02:00 with 1 at a time, at a cost of 0.10; from 2 runs on a toaster'
    """
    seconds, cost = fleet.seconds(expected), fleet.cost(expected)
    if seconds is None:
        return f"an unknown time; {expected.basis}"
    workers = f"{fleet.workers(len(expected.missing))} at a time"
    shared = f" on {fleet.shared} devices, if each adds as much as the first" if fleet.shared > 1 else ""
    price = "" if cost is None else f", at a cost of {cost:,.2f}"
    return f"about {timedelta(seconds=round(seconds))} with {workers}{shared}{price}; from {expected.basis}"


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
