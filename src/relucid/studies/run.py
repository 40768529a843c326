"""Run what is missing of a study, on any executor, and nothing twice."""

import inspect
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from relucid.data import MissingDataError
from relucid.studies.changes import Changed, settle
from relucid.studies.environment import environment
from relucid.studies.executors import executing, using
from relucid.studies.outcome import Outcome, State, numbers
from relucid.studies.plan import Plan, Run, plan
from relucid.studies.store import Lease, Store
from relucid.studies.study import Study
from relucid.train import DivergedError, Machine, noting

ATTEMPTS = 3  # at a run that kills its process
POLL = 1.0  # seconds between looks at runs that other processes have leased
Function = Callable[..., Any]
Do = Callable[[Run, Machine], Outcome]
Report = Callable[[Run, Outcome | None], None]


@dataclass(frozen=True, eq=False)
class Result:
    """What a run function may return: metrics, training history and arrays."""

    metrics: Mapping[str, float | list[float]]
    history: Mapping[str, list[float]] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


def default_store() -> Path:
    """The default directory of results: `RELUCID_STORE`, or `runs` in the working directory."""
    return Path(os.environ.get("RELUCID_STORE") or "runs").expanduser()


def run(
    study: Study | Plan,
    scale: str | None = None,
    *,
    only: str | None = None,
    seeds: int | None = None,
    store: str | Path | None = None,
    jobs: int | None = None,
    threads: int = 1,
    executor: str | Executor = "local",
    address: str | None = None,
    gpus_per_run: float = 0,
    retry: bool = False,
    changed: Changed = "refuse",
    machine: Machine | None = None,
    report: Report | None = None,
) -> None:
    """Execute the missing runs of a study; `table` returns the results.

    You may kill it and start it again, or start it in several processes at once: they share the work. Failed runs
    are recorded, and the others continue. Started by torchrun, all processes work together on one run at a time.

    Args:
        study: the study, or its plan, which fixes scale, row and seeds.
        scale: one of its scales; `Study.default_scale` if none is named.
        only: one of its rows.
        seeds: how many seeds to run.
        store: directory of the results.
        jobs: runs at a time, see `relucid.studies.executors.executing`.
        threads: threads per run, independent of `jobs` because their number affects rounding; kept with each outcome.
        executor: "local", "ray", "dask", or an executor of `concurrent.futures`.
        address: of a Ray or Dask cluster.
        gpus_per_run: GPUs that the cluster reserves for each run, see `relucid.studies.executors.executing`.
        retry: retry failed runs.
        changed: what to do with runs from before the code of the study's own function changed: "refuse" to continue
            (`ChangedError`), "keep" and count them, or "rerun" them, see `relucid.studies.changes`.
        machine: devices and the like.
        report: called with every run and its outcome, None if it was done before or by another process.

    Raises:
        MissingDataError: if data are missing; the message says where they are looked for.
    """
    planned, machine = plan(study, scale, only=only, seeds=seeds), machine or Machine()
    runs, report = planned.runs, report or (lambda run, outcome: None)
    do = partial(execute, planned.study.runner.function, threads=threads)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # After a failure, torchrun starts this process again: without a retry, so that the other runs get their turn.
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        _run_together(do, runs, store or default_store(), machine, report, changed, retry and first)
        return
    work = _Work(do, runs, Store(store or default_store()), machine, report)
    try:
        _prepare(runs, work.store, changed, retry)
        with executing(executor, jobs, address, threads, gpus_per_run) as (workers, size):
            work.do(workers, size)
    finally:
        work.end()


def _prepare(runs: list[Run], store: Store, changed: Changed, retry: bool) -> None:
    """Settle what becomes of runs from before the code changed, and of those that failed."""
    settle(runs, store, changed)
    if retry:
        store.forget_failures([run.key for run in runs])


class _Work:
    """Runs to be done here, or by another process that shares the store."""

    def __init__(self, do: Do, runs: list[Run], store: Store, machine: Machine, report: Report) -> None:
        self.execute, self.store, self.machine, self.report = do, store, machine, report
        self.todo = deque(runs)
        self.leased: dict[Future[Outcome], tuple[Run, Lease]] = {}
        self.deaths: Counter[str] = Counter()

    def do(self, workers: Executor, size: int) -> None:
        """Submit runs, so many at a time, and store their outcomes until every run has one."""
        while self.todo or self.leased:
            all_leased = self._submit(workers, size)
            if not self.leased:
                time.sleep(POLL if self.todo else 0)
                continue
            timeout = None if all_leased else POLL
            for future in wait(self.leased, timeout, FIRST_COMPLETED).done:
                self._record(future)

    def end(self) -> None:
        """Release the leases of unfinished runs."""
        for _, lease in self.leased.values():
            lease.release()
        self.store.close()

    def _submit(self, workers: Executor, size: int) -> bool:
        """Give every idle worker a run; return False if only runs leased by other processes are left."""
        elsewhere = 0
        while self.todo and len(self.leased) < size:
            if elsewhere == len(self.todo):
                return False
            run = self.todo.popleft()
            if self.store.state(run.key):
                self.report(run, None)
                continue
            lease = self.store.lease(run.key)
            if lease is None:
                self.todo.append(run)
                elsewhere += 1
            elif state := self.store.state(run.key):  # another process has finished it in the meantime
                _end(lease, state)
                self.report(run, None)
            else:
                machine = replace(self.machine, directory=lease.directory)
                try:
                    future = workers.submit(self.execute, run, machine)
                except BaseException:  # Ctrl-C, where a run is done in this process
                    lease.release()
                    raise
                self.leased[future] = run, lease
        return True

    def _record(self, future: "Future[Outcome]") -> None:
        """Keep the outcome of a run; if its process has died, let it be run again."""
        run, lease = self.leased[future]
        try:
            outcome = future.result()
        except MissingDataError:  # no run of the study can do without them: stop, and record nothing
            raise
        except Exception as error:  # whatever a run itself raises is an outcome, so its process has died
            self.deaths[run.key] += 1
            if self.deaths[run.key] < ATTEMPTS:
                del self.leased[future]
                lease.release()
                self.todo.append(run)
                return
            outcome = Outcome("failed", error=f"its process died {ATTEMPTS} times: {error!r}")
        self.store.put(run, outcome)
        del self.leased[future]
        _end(lease, outcome.state)
        self.report(run, outcome)


def _end(lease: Lease, state: State) -> None:
    """Give up the lease of a run with an outcome; the checkpoints of one that failed stay for another attempt."""
    if state == "failed":
        lease.release()
    else:
        lease.finish()


def _run_together(
    do: Do,
    runs: list[Run],
    directory: str | Path,
    machine: Machine,
    report: Report,
    changed: Changed,
    retry: bool,
) -> None:
    """Execute one run at a time in all processes of torchrun; the first process chooses and records."""
    store = Store(directory) if os.environ["RANK"] == "0" else None
    if store:
        _prepare(runs, store, changed, retry)
    dist.init_process_group("cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo")
    for run in runs:
        lease = store.lease(run.key) if store and not store.state(run.key) else None
        place: list[Path | None] = [lease.directory if lease else None]
        dist.broadcast_object_list(place, src=0)
        if place[0] is None:
            continue
        outcome = do(run, replace(machine, directory=place[0]))
        if store and lease:
            store.put(run, outcome)
            _end(lease, outcome.state)
            report(run, outcome)
        if outcome.state == "failed":  # the other processes may be waiting for this one: end them all
            raise RuntimeError(outcome.error)
    dist.destroy_process_group()


def execute(function: Function, run: Run, machine: Machine, threads: int = 1) -> Outcome:
    """Execute a run and return its outcome, whatever happens except Ctrl-C or missing data.

    >>> outcome = execute(lambda config: {"double": 2 * config["x"]}, Run("double", {"x": 4}), Machine())
    >>> outcome.state, outcome.metrics
    ('finished', {'double': 8.0})
    """
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    with using(threads), noting() as trained:
        outcome, seconds = _outcome(function, run, machine), time.perf_counter() - clock
        return replace(outcome, environment=environment(trained), started=started, seconds=seconds)


def _outcome(function: Function, run: Run, machine: Machine) -> Outcome:
    try:
        takes_machine = len(inspect.signature(function).parameters) > 1
        returned = function(run.config, machine) if takes_machine else function(run.config)
        result = returned if isinstance(returned, Result) else Result(returned)
        return Outcome("finished", numbers(result.metrics), result.history, result.arrays)
    except DivergedError as error:
        return Outcome("diverged", history=error.history, error=str(error))
    except (KeyboardInterrupt, MissingDataError):
        raise
    except BaseException:  # sys.exit() too: it ends the run, not the study
        return Outcome("failed", error=traceback.format_exc())
