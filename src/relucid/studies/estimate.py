"""What to expect of a study: how long its remaining runs take, and what its comparisons would detect."""

import heapq
import json
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from relucid.studies.compare import Comparison
from relucid.studies.expect import Claim, Expected
from relucid.studies.judge import judge
from relucid.studies.plan import Plan, Run, plan
from relucid.studies.store import Store
from relucid.studies.study import Study
from relucid.studies.table import Table, table

MOST = 1000  # repetitions to consider
Kind = Callable[[Run], str]


@dataclass(frozen=True)
class Estimate:
    """An estimate of how long runs take.

    Args:
        missing: the runs that remain.
        seconds: the time of each of them; None if it is unknown for any of them.
        basis: where the seconds come from, or why they are unknown.
    """

    missing: list[Run]
    seconds: list[float] | None
    basis: str


def estimate(
    study: Study, scale: str, runs: list[Run], store: Store, tflops: float | None = None
) -> Estimate:
    """Estimate how long each of the remaining runs will take.

    A run takes as long as those that differ from it only in what is repeated or chosen; if none of them has
    been run, as long as the study's runs on average; where none has, what the scale says; else it is unknown.

    Args:
        study: the study.
        scale: one of its scales.
        runs: its runs.
        store: the results.
        tflops: 10^12 operations per second that a device sustains in training. Runs then take as long as
            their operations (`Study.flops`) at that rate, whatever has been measured.
    """
    kind = _kind(study)
    known: dict[str, list[float]] = defaultdict(list)
    devices: set[str] = set()
    missing = []
    for run in runs:
        outcome = store.get(run.key)
        if outcome is None:
            missing.append(run)
        else:
            known[kind(run)].append(outcome.seconds)
            devices.add(str(outcome.environment.get("device", "an unknown device")))
    if tflops is not None:
        return _counted(study, missing, kind, tflops)
    usual, basis = study.scales[scale].seconds, "what the scale says for one core"
    if known:
        times = [seconds for found in known.values() for seconds in found]
        usual, basis = mean(times), f"{len(times)} runs on {', '.join(sorted(devices))}"
    if usual is None:
        advice = "; its operations are counted: say how many TFLOP/s a device sustains" if study.flops else ""
        return Estimate(missing, None, f"no run has been timed{advice}")
    return Estimate(missing, [mean(known.get(kind(run), [usual])) for run in missing], basis)


def makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last run ends, if each idle worker takes the next one.

    >>> makespan([3, 3, 3], workers=2)
    6.0
    """
    free = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def _kind(study: Study) -> Kind:
    """A function that gives runs the same text if they differ only in what is repeated or chosen."""
    repeated = set(study.choose) | set(study.repeat)
    repeated |= {name for column in study.columns.values() for name in column.repeat or {}}
    return lambda run: json.dumps({name: value for name, value in run.config.items() if name not in repeated})


def _counted(study: Study, missing: list[Run], kind: Kind, tflops: float) -> Estimate:
    if study.flops is None:
        raise ValueError(f"the study {study.name!r} does not count its operations; leave out tflops")
    found: dict[str, float | None] = {}
    for run in missing:
        if kind(run) not in found:
            found[kind(run)] = study.flops(run.config)
    operations = [found[kind(run)] for run in missing]
    counted = [each for each in operations if each is not None]
    if len(counted) < len(missing):
        return Estimate(missing, None, "the study does not count its operations at this scale")
    basis = f"{sum(counted):.3g} counted operations, if a device sustains {tflops:g} TFLOP/s"
    return Estimate(missing, [each / (tflops * 1e12) for each in counted], basis)


@dataclass(frozen=True)
class Pilot:
    """What has been run of a study: its first seeds, each with all that is chosen from.

    Args:
        table: of these seeds.
        seeds: how many there are; 0 where a study repeats no seeds.
        planned: how many seeds the study will have.
    """

    table: Table
    seeds: int
    planned: int


@dataclass(frozen=True)
class Planned:
    """A comparison and the difference that it would detect.

    Args:
        where: the claim it belongs to.
        expected: what it compares.
        found: what the pilot found.
        each: repetitions that a seed makes: 1, or the splits of a run; where there are no seeds, repetitions count.
        seeds: how many are planned.
        wanted: the difference to be found: the published effect, scaled to the level here, or the margin of a claim
            that has one; None where nothing says how large it is.
    """

    where: str
    expected: Expected
    found: Comparison
    each: float
    seeds: int
    wanted: float | None

    @property
    def error(self) -> float:
        """The standard error that the planned seeds will have."""
        return self.found.error * math.sqrt(self.found.n / self.found.sides / (self.seeds * self.each))

    @property
    def detectable(self) -> float:
        """The smallest difference that the planned seeds would find at 5% with 80% power."""
        return self.with_seeds(self.seeds)

    def with_seeds(self, seeds: int) -> float:
        """The smallest difference that so many seeds would find."""
        return self.found.detectable_with(round(seeds * self.each))

    @property
    def needed(self) -> int | None:
        """The fewest seeds that find the wanted difference, by bisection: more of them always find less.

        None where nothing is wanted, or more than `MOST` would be needed.
        """
        if not self.wanted or self.with_seeds(MOST) > self.wanted:
            return None
        wanted = self.wanted
        return bisect_left(range(MOST), True, key=lambda seeds: self.with_seeds(seeds) <= wanted)


def pilot(study: Study, scale: str | None, store: Path, *, seeds: int | None = None) -> Pilot | None:
    """The seeds of a study that have been run; None where there are fewer than two.

    Args:
        study: the study.
        scale: one of its scales.
        store: what has been run.
        seeds: how many are planned, by default the study's own.
    """
    planned, own = _seeds(plan(study, scale, seeds=seeds)), plan(study, scale)
    with Store(store, create=False) as results:
        if own and not results.missing(own):
            return Pilot(table(own, store=store), _seeds(own), planned)
        for first in range(max(planned, _seeds(own)), 1, -1):
            fewer = plan(study, scale, seeds=first)
            if fewer and not results.missing(fewer):
                return Pilot(table(fewer, store=store), first, planned)
    return None


def _seeds(runs: Plan) -> int:
    return len({run.config["seed"] for run in runs if "seed" in run.config})


def power(found: Pilot) -> Iterator[Planned]:
    """What every comparison of a study's claims would detect with the planned seeds.

    A study that claims nothing is taken to compare its rows with its baseline, or with the first of them.
    """
    study = found.table.study
    baseline = study.baseline or next(iter(study.rows))
    against_baseline = Claim(f"against {baseline}", "", tuple(study.against(baseline)))
    for claim in study.claims or (against_baseline,):
        for each in judge(found.table, claim):
            if each.found is not None and each.found.error > 0:
                values = each.found.n / each.found.sides
                per_seed, seeds = (values / found.seeds, found.planned) if found.seeds else (1, round(values))
                wanted = each.expected.margin or each.wanted
                yield Planned(claim.where, each.expected, each.found, per_seed, seeds, wanted)
