"""The result of an improvement: which row is significantly best, and what was found in plain words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import nn

from relucid.conversions import CONVERSIONS, IMPROVING
from relucid.convert import Conversion
from relucid.experiments import Cell, Claim, Contrast, Quantity, Results, higher, lower
from relucid.experiments._judge import Verdict, against_one, judge
from relucid.printing import Tabular, counted
from relucid.train import Recipe

if TYPE_CHECKING:
    from relucid._improve._project import Project

GIVEN, TRAINED = "as given", "trained further"
DEAD, SCRATCH = "dead units redrawn", "from scratch"
BETTER = "confirmed"  # every contrast claims that a row is better


@dataclass(frozen=True, eq=False)
class Improvement(Tabular):
    """What an improvement found; prints as a table and sentences.

    Args:
        project: what was tried.
        results: the records of its runs.
        conversion: the returned network, and how it was converted.
    """

    project: "Project"
    results: Results
    conversion: Conversion

    @property
    def network(self) -> nn.Module:
        """The returned network, of the class of the given one, in evaluation mode."""
        return self.conversion.model.eval()

    @cached_property
    def row(self) -> str:
        """The row of the returned network: the best of those that are significantly better than further training.

        If there is none, further training; and if that is not significantly better either, the network as it was given.
        """
        finished = {key for key, record in self.results.records.items() if record["state"] == "finished"}
        better = [row for row, verdict in self.compared.items() if verdict.outcome == BETTER]
        ahead = [row for row in better if self._best([row, GIVEN]) == row]
        ahead = ahead or [TRAINED] * (self.training.outcome == BETTER)
        return self._best([row for row in ahead if self.project.first(row) in finished] or [GIVEN])

    @property
    def better(self) -> bool:
        """Whether the returned network is significantly better than the one that was given."""
        return self.row != GIVEN

    @cached_property
    def compared(self) -> Mapping[str, Verdict]:
        """Row -> how it compares with further training alone."""
        others = [row for row in self.results.study.rows if row not in (GIVEN, TRAINED)]
        return dict(zip(others, self._judged(others, TRAINED), strict=True))

    @cached_property
    def training(self) -> Verdict:
        """How further training alone compares with the network as it was given.

        On a test part of its own the given network has one result, which is as uncertain as that of one training.
        """
        given = self.values(GIVEN)
        if len(given) != 1:
            return self._judged([TRAINED], GIVEN)[0]
        trained = Cell(TRAINED, self.project.column)
        one = Quantity(
            f"{TRAINED} minus {GIVEN}", [trained], lambda values: against_one(values, float(given.iloc[0]))
        )
        relation = "higher" if self.project.task.metric.higher else "lower"
        return judge(self.results, Claim("", "", [Contrast(one, 0.0, relation)]))[0]  # type: ignore[arg-type]

    def values(self, row: str) -> pd.Series:
        """The values of the deciding column, by repetition."""
        return self.results[row, self.project.column]

    def mean(self, row: str, column: str = "") -> float:
        """The mean of a column, by default the deciding one; nan if no run has finished."""
        return float(self.results[row, column or self.project.column].mean())

    def __repr__(self) -> str:
        return f"<Improvement of {self.project.task.name}: {self.row}; print it for the comparison>"

    def rows(self) -> list[dict[str, str]]:
        """The table: what every row achieves, its size, and how it differs from further training."""
        lines = []
        for row in self.results.study.rows:
            cells = {label: self.mean(row, label) for label in self.results.study.columns}
            size = cells.pop("parameters")
            line = {"": row, **{label: self.show(value) for label, value in cells.items()}}
            difference = self.difference(self.compared[row]) if row in self.compared else ""
            size_text = "" if math.isnan(size) else f"{size:,.0f}"
            lines.append(line | {"parameters": size_text, "against training alone": difference})
        return lines

    def records(self) -> list[dict[str, Any]]:
        """Every run with its row, without arrays."""
        rows = {planned.run.key: planned.row for planned in self.results.plan}
        return [{"row": rows[key], **record} for key, record in self.results.records.items()]

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
        return [*self.outcomes(), self.conclusion(), *self.levels(), *self.project.cautions]

    def outcomes(self) -> list[str]:
        """What every row achieves, a sentence each."""
        recipe, column = self.project.task.train, self.project.column
        more = f" for {counted(recipe.epochs, 'more epoch')}" if isinstance(recipe, Recipe) else " further"
        sentences = [f"Your network: {column.removesuffix(' %')} {self.show(self.mean(GIVEN))}."]
        for row, verdict in {TRAINED: self.training, **self.compared}.items():
            start = (
                f"Trained{more}" if row == TRAINED else row.capitalize() if row == SCRATCH else f"With {row}"
            )
            if math.isnan(self.mean(row)):
                sentences.append(f"{start}: no result, {self._failure(row)}.")
            else:
                sentences.append(f"{start}: {self.show(self.mean(row))} ({self.difference(verdict)}).")
        return sentences

    def levels(self) -> list[str]:
        """Why intervals are wider than usual, if they are."""
        levels = {
            confidence(verdict)
            for verdict in self.compared.values()
            if verdict.comparison and verdict.comparison.spread
        }
        wider = levels - {"95%"}
        if len(wider) != 1:
            return []
        return [
            f"The intervals are at {wider.pop()}, so that all of them are right at once with 95% probability."
        ]

    def _failure(self, row: str) -> str:
        """Why a row has no result, from the first of its runs."""
        record = self.results.records.get(self.project.first(row), {})
        errors = str(record.get("error") or "").strip().splitlines()
        return errors[-1] if errors else "its training did not finish"

    def conclusion(self) -> str:
        """What helps, and how sure that is."""
        if self.row == GIVEN:
            return f"Nothing helps here{self._uncertainty()}."
        if self.row == TRAINED:
            return f"Further training helps, nothing else does{self._uncertainty()}."
        controls = [row for row in self.compared if row == DEAD or row.endswith(SCRATCH)]
        judged = zip(controls, self._judged([self.row], controls), strict=True)
        equal = [
            f"{row} ({self.show(self.mean(row))})" for row, verdict in judged if verdict.outcome != BETTER
        ]
        but = (
            f" But {' and '.join(equal)} {'do' if len(equal) > 1 else 'does'} not differ significantly from it."
            if equal and self.row not in controls
            else ""
        )
        return f"Best: {self.row}, {self.difference(self.compared[self.row], ' than training alone')}.{but}"

    def difference(self, verdict: Verdict, than: str = "") -> str:
        """A difference with its interval, in words."""
        comparison = verdict.comparison
        if comparison is None:
            return "too few runs have finished"
        sign, way = (1, "higher") if comparison.effect >= 0 else (-1, "lower")
        effect, *ends = (
            self.show(sign * value).rstrip("%") for value in (comparison.effect, *interval(verdict))
        )
        if not comparison.spread:
            return f"{effect} {way}{than} in every seed" if comparison.effect else "the same in every seed"
        low, high = ends[::sign]
        return f"{effect} {way}{than}, {confidence(verdict)} interval {low} to {high}"

    def show(self, value: float | None) -> str:
        """A value of the deciding metric, to a hundredth of what training alone achieves."""
        if value is None or math.isnan(value):
            return "none"
        if self.project.task.metric.label.endswith("%"):
            return f"{value:.2f}%"
        usual = abs(self.mean(TRAINED)) or 1.0
        return f"{value:.{max(2, 2 - math.floor(math.log10(usual)))}f}"

    def save(self, directory: str | Path) -> None:
        """Write the network and the page into a directory, which must not exist; see `relucid._improve._handover`."""
        from relucid._improve._handover import save

        save(self, Path(directory))

    def _best(self, rows: list[str]) -> str:
        known = [row for row in rows if not math.isnan(self.mean(row))] or rows
        return (max if self.project.task.metric.higher else min)(known, key=self.mean)

    def _judged(self, rows: list[str], than: str | list[str]) -> list[Verdict]:
        """Whether rows are better than others."""
        order = higher if self.project.task.metric.higher else lower
        return judge(self.results, Claim("", "", order(rows, than, self.project.column)))

    @property
    def closest(self) -> tuple[str, Verdict] | None:
        """The best of the conversions, and how it compares; None if no difference of theirs has an interval."""
        labels = {CONVERSIONS[name].label for name in IMPROVING}
        tried = [row for row, verdict in self.compared.items() if row in labels and verdict.comparison]
        best = self._best(tried) if tried else None
        verdict = self.compared[best] if best else None
        return (
            (best, verdict) if best and verdict and verdict.comparison and verdict.comparison.spread else None
        )

    def _uncertainty(self) -> str:
        """How sure it is that nothing else helps: what has no result, or the interval of the best."""
        lost = sum(math.isnan(self.mean(row)) for row in self.compared)
        if lost:
            return f", but {lost} of {len(self.compared)} alternatives have no result"
        if self.closest is None:
            comparisons = [verdict.comparison for verdict in self.compared.values() if verdict.comparison]
            few = any(comparison.effect and not comparison.spread for comparison in comparisons)
            return ", but these few seeds could not have shown a difference: use more" if few else ""
        best, verdict = self.closest
        low, high = interval(verdict)
        wide = ": use more seeds" if max(abs(low), abs(high)) > abs(self.mean(TRAINED)) / 2 else ""
        return f"; the best of them, {best}, is {self.difference(verdict, ' than training alone')}{wide}"


def interval(verdict: Verdict) -> tuple[float, float]:
    """The interval of a difference, at the level that decides."""
    assert verdict.comparison is not None
    return verdict.comparison.interval(1 - verdict.level)


def confidence(verdict: Verdict) -> str:
    """The confidence of that interval, in words."""
    return f"{100 * (1 - verdict.level):.3g}%"
