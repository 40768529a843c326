"""Run what is missing of a study, on any executor, and nothing twice."""

import inspect
import math
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from relucid.data import DamagedDataError, MissingDataError
from relucid.experiments._environment import environment
from relucid.experiments._executors import Submit, executing, using
from relucid.experiments._frame import Results
from relucid.experiments._records import Record, arrays_of, numbers, packed, vote_record
from relucid.experiments._store import Lease, Store, StoreError, default_store
from relucid.experiments._study import Run, Runner, Study
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
    do, executed = partial(execute, study.runner, threads=threads, source=study.source()), 0
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # After a failure, torchrun starts this process again: without a retry, so that the other runs get their turn.
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        _run_together(do, runs, directory, machine, report, retry and first)
    else:
        with Store(directory) as shared:
            if retry:
                shared.forget_failures([each.key for each in runs])
            opened = executing(executor, jobs, address, threads, gpus_per_run)
            with using(threads):
                executed = _run_missing(do, opened, runs, shared, machine, report)
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


def _run_missing(
    do: Callable[[Run, Machine], Record],
    opened: AbstractContextManager[tuple[Submit, int]],
    runs: Sequence[Run],
    store: Store,
    machine: Machine,
    report: Report,
) -> int:
    """Execute runs until each has a record, by this or by another process that shares the store; return how many."""
    todo, executed = deque(runs), 0
    begun, leases = dict["Future[Record]", Run](), dict[str, Lease]()
    deaths = Counter[str]()
    try:
        with opened as (submit, size):
            while todo or begun:
                elsewhere = []
                while todo and len(begun) < size:
                    run = todo.popleft()
                    lease = None if run.key in store else store.lease(run.key)
                    if run.key in store:  # it may have been finished in the meantime
                        if lease:
                            lease.release(finished=True)
                        report(run, None)
                    elif lease is None:
                        elsewhere.append(run)
                    else:
                        leases[run.key] = lease
                        begun[submit(do, run, replace(machine, directory=lease.directory, jobs=size))] = run
                todo += elsewhere
                if not begun:
                    time.sleep(POLL if todo else 0)
                    continue
                for future in wait(begun, POLL if elsewhere else None, FIRST_COMPLETED).done:
                    run = begun.pop(future)
                    record = _record(run, future, deaths)
                    if record is None:
                        leases.pop(run.key).release()
                        todo.append(run)
                        continue
                    store.put(record)
                    executed += 1
                    leases.pop(run.key).release(finished=record["state"] != "failed")
                    report(run, record)
    finally:  # workers have ended by now
        for lease in leases.values():
            lease.release()
    return executed


def _record(run: Run, future: "Future[Record]", deaths: Counter[str]) -> Record | None:
    """The record of a run that has ended; None if its process has died, and it is to be run again."""
    try:
        return future.result()
    except (MissingDataError, DamagedDataError):  # no run can do without: stop, and record nothing
        raise
    except PicklingError as error:
        raise ValueError(
            f"the function of {run.runner} cannot be sent to another process ({error.__cause__ or error}): define "
            "it and what it uses at the top level of a module, or run one job at a time"
        ) from error
    except Exception as error:  # whatever a run itself raises is recorded, so its process has died
        deaths[run.key] += 1
        if deaths[run.key] < ATTEMPTS:
            return None
        why = f"its process died {ATTEMPTS} times: {error!r}"
        failed = {"state": "failed", "metrics": {}, "error": why, "started": _now(), "seconds": 0.0}
        return {**run.begun(), **failed}


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
    record, clock = {**run.begun(), "started": _now()}, time.perf_counter()
    with using(threads), noting() as trained:
        outcome = _outcome(runner.function, record["config"], machine)
        facts = environment(trained) | ({"source": source} if source else {})
    return {**record, **outcome, "environment": facts, "seconds": round(time.perf_counter() - clock, 3)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    return {
        name: [value if math.isfinite(value) else None for value in np.asarray(values, dtype=float).tolist()]
        for name, values in history.items()
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
    left = {each.run.key: each.row for each in results.plan if each.run.key not in results.records}
    done = [each for each in results.plan if each.run.key in results.records]
    seconds = pd.Series(
        [results.records[each.run.key]["seconds"] for each in done], [each.row for each in done], dtype=float
    )
    usual = seconds.groupby(level=0).mean()
    return len(left), sum(usual.get(row, usual.mean()) for row in left.values()) if done else None
