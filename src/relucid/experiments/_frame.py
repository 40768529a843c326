"""Records as pandas: every run in one frame, and the cells of a study as series by repetition."""

import base64
import io
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relucid.experiments._study import Planned, Run, Study

Record = Mapping[str, Any]


def read(directory: Path | str) -> dict[str, Record]:
    """The records of every `.jsonl` file in a directory, by key."""
    lines = (line for path in sorted(Path(directory).glob("*.jsonl")) for line in path.open())
    return {record["key"]: record for record in map(json.loads, lines)}


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per observation: a run, or each item of the lists that it measured (a split, a seed).

    Settings are columns "config.data", "config.recipe.lr"; what was measured has its own name.
    """
    rows = []
    for record in records:
        measured, size = (
            record["metrics"],
            max([1, *(len(v) for v in record["metrics"].values() if isinstance(v, list))]),
        )
        about = {name: record[name] for name in ("key", "runner", "state", "seconds", "started")} | flat(
            record["config"], "config"
        )
        for item in range(size):
            values = {name: _item(value, item) for name, value in measured.items()}
            rows.append({**about, "item": item, **values})
    return pd.DataFrame(rows)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values of nested dictionaries by dotted paths.

    >>> flat({"data": "digits", "recipe": {"lr": 0.1}}, "config")
    {'config.data': 'digits', 'config.recipe.lr': 0.1}
    """
    if isinstance(value, Mapping):
        return {
            name: item
            for key, inner in value.items()
            for name, item in flat(inner, f"{path}.{key}" if path else key).items()
        }
    return {path: value}


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
    """The records of a study at a scale. `results[row, column]` is a series of values by repetition."""

    def __init__(self, study: Study, scale: str, records: Mapping[str, Record]) -> None:
        self.study, self.scale, self.everything = study, scale, records
        planned = list(study.plan(scale))
        self.labels = {(each.row, each.column) for each in planned}  # of all cells, run or not
        begun = {each.row for each in planned if each.run.key in records}
        self.planned = [
            each for each in planned if each.row in begun
        ]  # a row without any run is not part of the table
        self.records = {
            each.run.key: records[each.run.key] for each in self.planned if each.run.key in records
        }

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[Planned]]:
        """The runs of every cell at its chosen settings; none while a choice is open."""
        cells: dict[tuple[str, str], list[Planned]] = {}
        for each in self.planned:
            cells.setdefault((each.row, each.column), []).append(each)
        return {place: self._chosen(runs) for place, runs in cells.items()}

    def _chosen(self, runs: list[Planned]) -> list[Planned]:
        """The runs of the choice with the lowest mean of the study's criterion on data held out."""
        if len({each.choice for each in runs}) <= 1:
            return runs
        if any(each.run.key not in self.records for each in runs):
            return []
        tried = pd.DataFrame(
            {"choice": each.choice, "by": self._measured(each, self.study.by)} for each in runs
        ).explode("by")
        tried["by"] = tried["by"].astype(float).fillna(float("inf"))
        best = tried.groupby("choice", sort=False)["by"].mean().idxmin()
        return [each for each in runs if each.choice == best]

    def _measured(self, each: Planned, metric: str) -> Any:
        record = self.records.get(each.run.key, {})
        if metric == "finished":
            return 100.0 * (record["state"] == "finished") if record else None
        return record.get("metrics", {}).get(metric) if record.get("state") == "finished" else None

    def __getitem__(self, cell: tuple[Any, ...]) -> pd.Series:
        """The values of a cell by repetition, (n,); with `history`, a list of values per repetition."""
        row, column, metric, history = Cell(*cell)
        runs, shown = self.cells.get((row, column), []), self.study.columns[column]
        if history:
            curves = {
                each.repetition: self.records.get(each.run.key, {}).get("history", {}).get(metric)
                for each in runs
            }
            return pd.Series({name: curve for name, curve in curves.items() if curve}, dtype=object)
        if shown.vote and not metric:
            voted = self.everything.get(Run("vote", {"of": sorted(each.run.key for each in runs)}).key)
            return pd.Series({"vote": voted["metrics"]["error"]} if voted else {}, dtype=float)
        values = {
            (each.repetition, item): value
            for each in runs
            for item, value in enumerate(_listed(self._measured(each, metric or shown.metric)))
        }
        index = pd.MultiIndex.from_tuples(values, names=("repetition", "item")) if values else None
        return pd.Series(list(values.values()), index=index, dtype=float)

    def behind(self, row: str, column: str) -> list[Record]:
        """The records of the finished runs of a cell, at its chosen settings."""
        found = (self.records.get(each.run.key) for each in self.cells.get((row, column), []))
        return [record for record in found if record and record["state"] == "finished"]

    def runs(self) -> list[dict[str, Any]]:
        """The records behind all cells, each once per row, with the label of its row."""
        found = {
            (row, record["key"]): {"row": row, **record}
            for row, column in self.cells
            for record in self.behind(row, column)
        }
        return list(found.values())

    def complete(self, row: str, column: str) -> bool:
        """Whether every planned run of a cell has a record."""
        runs = self.cells.get((row, column), [])
        return bool(runs) and all(each.run.key in self.records for each in runs)

    @property
    def whole(self) -> bool:
        """Whether every planned run has a record."""
        return all(each.run.key in self.records for each in self.planned)

    def begun(self, row: str, column: str) -> bool:
        """Whether a cell has a value, or all its runs and none."""
        return (row, column) in self.cells and (len(self[row, column]) > 0 or self.complete(row, column))

    def published(self, cell: Any) -> tuple[float | None, float | None]:
        """The published value of a cell and its standard error."""
        value = self.study.published.get(tuple(cell)[:2])
        return value if isinstance(value, tuple) else (value, None)

    def table(self) -> pd.DataFrame:
        """Mean, standard error, number of values and published value of every cell."""
        found = {place: self[place] for place in self.cells}
        return pd.DataFrame(
            {place: [of.mean(), of.sem(), len(of), *self.published(place)] for place, of in found.items()},
            index=["mean", "error", "n", "published", "published_error"], dtype=float,
        ).T.rename_axis(["row", "column"])  # fmt: skip

    def __str__(self) -> str:
        """The table as Markdown, with published values in brackets."""
        digits = {name: column.digits for name, column in self.study.columns.items()}
        stats = self.table()
        cells = {
            (row, column): _cell(stat, digits[column])
            for (row, column), stat in stats.iterrows()  # type: ignore[misc]
        }
        columns = list(dict.fromkeys(column for _, column in cells))
        lines = [["", *columns]] + [
            [row, *(cells[row, column] for column in columns)]
            for row in dict.fromkeys(row for row, _ in cells)
        ]
        return "\n".join(
            "| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]]
        )


def arrays_of(record: Record) -> dict[str, np.ndarray]:
    """The arrays that a run left, unpacked."""
    return {name: unpacked(text) for name, text in record.get("arrays", {}).items()}


def packed(array: np.ndarray) -> str:
    """An array as text: a compressed archive in base64."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, array=array)
    return base64.b64encode(buffer.getvalue()).decode()


def unpacked(text: str) -> np.ndarray:
    """The array that `packed` wrote; objects, which could run code, are refused.

    >>> unpacked(packed(np.arange(3.0))).tolist()
    [0.0, 1.0, 2.0]
    """
    array: np.ndarray = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)["array"]
    return array


def _cell(stat: "pd.Series", digits: int) -> str:
    if not stat["n"]:
        return "·"
    error = "" if pd.isna(stat["error"]) else f" ± {stat['error']:.{digits}f}"
    theirs = "" if pd.isna(stat["published"]) else f" [{stat['published']:.{digits}f}]"
    return f"{stat['mean']:.{digits}f}{error}{theirs}"


def _listed(value: Any) -> list[float]:
    return [] if value is None else value if isinstance(value, list) else [value]
