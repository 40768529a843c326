"""Caveats: why not to take an outcome at face value, by rules that apply to every claim alike."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from relucid.studies.compare import differ, differ_by_repetition
from relucid.studies.expect import Claim, Place, Quantity, Statistic
from relucid.studies.plan import cells, flat, merge
from relucid.studies.study import Column, Config, Study

if TYPE_CHECKING:
    from relucid.studies.table import Table

POST_HOC = "post hoc"
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
        """The cells behind the claim: those that it names, and those that its quantities are computed from."""
        sides = (side for each in self.claim.comparisons() for side in (each.a, each.b))
        found = dict.fromkeys(place for side in sides for place in self._behind(side))
        return [place for place in found if place in self.table.cells]

    def _behind(self, side: Place | Quantity | Statistic | float) -> Iterable[tuple[str, str]]:
        """The cells of one side; of a quantity that names none, the first cell of every row."""
        study = self.table.study
        rows, columns = tuple(study.rows), tuple(study.columns)[:1]
        if isinstance(side, Place):
            return [side]
        if isinstance(side, Quantity):
            own = side.columns or ((side.of.column,) if side.of else ())
            rows, columns = side.rows or rows, own or columns
        return [] if isinstance(side, float) else product(rows, columns)

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
    """A caveat if networks or data are not those of the full scale, or of the paper."""
    study, table = evidence.study, evidence.table
    if table.scale == "full" or ("full" not in study.scales and not study.paper):
        return ""
    here = cells(study, table.scale)
    there = cells(study, "full") if "full" in study.scales else here
    found: dict[str, None] = {}
    for place in evidence.places:
        if here.get(place) and there.get(place):
            ours = _size(here[place][0].config)
            theirs = _size(merge(there[place][0].config, study.paper))
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
    """A caveat if the claim was stated when some of its runs had been made."""
    date = evidence.claim.stated
    runs = (run for place in evidence.places for run in evidence.table.behind(*place))
    before = any(run.get("started", "")[:10] <= date for run in runs)
    return f"stated on {date}, after its data" if date and before else ""


RULES: Mapping[str, Callable[[Evidence], str]] = {
    "underfit": underfits,
    "training error unknown": unrecorded,
    "rate at edge": edge,
    "rate by chance": noise,
    "other size": size,
    "shared splits": shared,
    POST_HOC: stated,
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
    shown = {label: evidence.table.study.columns[label].config for _, label in evidence.places}
    tried = evidence.rates.study.columns
    errors: dict[tuple[str, str], dict[float, tuple[float, int]]] = defaultdict(dict)
    for (row, label), cell in evidence.rates.cells.items():
        column = tried[label]
        used = any(_same_setting(column, config, tried.values()) for config in shown.values())
        if used and row in evidence.rows and cell.complete and column.tries and column.examples:
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


def _same_setting(column: Column, shown: Config, tried: Iterable[Column]) -> bool:
    """Whether a column that tries a rate does so in the setting of a column that is shown: its batch size, say."""
    here, there = flat(column.config), flat(shown)
    others = [flat(each.config) for each in tried]
    varied = [path for path in here if any(other.get(path) != here[path] for other in others)]
    return all(there[path] == here[path] for path in varied if path in there)


def _by_cell(evidence: Evidence) -> Iterator[Choice]:
    table = evidence.table
    for row, column in evidence.places:
        chosen = table.cells[row, column].chosen.items()
        for name, value in ((name, value) for name, value in chosen if isinstance(value, int | float)):
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
    """The rate that most splits or runs of a cell have chosen, if runs choose for themselves."""
    if not evidence.study.tries:
        return
    for row, column in evidence.places:
        metrics = [run["metrics"].get("rate", []) for run in evidence.table.behind(row, column)]
        chosen = [rate for found in metrics for rate in (found if isinstance(found, list) else [found])]
        if chosen:
            yield Choice(row, max(set(chosen), key=chosen.count), evidence.study.tries, False)
