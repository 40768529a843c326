"""What `run --dry-run` prints: what there is to do, how long it takes and what it would detect."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import typer

from relucid.studies import Plan, Store, Study
from relucid.studies.changes import describe, outdated
from relucid.studies.compare import number
from relucid.studies.estimate import MOST, Estimate, Planned, estimate, makespan, pilot, power
from relucid.studies.executors import cores

MORE = (4, 8, 16, 32)  # seeds, for those who ask how many they need


@dataclass(frozen=True)
class Fleet:
    """The devices for the runs of a study.

    Args:
        jobs: runs at a time, as many as the cores allow by default.
        shared: devices that share one run, by torchrun: runs then go one after another.
        tflops: 10^12 operations per second that a device sustains, see `relucid.studies.estimate`.
        threads: of a run.
    """

    jobs: int | None = None
    shared: int = 1
    tflops: float | None = None
    threads: int = 1

    def workers(self, runs: int) -> int:
        """How many of these runs are executed at a time."""
        at_a_time = self.jobs or max(1, cores() // self.threads)
        return 1 if self.shared > 1 else min(at_a_time, max(1, runs))

    def seconds(self, found: Estimate) -> float | None:
        """How long all of it takes; n devices that share a run are assumed to be n times as fast."""
        if found.seconds is None:
            return None
        return makespan(found.seconds, self.workers(len(found.missing))) / self.shared


def print_forecast(
    planned: Plan, study: Study, store: Path, fleet: Fleet, *, seeds: int | None, name: str
) -> None:
    """Print the missing runs, their time and power; `name` is the identifier the user passed."""
    with Store(store, create=False) as results:
        found = outdated(planned, results)
        expected = estimate(study, planned.scale, planned.runs, results, fleet.tflops)
    if found:
        typer.echo(f"{describe(found)}: pass --keep to count them, or --rerun to repeat them", err=True)
    typer.echo(f"{len(planned)} runs, {len(expected.missing)} still to do: {forecast(expected, fleet)}.")
    typer.echo(f"`{shlex.join(['relucid', 'logs', name, '--scale', planned.scale])}` lists them.")
    for line in _power(study, planned.scale, store, seeds, name):
        typer.echo(line)


def forecast(expected: Estimate, fleet: Fleet) -> str:
    """The time of runs in words, and where it comes from.

    >>> forecast(Estimate([], [60.0, 60.0], "2 runs on a toaster"), Fleet(jobs=1))
    'about 0:02:00 with 1 at a time; from 2 runs on a toaster'
    """
    seconds = fleet.seconds(expected)
    if seconds is None:
        return f"an unknown time; {expected.basis}"
    workers = f"{fleet.workers(len(expected.missing))} at a time"
    shared = f" on {fleet.shared} devices, if each adds as much as the first" if fleet.shared > 1 else ""
    return f"about {timedelta(seconds=round(seconds))} with {workers}{shared}; from {expected.basis}"


def _power(study: Study, scale: str, store: Path, seeds: int | None, name: str) -> Iterator[str]:
    """What the comparisons would detect, given the noise of the runs so far, line by line."""
    if scale == "smoke":
        yield "A smoke test is not compared with anything; other scales have a power."
        return
    found = pilot(study, scale, store, seeds=seeds)
    if found is None:
        command = shlex.join(["relucid", "run", name, "--scale", scale, "--seeds", "2"])
        yield f"How many seeds do you need? After a pilot, `{command}`, this command says."
        return
    comparisons = list(power(found))
    if not comparisons:
        yield "Nothing that this study compares varies from run to run: more seeds would not help."
        return
    done, unit = (f"the {found.seeds} seeds", "seeds") if found.seeds else ("all", "repetitions")
    yield f"By the noise of {done} that have been run, the smallest difference found at 5% with 80% power:"
    where = ""
    for each in comparisons:
        if each.where != where:
            yield (where := each.where)
        yield from (f"  {line}" for line in _described(each, unit))
    if found.seeds == 2:
        yield "Two seeds say little about the noise: it may be half as large, or several times larger."


def _described(each: Planned, unit: str) -> Iterator[str]:
    """A comparison, what the planned seeds would find, and how many would find what is wanted."""
    yield each.expected.label
    yield f"  {each.seeds} {unit}: {number(each.detectable)}, with a standard error of {number(each.error)}"
    if each.wanted is not None:
        needed = f"{each.needed} {unit}" if each.needed else f"more than {MOST} {unit}"
        kind = "margin of the claim" if each.expected.margin else "published effect, at the level here"
        yield f"  {number(each.wanted)}, the {kind}, takes {needed}"
    more = ", ".join(f"{seeds}: {number(each.with_seeds(seeds))}" for seeds in MORE if seeds != each.seeds)
    yield f"  other numbers of {unit}: {more}"
