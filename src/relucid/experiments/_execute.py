"""Run what is missing of a study, on any executor, and nothing twice."""

import inspect
import math
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from pickle import PicklingError
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from relucid.data import DamagedDataError, MissingDataError
from relucid.experiments._environment import environment
from relucid.experiments._executors import executing, using
from relucid.experiments._frame import Results
from relucid.experiments._records import Record, arrays_of, numbers, packed, vote_record
from relucid.experiments._store import Lease, Store, StoreError, default_store
from relucid.experiments._study import Run, Runner, Study, plain
from relucid.train import DivergedError, Machine, noting, vote
from relucid.train.platform import check

ATTEMPTS = 3  # at a run that kills its process
POLL = 1.0  # seconds between looks at runs that other processes have leased
Report = Callable[[Run, Record | None], None]


def run(
    study: Study,
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
    machine: Machine | None = None,
    report: Report | None = None,
) -> Results:
    """Execute the missing runs of a study, and return the results.

    You may kill it and start it again, or start it in several processes at once: they share the work. Failed runs
    are recorded, and the others continue. Started by torchrun, all processes work together on one run at a time.

    Args:
        study: the study.
        scale: one of its scales; `Study.default_scale` if none is named.
        only: one of its rows.
        seeds: how many seeds to run.
        store: directory of the results.
        jobs: runs at a time, see `executing`.
        threads: threads per run, independent of `jobs` because their number affects rounding; kept with each record.
        executor: "local", "ray", "dask", or an executor of `concurrent.futures`.
        address: of a Ray or Dask cluster.
        gpus_per_run: GPUs that the cluster reserves for each run.
        retry: retry failed runs.
        machine: devices and the like.
        report: called with every run and its record, None if it was done before or by another process.

    Raises:
        MissingDataError: if data are missing; the message says where they are looked for.
        DamagedDataError: if a file cannot be used; the message names it.
        StoreError: if the store is moved or removed meanwhile.
    """
    study.check(scale)
    scale, directory = scale or study.default_scale, store or default_store()
    runs = study.runs(scale, only=only, seeds=seeds)
    machine, report = machine or Machine(), report or (lambda run, record: None)
    _check_machine(study.runner, machine, here=executor == "local")
    do = partial(execute, study.runner, threads=threads, source=study.source())
    executed = 0
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # After a failure, torchrun starts this process again: without a retry, so that the other runs get their turn.
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        _run_together(do, runs, directory, machine, report, retry and first)
    else:
        work = _Work(do, runs, Store(directory), machine, report)
        try:
            if retry:
                work.store.forget_failures([each.key for each in runs])
            limits = executing(executor, jobs, address, threads, gpus_per_run)
            with using(threads), limits as (workers, size):
                work.do(workers, size)
            executed = work.executed
        finally:
            work.end()
    with Store(directory, create=False) as kept:
        results = Results(study, scale, kept, only=only, seeds=seeds)
        if os.environ.get("RANK", "0") != "0":
            return results
        if lost := [each for each in runs if each.key not in results.records]:
            raise StoreError(f"{len(lost)} runs that were done are missing in {directory}: was it removed?")
        if voted := votes(results):
            kept.put(*voted)
            results = Results(study, scale, kept, only=only, seeds=seeds)
    if executed and (unknown := results.unknown_metrics()):
        raise ValueError(unknown[0])
    return results


def _check_machine(runner: Runner, machine: Machine, here: bool) -> None:
    """Refuse what a run could not do, before any is started."""
    asked = machine.workers is not None or machine.precision is not None or machine.engine is not None
    if asked and "machine" not in inspect.signature(runner.function).parameters:
        raise ValueError(
            f"runs of {runner.name} take no workers, precision or compilation: they train without a machine"
        )
    if here:
        check(machine)


class _Work:
    """Runs to be done here, or by another process that shares the store."""

    def __init__(
        self,
        do: Callable[[Run, Machine], Record],
        runs: Sequence[Run],
        store: Store,
        machine: Machine,
        report: Report,
    ) -> None:
        self.execute, self.store, self.machine, self.report = do, store, machine, report
        self.todo = deque(runs)
        self.leased: dict[Future[Record], tuple[Run, Lease]] = {}
        self.deaths: Counter[str] = Counter()
        self.executed = 0

    def do(self, workers: Executor, size: int) -> None:
        """Submit runs, so many at a time, and store their records until every run has one."""
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
            lease = None if run.key in self.store else self.store.lease(run.key)
            if lease and run.key in self.store:  # another process has finished it in the meantime
                lease.release(finished=True)
                lease = None
            if lease is None:
                if run.key in self.store:
                    self.report(run, None)
                else:
                    self.todo.append(run)
                    elsewhere += 1
                continue
            try:
                future = workers.submit(
                    self.execute, run, replace(self.machine, directory=lease.directory, jobs=size)
                )
            except BaseException:  # Ctrl-C, where a run is done in this process
                lease.release()
                raise
            self.leased[future] = run, lease
        return True

    def _record(self, future: "Future[Record]") -> None:
        """Keep the record of a run; if its process has died, let it be run again."""
        run, lease = self.leased[future]
        try:
            record = future.result()
        except (
            MissingDataError,
            DamagedDataError,
        ):  # no run of the study can do without: stop, and record nothing
            raise
        except PicklingError as error:
            raise ValueError(
                f"the function of {run.runner} cannot be sent to another process ({error.__cause__ or error}): define "
                "it and what it uses at the top level of a module, or run one job at a time"
            ) from error
        except Exception as error:  # whatever a run itself raises is recorded, so its process has died
            self.deaths[run.key] += 1
            if self.deaths[run.key] < ATTEMPTS:
                del self.leased[future]
                lease.release()
                self.todo.append(run)
                return
            record = {**_begun(run), "state": "failed", "metrics": {}, "seconds": 0.0}
            record["error"] = f"its process died {ATTEMPTS} times: {error!r}"
        self.store.put(record)
        self.executed += 1
        del self.leased[future]
        lease.release(finished=record["state"] != "failed")
        self.report(run, record)


def _run_together(
    do: Callable[[Run, Machine], Record],
    runs: Sequence[Run],
    directory: str | Path,
    machine: Machine,
    report: Report,
    retry: bool,
) -> None:
    """Execute one run at a time in all processes of torchrun; the first process chooses and records."""
    store = Store(directory) if os.environ["RANK"] == "0" else None
    if store is not None and retry:  # a store without records is false
        store.forget_failures([run.key for run in runs])
    dist.init_process_group("cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo")
    for run in runs:
        lease = store.lease(run.key) if store is not None and run.key not in store else None
        place: list[Path | None] = [lease.directory if lease else None]
        dist.broadcast_object_list(place, src=0)
        if place[0] is None:
            continue
        record = do(run, replace(machine, directory=place[0]))
        if store is not None and lease:
            store.put(record)
            lease.release(finished=record["state"] != "failed")
            report(run, record)
        if record["state"] == "failed":  # the other processes may be waiting for this one: end them all
            raise RuntimeError(record["error"])
    dist.barrier()  # nobody looks at the store before the first process has written to it
    dist.destroy_process_group()


def execute(
    runner: Runner, run: Run, machine: Machine, threads: int = 1, source: str | None = None
) -> dict[str, Any]:
    """Execute a run and return its record, whatever happens except Ctrl-C, or data that are missing or damaged.

    >>> record = execute(Runner("double", lambda x: {"double": 2 * x}), Run("double", {"x": 4}), Machine())
    >>> record["state"], record["metrics"]
    ('finished', {'double': 8.0})
    """
    record, clock = _begun(run), time.perf_counter()
    with using(threads), noting() as trained:
        outcome = _outcome(runner.function, record["config"], machine)
        facts = environment(trained) | ({"source": source} if source else {})
    return {**record, **outcome, "environment": facts, "seconds": round(time.perf_counter() - clock, 3)}


def _begun(run: Run) -> dict[str, Any]:
    """What is known of a run before it is executed."""
    about = {"key": run.key, "runner": run.runner, "version": run.version, "config": plain(run.config)}
    return about | {"started": datetime.now(UTC).isoformat(timespec="seconds")}


def _outcome(
    function: Callable[..., Mapping[str, Any]], config: Mapping[str, Any], machine: Machine
) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    given = {**config, "machine": machine} if "machine" in parameters else config
    try:
        return {"state": "finished", **_parts(function(**given))}
    except DivergedError as error:
        history = _finite(error.history)
        return {"state": "diverged", "metrics": {}, "history": history, "error": str(error)}
    except (KeyboardInterrupt, MissingDataError, DamagedDataError):
        raise
    except BaseException:  # sys.exit() too: it ends the run, not the study
        return {"state": "failed", "metrics": {}, "error": traceback.format_exc()}


def _parts(returned: Any) -> dict[str, Any]:
    """Metrics, and the history and arrays that a run returns beside them."""
    if not isinstance(returned, Mapping):
        raise TypeError(f"a run function returns a dictionary of metrics, not {type(returned).__name__}")
    metrics = {
        str(name): numbers(str(name), value)
        for name, value in returned.items()
        if name not in ("history", "arrays")
    }
    if not metrics:
        raise ValueError("a run function returns numbers by name; this one returned none")
    arrays = {name: packed(np.asarray(array)) for name, array in returned.get("arrays", {}).items()}
    beside = {"history": _finite(returned.get("history", {})), "arrays": arrays}
    return {"metrics": metrics} | {name: value for name, value in beside.items() if value}


def _finite(history: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    """Courses of numbers as JSON has them: what is not finite is null."""
    courses = {name: np.asarray(values, dtype=float).tolist() for name, values in history.items()}
    return {
        name: [value if math.isfinite(value) else None for value in values]
        for name, values in courses.items()
    }


def votes(results: Results) -> list[Record]:
    """The votes of cells whose runs have all finished, as runs of their own: outputs are too large to travel."""
    found = []
    for (row, column), planned in results.cells.items():
        records = results.behind(row, column)
        if not results.study.columns[column].vote or len(records) < len(planned) or len(results[row, column]):
            continue
        arrays = [arrays_of(record) for record in records]
        if all({"outputs", "targets"} <= each.keys() for each in arrays):
            outputs = [torch.from_numpy(each["outputs"]) for each in arrays]
            error = vote(outputs, torch.from_numpy(arrays[0]["targets"]))
            last = max(record["started"] for record in records)
            found.append(vote_record([each.run.key for each in planned], error, last))
    return found


def time_left(results: Results) -> tuple[int, float | None]:
    """How many runs are left, and how long they take one after the other, by the seconds of those that are done."""
    left = {
        planned.run.key: planned.row for planned in results.plan if planned.run.key not in results.records
    }
    seconds: dict[str, list[float]] = {}
    for planned in results.plan:
        if record := results.records.get(planned.run.key):
            seconds.setdefault(planned.row, []).append(record["seconds"])
    if not seconds:
        return len(left), None
    usual = fmean(fmean(times) for times in seconds.values())
    return len(left), sum(fmean(seconds.get(row, [usual])) for row in left.values())
