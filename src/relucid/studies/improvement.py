"""The result of an improvement: which row is best, beyond chance, and what was found in plain words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from relucid.conversions import CONVERSIONS, IMPROVING
from relucid.convert import Conversion
from relucid.printing import Tabular, counted
from relucid.studies.compare import HOLDS, Comparison, compare_with_one
from relucid.studies.expect import Claim, Derived, Higher, Lower, Statistic
from relucid.studies.judge import Judged, judge
from relucid.studies.table import Table
from relucid.train import Recipe

if TYPE_CHECKING:
    from relucid.studies.improve import Project

GIVEN, TRAINED = "as given", "trained further"
DEAD, SCRATCH = "dead units redrawn", "from scratch"


@dataclass(frozen=True, eq=False)
class Improvement(Tabular):
    """What an improvement found; prints as a table and sentences.

    Args:
        project: what was tried.
        table: the study's results.
        conversion: the returned network, and how it was converted.
    """

    project: "Project"
    table: Table
    conversion: Conversion

    @property
    def network(self) -> nn.Module:
        """The returned network, of the class of the given one, in evaluation mode."""
        return self.conversion.model.eval()

    @cached_property
    def row(self) -> str:
        """The row of the returned network: the best of those that are better beyond chance than further training.

        If there is none, further training; and if that is not better beyond chance either, the network as it was given.
        """
        finished = {run["key"] for run in self.table.runs if run["state"] == "finished"}
        better = [row for row, each in self.compared.items() if each.outcome == HOLDS]
        ahead = [row for row in better if self._best([row, GIVEN]) == row]
        ahead = ahead or [TRAINED] * (self.training.outcome == HOLDS)
        return self._best([row for row in ahead if self.project.first(row) in finished] or [GIVEN])

    @property
    def better(self) -> bool:
        """Whether the returned network is better, beyond chance, than the one that was given."""
        return self.row != GIVEN

    @cached_property
    def compared(self) -> Mapping[str, Judged]:
        """Row -> how it compares with further training alone."""
        others = tuple(row for row in self.table.study.rows if row not in (GIVEN, TRAINED))
        return dict(zip(others, self._judged(others, TRAINED), strict=True))

    @cached_property
    def training(self) -> Judged:
        """How further training alone compares with the network as it was given.

        On a test part of its own the given network has one result, which is as uncertain as that of one training.
        """
        given, trained = (self.table.cells[row, self.project.column].values for row in (GIVEN, TRAINED))
        if len(given) != 1:
            return self._judged(TRAINED, GIVEN)[0]
        one = Statistic(f"{TRAINED} minus {GIVEN}", lambda _: compare_with_one(trained, given[0]))
        expected = Derived(one, "higher" if self.project.task.metric.higher else "lower")
        return judge(self.table, Claim("", "", (expected,)))[0]

    def mean(self, row: str) -> float:
        """The mean of the deciding column; nan if no run has finished."""
        value = self.table.cells[row, self.project.column].mean
        return math.nan if value is None else value

    def __repr__(self) -> str:
        return f"<Improvement of {self.project.task.name}: {self.row}; print it for the comparison>"

    def rows(self) -> list[dict[str, str]]:
        """The table: what every row achieves, its size, and how it differs from further training."""
        found = []
        for row in self.table.study.rows:
            cells = {label: self.table.cells[row, label].mean for label in self.table.study.columns}
            size = cells.pop("parameters")
            line = {"": row, **{label: self.show(value) for label, value in cells.items()}}
            difference = self.difference(self.compared[row]) if row in self.compared else ""
            found.append(
                line | {"parameters": f"{size:,.0f}" if size else "", "against training alone": difference}
            )
        return found

    def notes(self) -> list[str]:
        """What was found, and what was left out."""
        return [
            "",
            *self.lines(),
            *(f"Left out: {what}: {why}" for what, why in self.project.left_out.items()),
        ]

    def headline(self) -> str:
        """What was found, in a paragraph."""
        return " ".join(self.lines())

    def lines(self) -> list[str]:
        """What was found: the results, the conclusion, and why not to take it at face value."""
        return [*self.results(), self.conclusion(), *self.levels(), *self.project.task.cautions]

    def results(self) -> list[str]:
        """What every row achieves, a sentence each."""
        recipe, column = self.project.task.train, self.project.column
        more = f" for {counted(recipe.epochs, 'more epoch')}" if isinstance(recipe, Recipe) else " further"
        found = [f"Your network: {column.removesuffix(' %')} {self.show(self.mean(GIVEN))}."]
        for row, judged in {TRAINED: self.training, **self.compared}.items():
            start = (
                f"Trained{more}" if row == TRAINED else row.capitalize() if row == SCRATCH else f"With {row}"
            )
            if math.isnan(self.mean(row)):
                found.append(f"{start}: no result, {self._failure(row)}.")
            else:
                found.append(f"{start}: {self.show(self.mean(row))} ({self.difference(judged)}).")
        return found

    def levels(self) -> list[str]:
        """Why intervals are wider than usual, if they are."""
        levels = {each.found.confidence for each in self.compared.values() if each.found and each.found.error}
        wider = levels - {"95%"}
        if len(wider) != 1:
            return []
        return [
            f"The intervals are at {wider.pop()}, so that all of them are right at once with 95% probability."
        ]

    def _failure(self, row: str) -> str:
        """Why a row has no result, from the first of its runs."""
        first = next((run for run in self.table.runs if run["key"] == self.project.first(row)), None)
        errors = str(first.get("error") or "").splitlines() if first else []
        return errors[0] if errors else "its training did not finish"

    def conclusion(self) -> str:
        """What helps, and how sure that is."""
        if self.row == GIVEN:
            return f"Nothing helps here{self._power()}."
        if self.row == TRAINED:
            return f"Further training helps, nothing else does{self._power()}."
        controls = tuple(row for row in self.compared if row == DEAD or row.endswith(SCRATCH))
        judged = zip(controls, self._judged(self.row, controls), strict=True)
        equal = [f"{row} ({self.show(self.mean(row))})" for row, each in judged if each.outcome != HOLDS]
        but = (
            f" But {' and '.join(equal)} {'do' if len(equal) > 1 else 'does'} not differ significantly from it."
            if equal and self.row not in controls
            else ""
        )
        return f"Best: {self.row}, {self.difference(self.compared[self.row], ' than training alone')}.{but}"

    def difference(self, judged: Judged, than: str = "") -> str:
        """A difference with its interval, in words."""
        found = judged.found
        if found is None:
            return "too few runs have finished"
        sign, way = (1, "higher") if found.effect >= 0 else (-1, "lower")
        effect, *ends = (self.show(sign * each).rstrip("%") for each in (found.effect, found.low, found.high))
        if found.error == 0:
            return f"{effect} {way}{than} in every seed" if found.effect else "the same in every seed"
        low, high = ends[::sign]
        return f"{effect} {way}{than}, {found.confidence} interval {low} to {high}"

    def show(self, value: float | None) -> str:
        """A value of the deciding metric, to a hundredth of what training alone achieves."""
        if value is None or math.isnan(value):
            return "none"
        if self.project.task.metric.label.endswith("%"):
            return f"{value:.2f}%"
        usual = abs(self.mean(TRAINED)) or 1.0
        return f"{value:.{max(2, 2 - math.floor(math.log10(usual)))}f}"

    def save(self, directory: str | Path) -> None:
        """Write the network and the page into a directory, which must not exist; see `relucid.report.handover`."""
        from relucid.report.handover import save

        save(self, Path(directory))

    def _best(self, rows: list[str]) -> str:
        return (max if self.project.task.metric.higher else min)(rows, key=self.mean)

    def _judged(self, rows: str | tuple[str, ...], than: str | tuple[str, ...] | float) -> list[Judged]:
        """Whether rows are better than others, or than a number."""
        order = Higher if self.project.task.metric.higher else Lower
        return judge(self.table, Claim("", "", (order(rows, than=than, columns=self.project.column),)))

    @property
    def closest(self) -> Comparison | None:
        """How the best of the conversions compares, at a level that allows for all comparisons."""
        labels = {CONVERSIONS[name].label for name in IMPROVING}
        tried = [row for row in self.compared if row in labels and self.compared[row].found]
        found = self.compared[self._best(tried)].found if tried else None
        return found.among(len(self.compared)) if found and found.error else None

    def _power(self) -> str:
        """The difference that would have been found."""
        lost = sum(math.isnan(self.mean(row)) for row in self.compared)
        if lost:
            return f", but {lost} of {len(self.compared)} alternatives have no result"
        if self.closest is None:
            found = [each.found for each in self.compared.values() if each.found]
            few = any(each.effect and not each.error for each in found)
            return ", but these few seeds could not have shown a difference: use more" if few else ""
        size = self.closest.detectable
        text = self.show(size).rstrip("%")
        if size > abs(self.mean(TRAINED)) / 2:
            return f", but only a difference of {text} or more would have been found: use more seeds"
        return f"; a difference of {text} would have been found"
