"""How long the remaining runs of a study will take, on so many machines, and what they will cost."""

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from relucid.studies.plan import Run
from relucid.studies.store import Store
from relucid.studies.study import Study

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
    usual, basis = study.scales[scale].seconds, "what the scale says of one core"
    if known:
        times = [seconds for found in known.values() for seconds in found]
        usual, basis = mean(times), f"{len(times)} runs on {', '.join(sorted(devices))}"
    if usual is None:
        advice = (
            ""
            if study.flops is None
            else "; its operations are counted: say how many TFLOP/s a device sustains"
        )
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
