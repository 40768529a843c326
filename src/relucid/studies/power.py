"""How many repetitions a study needs: what its comparisons would detect, by the noise of a pilot."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relucid.studies.compare import Comparison
from relucid.studies.expect import Claim, Expected, Higher, Lower
from relucid.studies.judge import Judged, judge
from relucid.studies.plan import Run, plan
from relucid.studies.store import Store
from relucid.studies.study import Study
from relucid.studies.table import Table, table

MOST = 1000  # repetitions to consider


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
        low, high = 0, MOST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.with_seeds(middle) <= self.wanted else (middle, high)
        return high


def pilot(study: Study, scale: str | None, store: Path, *, seeds: int | None = None) -> Pilot | None:
    """The seeds of a study that have been run; None where there are fewer than two.

    Args:
        study: the study.
        scale: one of its scales.
        store: what has been run.
        seeds: how many are planned, by default the study's own.
    """
    planned, own = _seeds(plan(study, scale, seeds=seeds)), plan(study, scale)
    results = Store(store, create=False)
    try:
        if _done(own, results):
            return Pilot(table(study, scale, store=store), _seeds(own), planned)
        for first in range(max(planned, _seeds(own)), 1, -1):
            if _done(plan(study, scale, seeds=first), results):
                return Pilot(table(study, scale, seeds=first, store=store), first, planned)
    finally:
        results.close()
    return None


def _seeds(runs: list[Run]) -> int:
    return len({run.config["seed"] for run in runs if "seed" in run.config})


def _done(runs: list[Run], store: Store) -> bool:
    return bool(runs) and all(store.state(run.key) for run in runs)


def power(found: Pilot) -> Iterator[Planned]:
    """What every comparison of a study's claims would detect with the planned seeds.

    A study that claims nothing is taken to compare its rows with its baseline, or with the first of them.
    """
    for claim in found.table.study.claims or (_against_baseline(found.table.study),):
        for each in judge(found.table, claim):
            if each.found is not None and each.found.error > 0:
                values = each.found.n / each.found.sides
                per_seed, seeds = (values / found.seeds, found.planned) if found.seeds else (1, round(values))
                yield Planned(claim.where, each.expected, each.found, per_seed, seeds, _aim(each))


def _aim(judged: Judged) -> float | None:
    return judged.expected.margin or judged.wanted


def _against_baseline(study: Study) -> Claim:
    baseline = study.baseline or next(iter(study.rows))
    others = tuple(row for row in study.rows if row != baseline)
    expectations = tuple(
        (Lower if column.best == "lowest" else Higher)(others, than=baseline, columns=name)
        for name, column in study.columns.items()
        if column.best is not None
    )
    return Claim(f"against {baseline}", "", expectations)
