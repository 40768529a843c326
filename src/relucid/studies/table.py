"""The results of a study as a table: our values beside the published ones, and which differences are significant."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from relucid.printing import Tabular, counted
from relucid.studies import formats
from relucid.studies.compare import HOLDS, LEVEL, REVERSED, Known, compare
from relucid.studies.expect import Claim, Place, Samples
from relucid.studies.judge import Judged, judge
from relucid.studies.ledger import Entry, entry, sentence
from relucid.studies.outcome import Outcome, from_record, recorded
from relucid.studies.plan import Cells, Plan, Run, cells, plan
from relucid.studies.run import default_store
from relucid.studies.store import Store
from relucid.studies.study import Column, Published, Study
from relucid.train import vote

Vote = Callable[[list[str]], float | None]  # of the keys of the runs that take part


@dataclass(frozen=True)
class Cell:
    """A value of the table, and the runs behind it.

    Args:
        samples: repetition -> value, one per run, or per split of a run.
        runs: how many are planned.
        states: how many have finished, diverged, failed.
        published: the published value and its standard error, None where the paper gives none.
        chosen: what was chosen for this cell: the learning rate, say.
        better: whether it is better than the baseline (True), worse (False), or not significantly either (None).
        confirms: whether chance explains the distance from the published value; None if that cannot be tested.
    """

    samples: Samples
    runs: int
    states: Mapping[str, int]
    published: tuple[float | None, float | None] = (None, None)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    better: bool | None = None
    confirms: bool | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The values in the order of their repetitions."""
        return tuple(self.samples.values())

    @property
    def mean(self) -> float | None:
        """The mean of the values, if there are any."""
        return fmean(self.values) if self.samples else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean, if there are two values or more."""
        return stdev(self.values) / math.sqrt(len(self.values)) if len(self.samples) > 1 else None

    @property
    def complete(self) -> bool:
        """Whether every run has been done."""
        return sum(self.states.values()) == self.runs


@dataclass(frozen=True)
class Table(Tabular):
    """The cells of a study by row and column, the records of the runs behind them, and the planned runs."""

    study: Study
    scale: str
    cells: Mapping[tuple[str, str], Cell]
    runs: list[dict[str, Any]]
    planned: Cells = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Table of {self.study.name} ({self.scale}), {counted(len(self.runs), 'run')}; print it for the cells>"

    def rows(self) -> list[dict[str, str]]:
        """The cells as text by heading, one row per row of the study."""
        return formats.rows(self)

    def notes(self) -> list[str]:
        """How far to trust the values, what the marks mean, and how the claims stand."""
        return [*filter(None, (formats.banner(self), formats.legend(self), self.verdict))]

    @cached_property
    def judged(self) -> dict[str, list[Judged]]:
        """The outcomes of all comparisons of the study's claims, by the claim's place in the paper.

        Nothing is judged at smoke scale, and no claim before every cell that it needs has a value, or all its runs.
        """
        if self.scale == "smoke":
            return {}
        begun = {place for place, cell in self.cells.items() if cell.samples or cell.complete}
        whole = begun == set(product(self.study.rows, self.study.columns))
        return {
            claim.where: judge(self, claim)
            for claim in self.study.claims
            if whole or (claim.of_cells and begun.issuperset(claim.places()))
        }

    @property
    def complete(self) -> bool:
        """Whether every run has been done."""
        return all(cell.complete for cell in self.cells.values())

    @property
    def entries(self) -> list[Entry]:
        """How the claims that can be judged stand."""
        return [
            entry("", self.study, claim, self) for claim in self.study.claims if claim.where in self.judged
        ]

    @property
    def verdict(self) -> str | None:
        """How the study's claims stand, in sentences; None if there are none or nothing was judged."""
        return " ".join(map(sentence, self.entries)) or None

    def finished(self, **setting: Any) -> list[dict[str, Any]]:
        """The records of the finished runs with this setting."""
        return [
            run
            for run in self.runs
            if run["state"] == "finished"
            and all(name in run["config"] and run["config"][name] == value for name, value in setting.items())
        ]

    def behind(self, row: str, column: str | None = None) -> list[dict[str, Any]]:
        """The records of the finished runs behind a cell, at its chosen settings; by default the first cell."""
        place = row, column or next(iter(self.study.columns))
        return self.tried(*place, **self.cells[place].chosen) if place in self.cells else []

    def tried(self, row: str, column: str, /, **setting: Any) -> list[dict[str, Any]]:
        """The records of the finished runs of a cell with this setting; by default with all that were tried."""
        planned = {run.key for run in (self.planned or cells(self.study, self.scale)).get((row, column), ())}
        return [run for run in self.finished(**setting) if run["key"] in planned]

    @property
    def votes(self) -> list[dict[str, Any]]:
        """The errors of votes, each with the keys of the runs that voted."""
        return [
            {"runs": [run["key"] for run in self.behind(row, column)], "error": cell.values[0]}
            for (row, column), cell in self.cells.items()
            if self.study.columns[column].summary == "vote" and cell.samples
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: values, judgements, and every run with its measurements and environment."""
        study = self.study
        return {
            "study": study.name,
            "title": study.title,
            "source": study.source,
            "protocol": study.protocol,
            "scale": self.scale,
            "verdict": self.verdict,
            "comparisons": [
                {
                    "claim": where,
                    "compared": each.expected.label,
                    "outcome": each.outcome,
                    "in words": str(each),
                }
                for where, found in self.judged.items()
                for each in found
            ],
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
                    "runs": cell.runs,
                    "states": dict(cell.states),
                }
                for (row, column), cell in self.cells.items()
            ],
            "votes": self.votes,
            "runs": self.runs,
        }

    @classmethod
    def from_dict(cls, study: Study, written: Mapping[str, Any]) -> "Table":
        """The table that `to_dict` wrote, recomputed from its runs."""
        study, scale = study.at(written["scale"]), written["scale"]
        rows = {each["row"] for each in written["cells"]}
        planned = {place: runs for place, runs in cells(study, scale).items() if place[0] in rows}
        outcomes = {run.key: outcome for run, outcome in map(from_record, written["runs"])}
        votes = {tuple(sorted(each["runs"])): each["error"] for each in written["votes"]}
        whole = Plan(study, scale, planned)
        return _tabulated(whole, outcomes, written["runs"], lambda keys: votes.get(tuple(sorted(keys))))


def table(
    study: Study | Plan,
    scale: str | None = None,
    *,
    only: str | None = None,
    seeds: int | None = None,
    store: str | Path | None = None,
) -> Table:
    """The results of a study, or of its plan, from the store; the arguments are those of `run`."""
    planned = plan(study, scale, only=only, seeds=seeds)
    runs = {run.key: run for of_cell in planned.cells.values() for run in of_cell}
    with Store(store or default_store(), create=False) as results:
        outcomes = {key: outcome for key in runs if (outcome := results.get(key))}
        records = [recorded(runs[key], outcome) for key, outcome in outcomes.items()]
        return _tabulated(planned, outcomes, records, lambda keys: _vote(keys, results))


def _tabulated(
    whole: Plan, outcomes: Mapping[str, Outcome], records: list[dict[str, Any]], votes: Vote
) -> Table:
    """The table of the finished runs, with its marks."""
    study, scale = whole.study, whole.scale
    filled = {}
    for (row, column), runs in whole.cells.items():
        # A smoke test is not to be compared with anything.
        published = None if scale == "smoke" else study.published.get(row, {}).get(column)
        filled[row, column] = _cell(study, study.columns[column], runs, outcomes, votes, published)
    bare = Table(study, scale, filled, records, whole.cells)
    if scale == "smoke":
        return bare
    better, confirms = _better(bare), _confirms(bare)
    marked = {
        place: replace(cell, better=better.get(place), confirms=confirms.get(place))
        for place, cell in filled.items()
    }
    return replace(bare, cells=marked)


def _cell(
    study: Study,
    column: Column,
    runs: list[Run],
    outcomes: Mapping[str, Outcome],
    votes: Vote,
    published: Published | None,
) -> Cell:
    chosen, mine = _chosen(study, runs, outcomes)
    counted = mine or runs  # all of them before one is chosen
    states = Counter[str](outcomes[run.key].state for run in counted if run.key in outcomes)
    figure = published if isinstance(published, tuple) else (published, None)
    return Cell(_samples(column, mine, outcomes, votes), len(counted), states, figure, chosen)


def _samples(column: Column, runs: list[Run], outcomes: Mapping[str, Outcome], votes: Vote) -> Samples:
    """The values of runs by repetition, or the error of their vote."""
    finished = [run for run in runs if run.key in outcomes and outcomes[run.key].state == "finished"]
    if column.summary == "vote":
        error = votes([run.key for run in finished]) if finished and len(finished) == len(runs) else None
        return {} if error is None else {"vote": error}
    repeated = _repeated(runs)
    found: dict[str, float] = {}
    for run in finished:
        config, values = run.config, _values(outcomes[run.key], column.metric, column.optional)
        labels = [f"{name} {config[name]}" for name in repeated]
        found |= {", ".join([*labels, str(place)]): value for place, value in enumerate(values)}
    return found


def _better(table: Table) -> dict[tuple[str, str], bool]:
    """The cells that are better or worse than the baseline's, as judged by the study's claims.

    What no claim compares with the baseline is judged as one more claim, with all its comparisons. Without a baseline,
    a cell is marked if it is better, or worse, than everything its claims compare it with.
    """
    baseline, found = table.study.baseline, _improvements(chain.from_iterable(table.judged.values()), table)
    if baseline is None:
        marks = defaultdict(set)
        for (a, _), improves in found.items():
            marks[a].add(improves)
        return {place: True in each for place, each in marks.items() if each in ({True}, {False})}
    left = [
        each
        for each in table.study.against(baseline)
        if {*each.places()} <= table.cells.keys() and (each.a, each.b) not in found
    ]
    found |= _improvements(judge(table, Claim("", "", tuple(left))), table)
    return {a: improves for (a, b), improves in found.items() if b.row == baseline and improves is not None}


def _improvements(judged: Iterable[Judged], table: Table) -> dict[tuple[Place, Place], bool | None]:
    """For two cells of a column, whether the first is better, beyond chance; None if there is no such difference."""
    found: dict[tuple[Place, Place], bool | None] = {}
    for each in judged:
        a, b, relation = each.expected.a, each.expected.b, each.expected.relation
        if isinstance(a, Place) and isinstance(b, Place) and a.column == b.column:
            best = table.study.columns[a.column].best
            significant = each.outcome in (HOLDS, REVERSED) and relation in ("lower", "higher")
            lower = (relation == "lower") == (each.outcome == HOLDS)
            found.setdefault((a, b), lower == (best == "lowest") if significant and best else None)
    return found


def _confirms(table: Table) -> dict[tuple[str, str], bool]:
    """Whether chance explains the distance from the published values; at the paper's own scale only."""
    if table.scale != "full":
        return {}
    found = {}
    for place, cell in table.cells.items():
        mean, error = cell.published
        if mean is not None and (against := compare(cell.values, Known(mean, error or 0.0))):
            found[place] = against.p
    return {place: p >= LEVEL / len(found) for place, p in found.items()}


def _repeated(runs: Sequence[Run]) -> list[str]:
    """The settings in which the runs of a cell differ."""
    if not runs:
        return []
    texts = [{name: json.dumps(value) for name, value in run.config.items()} for run in runs]
    return [name for name in texts[0] if len({each.get(name) for each in texts}) > 1]


def _chosen(
    study: Study, runs: list[Run], outcomes: Mapping[str, Outcome]
) -> tuple[dict[str, Any], list[Run]]:
    """The choice with the lowest mean of the study's criterion, and its runs; none until all have been tried."""
    names = [name for name in study.choose if len({json.dumps(run.config[name]) for run in runs}) > 1]
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[json.dumps([run.config[name] for name in names])].append(run)
    if len(groups) <= 1:  # nothing to choose from
        return {}, runs
    if any(run.key not in outcomes for run in runs):
        return {}, []

    def criterion(group: list[Run]) -> float:
        found = [outcomes[run.key] for run in group]
        if any(outcome.state != "finished" for outcome in found):
            return math.inf
        return fmean(value for outcome in found for value in _values(outcome, study.by))

    best = min(groups, key=lambda choice: criterion(groups[choice]))
    return {name: groups[best][0].config[name] for name in names}, groups[best]


def _values(outcome: Outcome, metric: str, optional: bool = False) -> list[float]:
    if metric not in outcome.metrics:
        if optional:
            return []
        raise ValueError(f"a run has no metric {metric!r}; it has {', '.join(outcome.metrics)}")
    value = outcome.metrics[metric]
    return value if isinstance(value, list) else [value]


def _vote(keys: list[str], store: Store) -> float | None:
    """The error of the runs' vote; the imported error if their outputs were not imported."""
    arrays = [store.arrays(key) for key in keys]
    if not all({"outputs", "targets"} <= each.keys() for each in arrays):
        return store.vote(keys)
    outputs = [torch.from_numpy(each["outputs"]) for each in arrays]
    return vote(outputs, torch.from_numpy(arrays[0]["targets"]))
