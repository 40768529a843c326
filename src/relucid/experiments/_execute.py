"""Run what is missing of a study, by joblib: local processes, or Ray and Dask by naming the backend. Nothing runs twice."""

import base64
import inspect
import io
import math
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import joblib
import numpy as np
import torch

from relucid.experiments._frame import Record, Results, packed, unpacked
from relucid.experiments._store import Lease, Store
from relucid.experiments._study import Run, Runner, Study, plain

from relucid.data import MissingDataError
from relucid.train import DivergedError, Machine, vote

ATTEMPTS = 3  # at runs that kill their process


def run(study: Study, scale: str, store: Store, *, jobs: int = 1, threads: int = 1) -> None:
    """Execute the missing runs of a study; a killed study goes on where it stopped, several processes share the work."""
    todo = {each.run.key: each.run for each in study.plan(scale) if each.run.key not in store}
    deaths = 0
    while todo := {key: each for key, each in todo.items() if key not in store}:
        leases: dict[str, Lease] = {}

        def leased() -> Iterator[Any]:
            for key, each in todo.items():
                if lease := store.lease(key):
                    leases[key] = lease
                    if key not in store:  # another process may have finished it in the meantime
                        yield joblib.delayed(execute)(study.run, each, lease.directory, threads)

        try:
            for record in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch=jobs)(
                leased()
            ):
                store.put(record)
                leases.pop(record["key"]).release(finished=record["state"] != "failed")
        except joblib.externals.loky.process_executor.TerminatedWorkerError:
            deaths += 1
            if deaths == ATTEMPTS:
                raise
        finally:
            for key, lease in leases.items():
                lease.release(finished=key in store)
        time.sleep(0 if leases else 1.0)
    votes(study, scale, store)


def execute(runner: Runner, run: Run, directory: Any, threads: int = 1) -> Record:
    """Execute a run and return its record, whatever happens except Ctrl-C or missing data."""
    torch.set_num_threads(threads)
    record: dict[str, Any] = {
        "key": run.key,
        "runner": run.runner,
        "version": run.version,
        "config": plain(run.config),
    }
    record |= {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {"torch": torch.__version__, "threads": threads},
    }
    clock, machine = time.perf_counter(), {"machine": Machine(directory=directory)}
    takes = inspect.signature(runner.function).parameters
    try:
        found = runner.function(
            **record["config"], **{name: value for name, value in machine.items() if name in takes}
        )
        record |= {"state": "finished", **_parts(found)}
    except DivergedError as error:
        record |= {"state": "diverged", "metrics": {}, "history": error.history, "error": str(error)}
    except (KeyboardInterrupt, MissingDataError):
        raise
    except BaseException:  # sys.exit() too: it ends the run, not the study
        record |= {"state": "failed", "metrics": {}, "error": traceback.format_exc()}
    return record | {"seconds": round(time.perf_counter() - clock, 3)}


def _parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics, and the history and arrays that a run returns beside them."""
    metrics = {name: value for name, value in found.items() if name not in ("history", "arrays")}
    for name, value in metrics.items():
        if not all(map(math.isfinite, value if isinstance(value, list) else [value])):
            raise ValueError(f"metric {name!r} is {value!r}; it must be a finite number or a list of them")
    arrays = {name: packed(array) for name, array in found.get("arrays", {}).items()}
    return {
        "metrics": metrics,
        **({"history": found["history"]} if found.get("history") else {}),
        **({"arrays": arrays} if arrays else {}),
    }


def votes(study: Study, scale: str, store: Store) -> None:
    """Add the votes of cells whose runs have all finished, as runs of their own: outputs are too large to travel."""
    results = Results(study, scale, {record["key"]: record for record in store})
    for (row, column), runs in results.cells.items():
        vote_of = Run("vote", {"of": sorted(each.run.key for each in runs)})
        if (
            study.columns[column].vote
            and len(results.behind(row, column)) == len(runs)
            and vote_of.key not in store
        ):
            arrays = [record["arrays"] for record in results.behind(row, column)]
            outputs = [torch.from_numpy(unpacked(each["outputs"])) for each in arrays]
            metrics = {"error": vote(outputs, torch.from_numpy(unpacked(arrays[0]["targets"])))}
            now = datetime.now(UTC).isoformat(timespec="seconds")
            store.put(
                {
                    "key": vote_of.key,
                    "runner": "vote",
                    "version": 1,
                    "config": vote_of.config,
                    "state": "finished",
                    "metrics": metrics,
                    "started": now,
                    "seconds": 0.0,
                }
            )
