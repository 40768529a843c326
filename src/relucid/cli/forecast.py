"""What `run --dry-run` prints: what there is to do, how long it takes, what it costs and what it would detect."""

import shlex
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from textwrap import indent

import typer

from relucid.studies import Run, Store, Study
from relucid.studies.changes import outdated, said
from relucid.studies.compare import number
from relucid.studies.estimate import Estimate, estimate, makespan
from relucid.studies.executors import cores
from relucid.studies.power import MOST, Planned, pilot, power

MORE = (4, 8, 16, 32)  # seeds, for those who ask how many they need


@dataclass(frozen=True)
class Fleet:
    """The devices for the runs of a study.

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
        """How many of these runs are executed at a time."""
        return 1 if self.shared > 1 else min(self.jobs or cores(), max(1, runs))

    def seconds(self, found: Estimate) -> float | None:
        """How long all of it takes; n devices that share a run are assumed to be n times as fast."""
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


def tell_plan(
    study: Study,
    scale: str,
    planned: list[Run],
    store: Path,
    fleet: Fleet,
    *,
    seeds: int | None,
    name: str,
) -> None:
    """Print the missing runs, their time, cost and power; `name` is the identifier the user passed."""
    results = Store(store, create=False)
    if found := outdated(planned, results):
        typer.echo(f"{said(found)}: pass --keep to count them, or --rerun to repeat them", err=True)
    expected = estimate(study, scale, planned, results, fleet.tflops)
    results.close()
    typer.echo(f"{len(planned)} runs, {len(expected.missing)} still to do: {forecast(expected, fleet)}.")
    typer.echo(f"`{shlex.join(['relucid', 'logs', name, '--scale', scale])}` lists them.")
    _tell_power(study, scale, store, seeds, name)


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


def _tell_power(study: Study, scale: str, store: Path, seeds: int | None, name: str) -> None:
    """Print what the comparisons would detect, given the noise of the runs so far."""
    if scale == "smoke":
        typer.echo(
            "What can be detected is told at other scales: a smoke test is not to be compared with anything."
        )
        return
    found = pilot(study, scale, store, seeds=seeds)
    if found is None:
        command = shlex.join(["relucid", "run", name, "--scale", scale, "--seeds", "2"])
        typer.echo(f"How many seeds do you need? After a pilot, `{command}`, this command says.")
        return
    lines = list(power(found))
    if not lines:
        typer.echo("Nothing that this study compares varies from run to run: more seeds would not help.")
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
        typer.echo("Two seeds say little about the noise: it may be half as large, or several times larger.")


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
