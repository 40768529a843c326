"""The outcome of a run, and its record in a result file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from relucid.studies.plan import Run

State = Literal["finished", "diverged", "failed"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a run."""

    state: State
    metrics: Mapping[str, float | list[float]] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    error: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0


def numbers(metrics: Any) -> dict[str, float | list[float]]:
    """Convert metrics to finite numbers and lists of them.

    >>> numbers({"error": 1, "each": (1, 2)})
    {'error': 1.0, 'each': [1.0, 2.0]}
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"a run function returns a dict of metrics or a Result, not {type(metrics).__name__}")
    found = {}
    for name, value in metrics.items():
        array = np.asarray(value, dtype=float)
        if array.ndim > 1 or not np.isfinite(array).all():
            raise ValueError(f"metric {name!r} is {value!r}; it must be a finite number or a list of them")
        found[str(name)] = array.tolist()
    return found


def recorded(run: Run, outcome: Outcome) -> dict[str, Any]:
    """A run and its outcome, without arrays, as a result file records them."""
    return {
        "key": run.key,
        "runner": run.runner,
        "version": run.version,
        "config": run.config,
        "state": outcome.state,
        "metrics": dict(outcome.metrics),
        "history": dict(outcome.history),
        "error": outcome.error,
        "environment": dict(outcome.environment),
        "started": outcome.started,
        "seconds": round(outcome.seconds, 3),
    }


def from_record(record: Mapping[str, Any]) -> tuple[Run, Outcome]:
    """The run and the outcome that `recorded` wrote; refuse a record that cannot be right."""
    run = Run(record["runner"], record["config"], record["version"])
    if record["key"] != run.key:
        raise ValueError(f"run {str(record['key'])[:8]} has another key than its configuration gives")
    if record["state"] not in get_args(State):
        raise ValueError(f"run {run.key[:8]} is {record['state']!r}; it must be {', '.join(get_args(State))}")
    history: dict[str, Any] = {
        str(name): [None if value is None else float(value) for value in values]  # None: it was not finite
        for name, values in record.get("history", {}).items()
    }
    return run, Outcome(
        record["state"],
        numbers(record["metrics"]),
        history,
        error=None if record["error"] is None else str(record["error"]),
        environment=dict(record["environment"]),
        started=str(record["started"]),
        seconds=float(record["seconds"]),
    )
