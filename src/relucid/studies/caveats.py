"""Caveats: why not to take an outcome at face value, by rules that apply to every claim alike."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from relucid.studies.compare import differ, differ_by_repetition
from relucid.studies.expect import Claim, Place, Quantity
from relucid.studies.plan import cells
from relucid.studies.study import Study

if TYPE_CHECKING:
    from relucid.studies.table import Table

UNDERFITS = 10.0  # per cent of the training examples; published networks misclassify fewer
SIZES = {
    "depth": "{} layers instead of {}",
    "width": "width {} instead of {}",
    "growth": "growth rate {} instead of {}",
    "features": "{} features instead of {}",
    "data": "{} instead of {}",
}


@dataclass(frozen=True)
class Caveat:
    """A reason for doubt: a word or two for a table, and a sentence without its full stop."""

    word: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """What the rules look at.

    Args:
        study: the study with all its scales.
        claim: the claim.
        table: the results by which it was judged.
        rates: the results by which the learning rates were chosen, if another study did that and they are recorded.
    """

    study: Study
    claim: Claim
    table: "Table"
    rates: "Table | None" = None

    @property
    def places(self) -> list[tuple[str, str]]:
        """The cells behind the claim: those that it names, else the first cell of every row that it may use."""
        first = next(iter(self.table.study.columns))
        found: dict[tuple[str, str], None] = {}
        for each in self.claim.comparisons():
            for side in (each.a, each.b):
                if isinstance(side, Place):
                    found[side] = None
                elif not isinstance(side, float):
                    rows = side.rows if isinstance(side, Quantity) and side.rows else self.table.study.rows
                    found |= dict.fromkeys((row, first) for row in rows)
        return [place for place in found if place in self.table.cells]

    @property
    def rows(self) -> list[str]:
        """The rows behind the claim."""
        return list(dict.fromkeys(row for row, _ in self.places))


def caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """Every caveat that the rules find."""
    return tuple(Caveat(word, text) for word, rule in RULES.items() if (text := rule(evidence)))


def underfits(evidence: Evidence) -> str:
    """A caveat if a network misclassifies more than a tenth of its training examples."""
    errors = [error for row in evidence.rows for error in _training_errors(evidence.table, row)]
    if not errors or max(errors) <= UNDERFITS:
        return ""
    low, high = (f"{value:.0f}" for value in (min(errors), max(errors)))
    return f"the networks misclassify {low if low == high else f'{low} to {high}'}% of their training images"


def _training_errors(table: "Table", row: str) -> Iterator[float]:
    """The mean training errors of a row's cells, where they were recorded."""
    for column in table.study.columns:
        found = []
        for run in table.behind(row, column):
            course = run.get("history", {}).get("train_error")
            if "train_error" in run["metrics"]:
                found.append(run["metrics"]["train_error"])
            elif course:
                found.append(course[-1])
        if found:
            yield fmean(found)


def unrecorded(evidence: Evidence) -> str:
    """A caveat if networks were trained on images at a smaller scale and their training errors are not recorded."""
    table = evidence.table
    if table.scale == "full" or not any("data" in run["config"] for run in table.runs):
        return ""
    if all("fitted" in run["metrics"] for run in table.runs):  # the outcome is how well they fit
        return ""
    known = all(list(_training_errors(table, row)) for row in evidence.rows)  # an error of 0 is known
    return "" if known else "training errors were not recorded: the networks may underfit"


def edge(evidence: Evidence) -> str:
    """A caveat if a chosen learning rate is the smallest or the largest that was tried."""
    found = [
        f"{choice.value:g} for {choice.row}"
        for choice in choices(evidence)
        if choice.value in (min(choice.tried), max(choice.tried))
    ]
    return f"rates at the edge of their grid: {', '.join(dict.fromkeys(found))}" if found else ""


def noise(evidence: Evidence) -> str:
    """A caveat if a learning rate was chosen by a difference that chance explains."""
    found = dict.fromkeys(choice.row for choice in choices(evidence) if choice.by_chance)
    return f"rates chosen by less than their noise, for {', '.join(found)}" if found else ""


def size(evidence: Evidence) -> str:
    """A caveat if networks or data are not those of the full scale."""
    study, table = evidence.study, evidence.table
    if table.scale == "full" or "full" not in study.scales:
        return ""
    here, there = (cells(study, scale) for scale in (table.scale, "full"))
    found: dict[str, None] = {}
    for place in evidence.places:
        if here.get(place) and there.get(place):
            ours, theirs = (_size(runs[place][0].config) for runs in (here, there))
            found |= dict.fromkeys(
                text.format(ours[name], theirs[name])
                for name, text in SIZES.items()
                if name in ours and name in theirs and ours[name] != theirs[name]
            )
    return ", ".join(found)


def _size(config: Mapping[str, Any]) -> dict[str, str]:
    """The depth, width and data of a run's configuration, as text."""
    backbone = config.get(config.get("family", ""), {})
    found = {"width": 1.0, **config, **backbone} if config else {}
    sizes = {name: found[name] for name in SIZES if isinstance(found.get(name), int | float | str)}
    return {name: value if isinstance(value, str) else f"{value:g}" for name, value in sizes.items()}


def shared(evidence: Evidence) -> str:
    """A caveat if repetitions are random splits of one data set."""
    if not any(row in evidence.study.splits for row in evidence.rows):
        return ""
    return "its splits share data: another sample would vary more than they do"


def stated(evidence: Evidence) -> str:
    """A caveat if the claim was stated with its data in view."""
    return f"stated on {evidence.claim.stated}, after its data" if evidence.claim.stated else ""


RULES: Mapping[str, Callable[[Evidence], str]] = {
    "underfit": underfits,
    "training error unknown": unrecorded,
    "rate at edge": edge,
    "rate by chance": noise,
    "other size": size,
    "shared splits": shared,
    "post hoc": stated,
}
"""The rules by their words; each returns a sentence, "" where it finds nothing."""


@dataclass(frozen=True)
class Choice:
    """A learning rate that was chosen for a row, out of those that were tried."""

    row: str
    value: float
    tried: tuple[float, ...]
    by_chance: bool


def choices(evidence: Evidence) -> list[Choice]:
    """The rates that were chosen for the rows of a claim: by another study, for each cell, or by every run itself."""
    return [*_by_study(evidence), *_by_cell(evidence), *_by_run(evidence)]


def _by_study(evidence: Evidence) -> Iterator[Choice]:
    if evidence.rates is None:
        return
    errors: dict[tuple[str, str], dict[float, tuple[float, int]]] = defaultdict(dict)
    for (row, label), cell in evidence.rates.cells.items():
        column = evidence.rates.study.columns[label]
        if row in evidence.rows and cell.complete and column.tries and column.examples:
            setting, rate = column.tries
            diverged = cell.mean is None
            errors[row, setting][rate] = math.inf if diverged else cell.mean or 0.0, column.examples
    for (row, _), found in errors.items():
        if len(found) == 1:  # of a study that is half run, say: nothing has been chosen yet
            continue
        best, second = sorted(found, key=lambda rate: found[rate])[:2]
        (lowest, examples), (next_lowest, _) = found[best], found[second]
        apart = math.isinf(next_lowest) or differ(lowest, next_lowest, examples)
        yield Choice(row, best, tuple(found), not apart)


def _by_cell(evidence: Evidence) -> Iterator[Choice]:
    table = evidence.table
    for row, column in evidence.places:
        for name, value in table.cells[row, column].chosen.items():
            by_value: dict[float, dict[str, float]] = defaultdict(dict)
            for run in table.tried(row, column):
                rest = {key: each for key, each in run["config"].items() if key != name}
                criterion = run["metrics"][table.study.by]
                by_value[run["config"][name]][str(rest)] = criterion
            others = [other for other in by_value if other != value]
            second = min(others, key=lambda other: fmean(by_value[other].values()), default=value)
            apart = differ_by_repetition(by_value[value], by_value[second])
            yield Choice(row, value, tuple(by_value), not apart)


def _by_run(evidence: Evidence) -> Iterator[Choice]:
    """The rate that most splits of a run have chosen, if runs choose for themselves."""
    if not evidence.study.tries:
        return
    for row, column in evidence.places:
        chosen = [
            rate for run in evidence.table.behind(row, column) for rate in run["metrics"].get("rate", ())
        ]
        if len(set(chosen)) > 1:
            yield Choice(row, max(set(chosen), key=chosen.count), evidence.study.tries, False)
