"""Records as pandas: every run in one frame, and the cells of a study as series by repetition."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from relucid.experiments._records import Record
from relucid.experiments._study import Planned, Run, Study
from relucid.printing import suggest

EMPTY = "·"  # in a table: a cell without values


def frame(records: Iterable[Record] | Mapping[str, Record]) -> pd.DataFrame:
    """One row per observation: a run, or each item of the lists that it measured (a split, a seed).

    Settings are columns "config.data", "config.recipe.lr"; what was measured has its own name.

    >>> record = {"key": "1", "runner": "r", "state": "finished", "config": {"lr": 0.1}, "metrics": {"error": [3, 5]}}
    >>> frame([record]).groupby("config.lr")["error"].mean().to_dict()
    {0.1: 4.0}
    """
    rows = []
    for record in records.values() if isinstance(records, Mapping) else records:
        measured = record["metrics"]
        size = max([1, *(len(value) for value in measured.values() if isinstance(value, list))])
        about = {name: record.get(name) for name in ("key", "runner", "state", "seconds", "started")}
        about |= flat(record["config"], "config")
        rows += [
            {**about, "item": item, **{name: _item(value, item) for name, value in measured.items()}}
            for item in range(size)
        ]
    return pd.DataFrame(rows)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values of nested dictionaries by dotted paths.

    >>> flat({"data": "digits", "recipe": {"lr": 0.1}}, "config")
    {'config.data': 'digits', 'config.recipe.lr': 0.1}
    """
    if not isinstance(value, Mapping):
        return {path: value}
    parts = (flat(inner, f"{path}.{key}" if path else key) for key, inner in value.items())
    return {name: item for part in parts for name, item in part.items()}


def _item(value: Any, place: int) -> Any:
    if isinstance(value, list):
        return value[place] if place < len(value) else None
    return value if place == 0 else None


class Cell(NamedTuple):
    """A cell of a table, or what its runs measured besides (`metric`), or a curve over their epochs (`history`)."""

    row: str
    column: str
    metric: str = ""
    history: bool = False


class Results:
    """The records of a study at a scale. `results[row, column]` is a series of values by repetition.

    Args:
        study: the study.
        scale: one of its scales.
        records: by key: a `Store`, or what `read` returns.
        only: one of its rows.
        seeds: how many seeds.
    """

    def __init__(
        self,
        study: Study,
        scale: str,
        records: Mapping[str, Record],
        *,
        only: str | None = None,
        seeds: int | None = None,
    ) -> None:
        self.study, self.scale = study, scale
        self.plan = list(study.plan(scale, only=only, seeds=seeds))
        self.labels = {(planned.row, planned.column) for planned in self.plan}  # of all cells, run or not
        keys = dict.fromkeys(planned.run.key for planned in self.plan)
        self.records = {key: record for key in keys if (record := records.get(key)) is not None}
        self._series: dict[Cell, pd.Series] = {}
        begun = {planned.row for planned in self.plan if planned.run.key in self.records}
        # A row without any run is not part of the table.
        self.planned = [planned for planned in self.plan if planned.row in begun]
        tuned = study.tuning.get(scale)  # the study that chose the learning rates at this scale
        self.tuning = None if tuned is None else Results(tuned, scale, records)
        voters = [self.cells[cell] for cell in self.cells if study.columns[cell[1]].vote]
        votes = {_vote(runs): records.get(_vote(runs)) for runs in voters}
        self._votes = {key: vote for key, vote in votes.items() if vote is not None}

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[Planned]]:
        """The runs of every cell at its chosen settings; none while a choice is open."""
        return {cell: self._chosen(planned) for cell, planned in self.tried.items()}

    @cached_property
    def tried(self) -> dict[tuple[str, str], list[Planned]]:
        """The runs of every cell at all settings."""
        cells: dict[tuple[str, str], list[Planned]] = {}
        for planned in self.planned:
            cells.setdefault((planned.row, planned.column), []).append(planned)
        return cells

    def _chosen(self, tried: list[Planned]) -> list[Planned]:
        """The runs of the choice with the lowest mean of the study's criterion on data held out."""
        if len({planned.choice for planned in tried}) <= 1:
            return tried
        if any(planned.run.key not in self.records for planned in tried):
            return []
        by = [{"choice": each.choice, "by": self._measured(each, self.study.by)} for each in tried]
        values = pd.DataFrame(by).explode("by").astype({"by": float}).fillna({"by": math.inf})
        best = values.groupby("choice", sort=False)["by"].mean().idxmin()
        return [planned for planned in tried if planned.choice == best]

    def _measured(self, planned: Planned, metric: str) -> Any:
        record = self.records.get(planned.run.key, {})
        if metric == "finished":
            return 100.0 * (record["state"] == "finished") if record else None
        return record["metrics"].get(metric) if record.get("state") == "finished" else None

    def __getitem__(self, cell: tuple[Any, ...]) -> pd.Series:
        """The values of a cell by repetition, (n,); with `history`, a list of values per repetition."""
        key = Cell(*cell)
        if key not in self._series:
            self._series[key] = self._read(*key)
        return self._series[key].copy()

    def _read(self, row: str, column: str, metric: str, history: bool) -> pd.Series:
        runs, shown = self.cells.get((row, column), []), self.study.columns[column]
        if history:
            records = {each.repetition: self.records.get(each.run.key, {}) for each in runs}
            curves = {name: record.get("history", {}).get(metric) for name, record in records.items()}
            return pd.Series({name: curve for name, curve in curves.items() if curve}, dtype=object)
        if shown.vote and not metric:
            voted = self._votes.get(_vote(runs))
            return pd.Series({"vote": voted["metrics"]["error"]} if voted else {}, dtype=float)
        values = {
            (planned.repetition, item): value
            for planned in runs
            for item, value in enumerate(_listed(self._measured(planned, metric or shown.metric)))
        }
        index = pd.MultiIndex.from_tuples(values, names=("repetition", "item")) if values else None
        return pd.Series(list(values.values()), index=index, dtype=float)

    def votes(self) -> list[Record]:
        """The records of votes, which stand beside those of the runs that voted."""
        return list(self._votes.values())

    def behind(self, row: str, column: str) -> list[Record]:
        """The records of the finished runs of a cell, at its chosen settings."""
        records = (self.records.get(planned.run.key) for planned in self.cells.get((row, column), []))
        return [record for record in records if record and record["state"] == "finished"]

    def runs(self) -> list[dict[str, Any]]:
        """The records behind all cells, each once per row, with the label of its row."""
        return list(
            {
                (row, record["key"]): {"row": row, **record}
                for row, column in self.cells
                for record in self.behind(row, column)
            }.values()
        )

    def complete(self, row: str, column: str) -> bool:
        """Whether every planned run of a cell has a record."""
        runs = self.cells.get((row, column), [])
        return bool(runs) and all(planned.run.key in self.records for planned in runs)

    @property
    def whole(self) -> bool:
        """Whether every planned run has a record."""
        return all(planned.run.key in self.records for planned in self.planned)

    def begun(self, row: str, column: str) -> bool:
        """Whether a cell has a value, or all its runs and none."""
        return (row, column) in self.cells and (len(self[row, column]) > 0 or self.complete(row, column))

    def unknown_metrics(self) -> list[str]:
        """Columns whose metric no run has returned, in a sentence each: a misspelt name would be an empty column."""
        sentences = []
        for label, column in self.study.columns.items():
            records = [record for row, of in self.cells if of == label for record in self.behind(row, of)]
            returned = dict.fromkeys(name for record in records for name in record["metrics"])
            if records and column.metric not in {*returned, "finished"}:
                near = suggest(column.metric, returned) or f"; they returned {', '.join(returned)}"
                sentences.append(f"no run of column {label!r} returned the metric {column.metric!r}{near}")
        return sentences

    def changed(self) -> str:
        """A warning if the file of a plain function has changed since some of its runs; else nothing."""
        source = self.study.source()
        sources = [record.get("environment", {}).get("source") for record in self.records.values()]
        count = sum(other is not None and other != source for other in sources)
        if source is None or not count:
            return ""
        name = self.study.runner.name
        return (
            f"the file of {name} has changed since {count} of these runs: if their results no longer count, "
            f'put @runner("{name}", version=2) above the function, or the next number'
        )

    def published(self, cell: tuple[Any, ...]) -> tuple[float | None, float | None]:
        """The published value of a cell and its standard error."""
        row, column, *_ = cell
        value = self.study.published.get((row, column))
        return value if isinstance(value, tuple) else (value, None)

    def table(self) -> pd.DataFrame:
        """Mean, standard error, number of values and published value of every cell, by row and column."""
        values = [(cell, self[cell]) for cell in self.cells]
        return pd.DataFrame(
            [[of.mean(), of.sem(), len(of), *self.published(cell)] for cell, of in values],
            pd.MultiIndex.from_tuples([*self.cells], names=["row", "column"]),
            ["mean", "error", "n", "published", "published_error"],
            dtype=float,
        )

    def shown(self) -> pd.DataFrame:
        """The table as text, one row per row: mean, standard error and, in brackets, the published value."""
        cells, columns = self.table(), self.study.columns
        texts = [
            cell_text(stat, columns[cell[1]].digits, self.note(*cell))
            for cell, stat in zip(cells.index, cells.to_dict("records"), strict=True)
        ]
        rows, labels = (cells.index.unique(level) for level in ("row", "column"))
        return pd.Series(texts, cells.index).unstack().reindex(rows, columns=labels).fillna("")

    def note(self, row: str, column: str) -> str:
        """How many runs of a cell have diverged or failed, or else how many there are if some are missing."""
        runs = self.cells.get((row, column)) or self.tried.get((row, column), [])
        states = Counter(self.records[run.key]["state"] for *_, run in runs if run.key in self.records)
        troubles = [f"{states[state]} {state}" for state in ("diverged", "failed") if states[state]]
        if not troubles and states.total() < len(runs):
            return f"{states.total()} of {len(runs)} runs"
        return ", ".join(troubles)

    def choices(self) -> str:
        """What the cells have chosen, each choice once: "lr 0.1 for ResNet (error); lr 0.05 for all others"."""
        places: dict[str, list[str]] = {}
        for (row, column), runs in self.cells.items():
            if (
                self.study.columns[column].best is not None
                and len({run.choice for run in self.tried[row, column]}) > 1
            ):
                for choice in {run.choice for run in runs}:
                    places.setdefault(choice, []).append(f"{row} ({column})")
        usual = max(places, key=lambda choice: len(places[choice]), default="")
        others = [f"{choice} for {', '.join(where)}" for choice, where in places.items() if choice != usual]
        rest = [f"{usual} for all{' others' if others else ''}"] if usual else []
        return "; ".join([*others, *rest])

    def blocks(self, without: Collection[str] = ()) -> list[pd.DataFrame]:
        """The table as text, in parts: rows that share no column with those above begin another."""
        table = self.shown().drop(index=[*without])
        filled = ~table.isin(["", EMPTY])
        numbers, columns = list[int](), set[str]()
        for row in table.index:
            of_row = set(table.columns[filled.loc[row]])
            another = bool(of_row and columns and not of_row & columns)
            columns = of_row if another else columns | of_row
            numbers.append(numbers[-1] + another if numbers else 0)
        parts = [part for _, part in table.groupby(numbers, sort=False)]
        return [part.loc[:, filled.loc[part.index].any()] for part in parts] if len(parts) > 1 else parts

    def __str__(self) -> str:
        """The table as Markdown, with published values in brackets, and what was chosen."""
        chosen = self.choices()
        parts = [*map(markdown, self.blocks()), *([f"Chosen: {chosen}."] if chosen else [])]
        return "\n\n".join(parts)


def cell_text(stat: Mapping[Any, float], digits: int, note: str = "") -> str:
    """Mean, standard error, published value and note of a cell; no standard error if all values are equal.

    >>> cell_text({"mean": 3.14, "error": 0.1, "n": 3, "published": 3.0, "published_error": math.nan}, 1, "1 diverged")
    '3.1±0.1 [3.0] (1 diverged)'
    """
    known = [("", stat["mean"], stat["error"], ""), ("[", stat["published"], stat["published_error"], "]")]
    texts = [
        f"{before}{mean:.{digits}f}{f'±{error:.{digits}f}' if error > 0 else ''}{after}"
        for before, mean, error, after in known
        if not math.isnan(mean)
    ]
    return " ".join([*(texts if stat["n"] else [EMPTY, *texts]), *([f"({note})"] if note else [])])


def markdown(table: pd.DataFrame, corner: str = "") -> str:
    """A table of texts in Markdown.

    >>> print(markdown(pd.DataFrame({"error": ["1.0"]}, ["ReLU"])))
    |  | error |
    | --- | --- |
    | ReLU | 1.0 |
    """
    body = [[str(label), *map(str, row)] for label, row in zip(table.index, table.to_numpy(), strict=True)]
    lines = [[corner, *map(str, table.columns)], ["---"] * (1 + len(table.columns)), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _vote(runs: Iterable[Planned]) -> str:
    """The key of the vote of these runs."""
    return Run("vote", {"of": sorted(planned.run.key for planned in runs)}).key


def _listed(value: Any) -> list[float]:
    return [] if value is None else value if isinstance(value, list) else [value]
