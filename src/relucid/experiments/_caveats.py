"""Why not to take an outcome at face value: rules over the records behind a claim, the same for every claim."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
import scipy

from relucid.experiments._frame import Results, flat
from relucid.experiments._judge import LEVEL, Claim, compare
from relucid.experiments._records import Record, arithmetic
from relucid.experiments._study import Config, merge

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


def caveats(claim: Claim, results: Results) -> dict[str, str]:
    """Every caveat that the rules find: a word or two, and a sentence."""
    cells = [cell for cell in dict.fromkeys(cell[:2] for cell in claim.cells()) if cell in results.cells]
    runs = [run for cell in cells for run in results.behind(*cell)]
    errors = {row: _training_errors(results, row) for row, _ in cells}
    choices = [*_by_study(results, cells), *_by_cell(results, cells), *_by_run(results, cells)]
    sentences = {
        "underfit": underfit(errors),
        "training error unknown": unknown(errors, results),
        "rate at edge": edge(choices),
        "rate by chance": chance(choices),
        "other size": size(cells, results),
        "shared splits": shared(errors.keys() & set(results.study.splits)),
        "post hoc": post_hoc(claim.stated, runs),
        "precision": precision(runs),
    }
    return {word: sentence for word, sentence in sentences.items() if sentence}


def underfit(errors: Mapping[str, Sequence[float]]) -> str:
    """Networks misclassify more than a tenth of their training examples."""
    known = [error for of_row in errors.values() for error in of_row]
    if not known or max(known) <= UNDERFITS:
        return ""
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return f"The networks misclassify {low if low == high else f'{low} to {high}'}% of their training images."


def unknown(errors: Mapping[str, Sequence[float]], results: Results) -> str:
    """Networks were trained on images at a smaller scale, and their training errors were not recorded."""
    records = list(results.records.values())
    if results.scale == "full" or not any("data" in run["config"] for run in records):
        return ""
    fitting = all("fitted" in run["metrics"] for run in records)  # the outcome is how well they fit
    known = fitting or all(errors.values())
    return "" if known else "Training errors were not recorded: the networks may underfit."


def edge(choices: Sequence[Choice]) -> str:
    """A chosen rate is the smallest or the largest that was tried."""
    at_edge: dict[float, dict[str, None]] = {}
    for row, rate, tried, _ in choices:
        if rate in (min(tried), max(tried)):
            at_edge.setdefault(rate, {})[row] = None
    found = (f"{rate:g} ({'; '.join(rows)})" for rate, rows in at_edge.items())
    return f"Rates at the edge of those tried: {', '.join(found)}." if at_edge else ""


def chance(choices: Sequence[Choice]) -> str:
    """A rate was chosen by a difference that chance explains."""
    found = dict.fromkeys(choice.row for choice in choices if choice.by_chance)
    return f"Chance may have chosen the rates of {', '.join(found)}." if found else ""


def size(cells: Sequence[tuple[str, str]], results: Results) -> str:
    """Networks or data are not those of the full scale, or of the paper."""
    study = results.study
    if results.scale == "full" or ("full" not in study.scales and not study.paper):
        return ""
    planned = study.plan("full") if "full" in study.scales else ()
    full = {(each.row, each.column): each.run.config for each in planned}
    found: dict[str, None] = {}
    for cell in (cell for cell in cells if results.cells[cell] and (cell in full or not full)):
        here = results.cells[cell][0].run.config
        ours, theirs = _sizes(here), _sizes(merge(full.get(cell, here), study.paper))
        differ = [name for name in SIZES if name in ours and name in theirs and ours[name] != theirs[name]]
        found |= dict.fromkeys(SIZES[name].format(ours[name], theirs[name]) for name in differ)
    return f"Smaller than published: {', '.join(found)}." if found else ""


def shared(splits: Collection[str]) -> str:
    """Repetitions are random splits of one data set."""
    return "The splits share data, so another sample would vary more." if splits else ""


def post_hoc(date: str, runs: Sequence[Record]) -> str:
    """The claim was stated when some of its runs had been made."""
    before = any(run["started"][:10] <= date for run in runs)
    return f"Stated on {date}, with the data in view." if date and before else ""


def precision(runs: Sequence[Record]) -> str:
    """Some runs were computed in another precision, or compiled: they are not compared with the others."""
    found = sorted({arithmetic(run) for run in runs})
    return f"Runs of different precision are not compared: {'; '.join(found)}." if len(found) > 1 else ""


def _training_errors(results: Results, row: str) -> list[float]:
    """The mean training errors of a row's cells, where they were recorded."""
    cells = [
        [_training_error(run) for run in results.behind(*cell)] for cell in results.cells if cell[0] == row
    ]
    known = ([error for error in errors if error is not None] for errors in cells)
    return [fmean(errors) for errors in known if errors]


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


def _by_study(results: Results, cells: Sequence[tuple[str, str]]) -> Iterator[Choice]:
    """Another study tried every rate once, or some times, on held-out examples."""
    tuning = results.tuning
    if tuning is None:
        return
    columns = tuning.study.columns
    shown = [results.study.columns[column].config for _, column in cells]
    varied = [flat(column.config) for column in columns.values()]
    tried: dict[tuple[str, str], dict[float, tuple[float, int]]] = {}
    for row, name in tuning.cells:
        column, values = columns[name], tuning[row, name]
        asked = any(row == of for of, _ in cells) and any(_agree(column.config, at, varied) for at in shown)
        if asked and column.tries and tuning.complete(row, name):
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


def _agree(tried: Config, shown: Config, varied: Sequence[Config]) -> bool:
    """Whether a rate was tried in the setting of a column that is shown: at its batch size, say."""
    here, there = flat(tried), flat(shown)
    return all(
        there[name] == here[name]
        for name in here.keys() & there.keys()
        if any(other.get(name) != here[name] for other in varied)
    )


def _by_cell(results: Results, cells: Sequence[tuple[str, str]]) -> Iterator[Choice]:
    """The cell's own runs at the rate with the lowest mean on held-out examples."""
    for cell in cells:
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
    means = {rate: fmean(known.values()) for rate, known in errors.items() if known and rate != best}
    if not means:  # of the rest every run diverged
        return Choice(row, best, tuple(errors), False)
    second = min(means, key=means.__getitem__)
    lowest, next_lowest = (pd.Series(dict(errors[rate]), dtype=float) for rate in (best, second))
    difference = compare((lowest - next_lowest).dropna(), 0.0)
    low, high = difference.interval(1 - LEVEL) if difference else (0.0, 0.0)
    return Choice(row, best, tuple(errors), low <= 0 <= high)


def _by_run(results: Results, cells: Sequence[tuple[str, str]]) -> Iterator[Choice]:
    """Every run chose for itself: the rate that most of a cell's runs have chosen."""
    for cell in cells if results.study.tries else []:
        chosen = [run["metrics"].get("rate") for run in results.behind(*cell)]
        rates = pd.Series(chosen, dtype=object).explode().dropna()
        if len(rates):
            yield Choice(cell[0], float(rates.mode()[0]), tuple(results.study.tries), False)
