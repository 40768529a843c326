"""Why not to take an outcome at face value: rules over the records behind a claim, the same for every claim."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
import scipy

from relucid.experiments._frame import Results, flat
from relucid.experiments._judge import LEVEL, Claim, compare
from relucid.experiments._records import arithmetic
from relucid.experiments._study import merge

UNDERFITS = 10.0  # per cent of the training examples; published networks misclassify fewer
SIZES = {
    "depth": "{} layers instead of {}",
    "width": "width {} instead of {}",
    "growth": "growth rate {} instead of {}",
    "features": "{} features instead of {}",
    "data": "{} instead of {}",
}


class Choice(NamedTuple):
    """A learning rate that was chosen for a row, the rates that were tried, and whether chance explains the choice."""

    row: str
    rate: float
    tried: tuple[float, ...]
    by_chance: bool


@dataclass(frozen=True)
class Evidence:
    """What the rules look at: a claim, and the results by which it was judged."""

    claim: Claim
    results: Results

    @cached_property
    def cells(self) -> list[tuple[str, str]]:
        """The cells behind the claim."""
        named = (cell[:2] for contrast in self.claim.contrasts for cell in contrast.cells())
        return [cell for cell in dict.fromkeys(named) if cell in self.results.cells]

    @cached_property
    def rows(self) -> list[str]:
        """The rows behind the claim."""
        return list(dict.fromkeys(row for row, _ in self.cells))

    def training_errors(self, row: str) -> list[float]:
        """The mean training errors of a row's cells, where they were recorded."""
        cells = [
            [_training_error(run) for run in self.results.behind(*cell)]
            for cell in self.results.cells
            if cell[0] == row
        ]
        known = ([error for error in errors if error is not None] for errors in cells)
        return [fmean(errors) for errors in known if errors]

    @cached_property
    def choices(self) -> list[Choice]:
        """The rates that were chosen: in a study of their own, for each cell, or by every run itself."""
        return [*_by_study(self), *_by_cell(self), *_by_run(self)]


def caveats(claim: Claim, results: Results) -> dict[str, str]:
    """Every caveat that the rules find: a word or two, and a sentence."""
    evidence = Evidence(claim, results)
    return {word: text for word, rule in RULES.items() if (text := rule(evidence))}


def underfit(evidence: Evidence) -> str:
    """Networks misclassify more than a tenth of their training examples."""
    errors = [error for row in evidence.rows for error in evidence.training_errors(row)]
    if not errors or max(errors) <= UNDERFITS:
        return ""
    low, high = f"{min(errors):.0f}", f"{max(errors):.0f}"
    return f"The networks misclassify {low if low == high else f'{low} to {high}'}% of their training images."


def unknown(evidence: Evidence) -> str:
    """Networks were trained on images at a smaller scale, and their training errors were not recorded."""
    records = list(evidence.results.records.values())
    if evidence.results.scale == "full" or not any("data" in run["config"] for run in records):
        return ""
    fitting = all("fitted" in run["metrics"] for run in records)  # the outcome is how well they fit
    known = fitting or all(evidence.training_errors(row) for row in evidence.rows)
    return "" if known else "Training errors were not recorded: the networks may underfit."


def edge(evidence: Evidence) -> str:
    """A chosen rate is the smallest or the largest that was tried."""
    at_edge: dict[float, dict[str, None]] = {}
    for each in evidence.choices:
        if each.rate in (min(each.tried), max(each.tried)):
            at_edge.setdefault(each.rate, {})[each.row] = None
    found = (f"{rate:g} ({'; '.join(rows)})" for rate, rows in at_edge.items())
    return f"Rates at the edge of those tried: {', '.join(found)}." if at_edge else ""


def chance(evidence: Evidence) -> str:
    """A rate was chosen by a difference that chance explains."""
    found = dict.fromkeys(each.row for each in evidence.choices if each.by_chance)
    return f"Chance may have chosen the rates of {', '.join(found)}." if found else ""


def size(evidence: Evidence) -> str:
    """Networks or data are not those of the full scale, or of the paper."""
    results, study = evidence.results, evidence.results.study
    if results.scale == "full" or ("full" not in study.scales and not study.paper):
        return ""
    full = (
        {(each.row, each.column): each.run.config for each in study.plan("full")}
        if "full" in study.scales
        else {}
    )
    found: dict[str, None] = {}
    for cell in (cell for cell in evidence.cells if results.cells[cell] and (cell in full or not full)):
        here = results.cells[cell][0].run.config
        ours, theirs = _sizes(here), _sizes(merge(full.get(cell, here), study.paper))
        differ = [name for name in SIZES if name in ours and name in theirs and ours[name] != theirs[name]]
        found |= dict.fromkeys(SIZES[name].format(ours[name], theirs[name]) for name in differ)
    return f"Smaller than published: {', '.join(found)}." if found else ""


def shared(evidence: Evidence) -> str:
    """Repetitions are random splits of one data set."""
    if not set(evidence.rows) & set(evidence.results.study.splits):
        return ""
    return "The splits share data, so another sample would vary more."


def post_hoc(evidence: Evidence) -> str:
    """The claim was stated when some of its runs had been made."""
    date = evidence.claim.stated
    before = any(
        run["started"][:10] <= date for cell in evidence.cells for run in evidence.results.behind(*cell)
    )
    return f"Stated on {date}, with the data in view." if date and before else ""


def precision(evidence: Evidence) -> str:
    """Some runs were computed in another precision, or compiled: they are not compared with the others."""
    found = {arithmetic(run) for cell in evidence.cells for run in evidence.results.behind(*cell)}
    return (
        f"Runs of different precision are not compared: {'; '.join(sorted(found))}." if len(found) > 1 else ""
    )


RULES: Mapping[str, Callable[[Evidence], str]] = {
    "underfit": underfit,
    "training error unknown": unknown,
    "rate at edge": edge,
    "rate by chance": chance,
    "other size": size,
    "shared splits": shared,
    "post hoc": post_hoc,
    "precision": precision,
}


def _training_error(run: Mapping[str, Any]) -> float | None:
    course = run.get("history", {}).get("train_error")
    error: float | None = run["metrics"].get("train_error", course[-1] if course else None)
    return error


def _sizes(config: Mapping[str, Any]) -> dict[str, str]:
    """The depth, width and data of a configuration, as text."""
    found = {"width": 1.0, **config, **config.get(config.get("family", ""), {})}
    return {
        name: value if isinstance(value, str) else f"{value:g}"
        for name in SIZES
        if isinstance(value := found.get(name), int | float | str)
    }


def _by_study(evidence: Evidence) -> Iterator[Choice]:
    """Another study tried every rate once, or some times, on held-out examples."""
    results = evidence.results
    tuning = results.tuning
    if tuning is None:
        return
    study = tuning.study
    shown = [results.study.columns[column].config for _, column in evidence.cells]
    columns = study.columns.values()
    settings = {
        name
        for name, column in study.columns.items()
        if any(_agree(column.config, config, columns) for config in shown)
    }
    tried: dict[tuple[str, str], dict[float, tuple[float, int]]] = {}
    for row, name in (cell for cell in tuning.cells if cell[0] in evidence.rows and cell[1] in settings):
        column, values = study.columns[name], tuning[row, name]
        if column.tries and tuning.complete(row, name):
            setting, rate = column.tries
            error = float(values.mean()) if len(values) else math.inf
            tried.setdefault((row, setting), {})[rate] = (error, column.examples)
    for (row, _), errors in tried.items():
        if len(errors) > 1:
            best, second = sorted(errors, key=errors.__getitem__)[:2]
            yield Choice(row, best, tuple(errors), _noisy(errors[best], errors[second]))


def _noisy(best: tuple[float, int], second: tuple[float, int]) -> bool:
    """Whether two shares in per cent, each of so many examples, differ by less than their noise."""
    if not math.isfinite(second[0]):
        return False
    noise = math.sqrt(sum(share * (100 - share) / n for share, n in (best, second)))
    return second[0] - best[0] <= noise * float(scipy.stats.norm.ppf(1 - LEVEL / 2))


def _agree(tried: Mapping[str, Any], shown: Mapping[str, Any], every: Any) -> bool:
    """Whether a rate was tried in the setting of a column that is shown: at its batch size, say."""
    here, there, others = flat(tried), flat(shown), [flat(other.config) for other in every]
    varied = [name for name in here if any(other.get(name) != here[name] for other in others)]
    return all(there[name] == here[name] for name in varied if name in there)


def _by_cell(evidence: Evidence) -> Iterator[Choice]:
    """The cell's own runs at the rate with the lowest mean on held-out examples."""
    results = evidence.results
    for cell in evidence.cells:
        runs = [each for each in results.tried[cell] if each.choice and each.run.key in results.records]
        for name, values in results.study.choose.items():
            if results.cells[cell] and all(isinstance(value, int | float) for value in values):
                errors: dict[float, dict[str, float]] = {each.run.config[name]: {} for each in runs}
                for each in runs:
                    metrics = results.records[each.run.key]["metrics"]
                    if results.study.by in metrics:
                        errors[each.run.config[name]][each.repetition] = metrics[results.study.by]
                if len(errors) > 1:
                    yield _chosen(cell[0], results.cells[cell][0].run.config[name], errors)


def _chosen(row: str, best: float, errors: Mapping[float, Mapping[str, float]]) -> Choice:
    """Whether chance explains the choice among rates, by their errors by repetition."""
    others = [
        rate for rate, known in errors.items() if rate != best and known
    ]  # of the rest every run diverged
    if not others:
        return Choice(row, best, tuple(errors), False)
    second = min(others, key=lambda rate: fmean(errors[rate].values()))
    lowest, next_lowest = (pd.Series(dict(errors[rate]), dtype=float) for rate in (best, second))
    difference = compare((lowest - next_lowest).dropna(), 0.0)
    low, high = difference.interval(1 - LEVEL) if difference else (0.0, 0.0)
    return Choice(row, best, tuple(errors), low <= 0 <= high)


def _by_run(evidence: Evidence) -> Iterator[Choice]:
    """Every run chose for itself: the rate that most of a cell's runs have chosen."""
    for row, column in evidence.cells if evidence.results.study.tries else []:
        chosen = [run["metrics"].get("rate") for run in evidence.results.behind(row, column)]
        rates = pd.Series(chosen, dtype=object).explode().dropna()
        if len(rates):
            yield Choice(row, float(rates.mode()[0]), tuple(evidence.results.study.tries), False)
