"""The results of a study as a table: ours beside the published figures, with what the differences are worth."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from relucid.studies.plan import Run, cells
from relucid.studies.run import default_store
from relucid.studies.store import Outcome, Store
from relucid.studies.study import Study
from relucid.train import vote

Figure = tuple[float, float, float]
LEVEL = 0.05  # of significance, two-sided
OUTPUTS = 2**30  # bytes of the outputs of a run that are read for a vote


@dataclass(frozen=True)
class Cell:
    """A figure and what stands behind it.

    Args:
        values: one a run, or a split of a run.
        runs: how many there are to be.
        states: how many have finished, diverged, failed.
        published: the paper's figure and its standard error, None where it gives none.
        chosen: what was chosen for this cell: the learning rate, say.
        better: than the baseline (True), worse (False), or not significantly either (None).
        confirms: whether the published figure is within what chance explains; None if that cannot be told.
    """

    values: tuple[float, ...]
    runs: int
    states: Mapping[str, int]
    published: tuple[float | None, float | None] = (None, None)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    better: bool | None = None
    confirms: bool | None = None

    @property
    def mean(self) -> float | None:
        """The mean of the values, if there are any."""
        return mean(self.values) if self.values else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean, if there are two values or more."""
        return stdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else None

    @property
    def figure(self) -> Figure | None:
        """Mean, standard error and number of values, if there are two values or more."""
        return None if self.mean is None or self.error is None else (self.mean, self.error, len(self.values))


@dataclass(frozen=True)
class Table:
    """The cells of a study by row and column, and the runs behind them."""

    study: Study
    scale: str
    cells: Mapping[tuple[str, str], Cell]
    runs: list[dict[str, Any]]
    votes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def dirty(self) -> int:
        """How many of the runs were made from a work tree with changes that no commit has."""
        return sum(str(run["environment"].get("commit")).endswith("-dirty") for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it: figures, and every run with its configuration, metrics and environment."""
        study = self.study
        return {
            "study": study.name,
            "title": study.title,
            "source": study.source,
            "protocol": study.protocol,
            "claim": study.claim,
            "verdict": self.verdict,
            "scale": self.scale,
            "cells": [
                {
                    "row": row,
                    "column": column,
                    "mean": cell.mean,
                    "error": cell.error,
                    "values": list(cell.values),
                    "published": cell.published[0],
                    "published_error": cell.published[1],
                    "chosen": dict(cell.chosen),
                    "better": cell.better,
                    "confirms": cell.confirms,
                    "runs": cell.runs,
                    "states": dict(cell.states),
                }
                for (row, column), cell in self.cells.items()
            ],
            "votes": self.votes,
            "runs": self.runs,
        }

    @classmethod
    def from_dict(cls, study: Study, recorded: Mapping[str, Any]) -> "Table":
        """The table of a study that `to_dict` has recorded."""
        cells = {
            (each["row"], each["column"]): Cell(
                values=tuple(each["values"]),
                runs=each["runs"],
                states=each["states"],
                published=(each["published"], each["published_error"]),
                chosen=each["chosen"],
                better=each["better"],
                confirms=each["confirms"],
            )
            for each in recorded["cells"]
        }
        return cls(study, recorded["scale"], cells, recorded["runs"], recorded.get("votes", []))

    @property
    def verdict(self) -> str | None:
        """Whether the study's claim holds, in a sentence; None where it makes none or figures are missing."""
        rows = {row for row, _ in self.cells}
        if self.study.verdict is None or rows != set(self.study.rows):
            return None
        if any(cell.mean is None for cell in self.cells.values()):
            return None
        return self.study.verdict(self)


def table(
    study: Study,
    scale: str | None = None,
    *,
    only: str | None = None,
    seeds: int | None = None,
    store: str | Path | None = None,
) -> Table:
    """What the store has of a study; the arguments are those of `run`."""
    planned = cells(study, scale, only=only, seeds=seeds)
    results = Store(store or default_store(), create=False)
    try:
        runs = {run.key: run for runs in planned.values() for run in runs}
        outcomes = {key: outcome for key in runs if (outcome := results.get(key))}
        filled = {
            (row, column): _cell(study, row, column, planned[row, column], outcomes, results)
            for row, column in planned
        }
    finally:
        results.close()
    compared = {
        (row, column): replace(
            cell, better=_better(study, cell, filled.get((study.baseline or "", column)), column)
        )
        for (row, column), cell in filled.items()
    }
    return Table(
        study,
        scale or study.default_scale,
        compared,
        [_record(runs[key], outcome) for key, outcome in outcomes.items()],
        [
            {
                "runs": _finished(_chosen(study, planned[place], outcomes)[1], outcomes),
                "error": cell.values[0],
            }
            for place, cell in filled.items()
            if study.columns[place[1]].summary == "vote" and cell.values
        ],
    )


def _cell(
    study: Study, row: str, column: str, runs: list[Run], outcomes: Mapping[str, Outcome], store: Store
) -> Cell:
    """The figure of a cell."""
    shown, (chosen, mine) = study.columns[column], _chosen(study, runs, outcomes)
    finished = _finished(mine, outcomes)
    if shown.summary == "vote":
        error = _vote(finished, store) if finished and len(finished) == len(mine) else None
        values = [] if error is None else [error]
    else:
        values = [value for key in finished for value in _values(outcomes[key], shown.metric)]
    figure = study.published.get(row, {}).get(column, (None, None))
    published = figure if isinstance(figure, tuple) else (figure, None)
    states = Counter[str](outcomes[run.key].state for run in mine if run.key in outcomes)
    cell = Cell(tuple(values), len(mine), states, published, chosen)
    if published[0] is None or cell.figure is None:
        return cell
    # The paper does not say of how many values its standard error is; it is taken as known.
    chance = p_value(cell.figure, (published[0], published[1] or 0.0, math.inf))
    return replace(cell, confirms=chance >= LEVEL)


def _chosen(
    study: Study, runs: list[Run], outcomes: Mapping[str, Outcome]
) -> tuple[dict[str, Any], list[Run]]:
    """The choice with the lowest mean of the study's criterion, and its runs; none before all were tried."""
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.config[name] for name in study.choose)].append(run)
    if len(groups) == 1:  # nothing to choose from
        return {}, runs
    if any(run.key not in outcomes for run in runs):
        return {}, []

    def criterion(group: list[Run]) -> float:
        found = [outcomes[run.key] for run in group]
        if any(outcome.state != "finished" for outcome in found):
            return math.inf
        return mean(value for outcome in found for value in _values(outcome, study.by))

    best = min(groups, key=lambda choice: criterion(groups[choice]))
    return dict(zip(study.choose, best, strict=True)), groups[best]


def _values(outcome: Outcome, metric: str) -> list[float]:
    if metric not in outcome.metrics:
        raise ValueError(f"a run has no metric {metric!r}; it has {', '.join(outcome.metrics)}")
    value = outcome.metrics[metric]
    return value if isinstance(value, list) else [value]


def _finished(runs: list[Run], outcomes: Mapping[str, Outcome]) -> list[str]:
    return [run.key for run in runs if run.key in outcomes and outcomes[run.key].state == "finished"]


def _vote(keys: list[str], store: Store) -> float | None:
    """The error of the runs' vote; what was brought from elsewhere, where their outputs were not."""
    arrays = [store.arrays(key, limit=OUTPUTS) for key in keys]
    if not all({"outputs", "targets"} <= each.keys() for each in arrays):
        return store.vote(keys)
    outputs = [torch.from_numpy(each["outputs"]) for each in arrays]
    return vote(outputs, torch.from_numpy(arrays[0]["targets"]))


def _better(study: Study, cell: Cell, baseline: Cell | None, column: str) -> bool | None:
    """Whether a cell is better than the baseline's, None if that may be chance."""
    best = study.columns[column].best
    if best is None or baseline is None or cell.figure is None or baseline.figure is None:
        return None
    if p_value(cell.figure, baseline.figure) >= LEVEL:
        return None
    return (cell.figure < baseline.figure) == (best == "lowest")


def p_value(one: Figure, other: Figure) -> float:
    """The probability of so large a difference of means by chance: Welch's test, two-sided.

    Each figure is a mean, its standard error and the number of values; infinite, if the error is known.

    >>> round(p_value((3.0, 1.0, 5), (0.0, 1.0, 5)), 4)
    0.0667
    """
    from scipy.special import stdtr

    (mean1, error1, count1), (mean2, error2, count2) = one, other
    variance = error1**2 + error2**2
    if variance == 0:
        return float(mean1 == mean2)
    uncertainty = error1**4 / (count1 - 1) + error2**4 / (count2 - 1)
    freedom = variance**2 / uncertainty if uncertainty else math.inf
    return float(2 * stdtr(freedom, -abs(mean1 - mean2) / math.sqrt(variance)))


def _record(run: Run, outcome: Outcome) -> dict[str, Any]:
    """A run as it goes into a file of results."""
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
