"""A study: a grid of runs, labelled by row and column. A run is a runner's name and a configuration, and so has a key."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from relucid.experiments._frame import Results
    from relucid.experiments._judge import Claim

Config = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
SCALES = ("full", "cpu", "small", "smoke")


@dataclass(frozen=True)
class Runner:
    """A function under the name and version by which its runs are known, wherever the code lives."""

    name: str
    function: Callable[..., Mapping[str, Any]]
    version: int | str = 1

    def __call__(self, **config: Any) -> Mapping[str, Any]:
        """Call the function with a configuration."""
        return self.function(**config)


def runner(name: str, version: int | str = 1) -> Callable[[Callable[..., Any]], Runner]:
    """Give a function a name and a version: raise the version when its old results no longer count."""
    return lambda function: Runner(name, function, version)


@dataclass(frozen=True)
class Run:
    """One run: what is executed, and the key of its record."""

    runner: str
    config: Config
    version: int | str = 1

    @property
    def key(self) -> str:
        """The SHA-256 of the run as canonical JSON.

        >>> Run("r", {"rate": 1.0, "seeds": range(2)}).key == Run("r", {"seeds": (0, 1), "rate": 1}).key
        True
        """
        whole = plain({"config": self.config, "runner": self.runner, "version": self.version})
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Column:
    """What a column shows of its runs, and the setting it adds to their configuration."""

    metric: str
    config: Config = field(default_factory=dict)
    repeat: Grid | None = None
    best: Literal["lowest", "highest"] | None = "lowest"
    digits: int = 2
    perfect: float = 0.0
    share: bool = False  #: every value is 0 or 100, so that counts are compared
    tries: tuple[str, float] | None = (
        None  #: in a study that tries learning rates: for which setting, and which rate
    )
    examples: int = 0  #: how many examples a share in per cent is of
    vote: bool = False  #: the value is the error of the vote of all its runs


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: settings that are added, shorter lists, fewer rows or columns."""

    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=dict)
    rows: Mapping[str, Config] | None = None
    columns: Sequence[str] | None = None


class Planned(NamedTuple):
    """A run in its cell: `repetition` is what it shares with runs of other rows, `choice` what was tried for the cell."""

    row: str
    column: str
    repetition: str
    choice: str
    run: Run


@dataclass(frozen=True)
class Study:
    """A table of runs. Later settings win: the study's, the scale's, the column's, the row's, the repetition's."""

    name: str
    title: str
    run: Runner
    rows: Mapping[str, Config]
    columns: Mapping[str, Column]
    scales: Mapping[str, Scale] = field(default_factory=lambda: {"full": Scale()})
    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=lambda: {"seed": range(3)})
    choose: Grid = field(default_factory=dict)
    by: str = "val_error"
    paired: bool = True
    published: Mapping[tuple[str, str], float | tuple[float, float]] = field(default_factory=dict)
    splits: Sequence[str] = ()  #: rows whose repetitions are random splits of one data set
    tries: Sequence[float] = ()  #: the rates among which every run chooses by itself
    paper: Config = field(default_factory=dict)  #: the paper's sizes, if no scale has them
    tuning: Mapping[str, "Study"] = field(
        default_factory=dict
    )  #: by scale: the study that chose the learning rates
    claims: "Sequence[Claim]" = ()
    figures: Sequence[Callable[["Results"], Sequence[Any]]] = ()  #: functions of results that return figures
    page: Callable[["Results"], str] | None = None  #: for a study whose HTML page is its own

    def variant(self, name: str, title: str = "", **changes: Any) -> "Study":
        """Another study that differs in these fields; published numbers follow its rows and columns."""
        made = replace(self, name=name, title=title or self.title, **changes)
        kept = {
            cell: value
            for cell, value in made.published.items()
            if cell[0] in made.rows and cell[1] in made.columns
        }
        return replace(made, published=kept)

    def plan(self, scale: str) -> Iterator[Planned]:
        """Every run of every cell."""
        at = self.scales[scale]
        rows = (
            self.rows
            if at.rows is None
            else {row: {**self.rows[row], **at.rows[row]} for row in self.rows if row in at.rows}
        )
        for row, own in rows.items():
            for name in at.columns or self.columns:
                column = self.columns[name]
                repeat = self.repeat if column.repeat is None else column.repeat
                pinned = own.keys() | column.config.keys()
                grid = {
                    key: at.repeat.get(key, values)
                    for key, values in {**self.choose, **repeat}.items()
                    if key not in pinned
                }
                base = merge(self.config, at.config, column.config, own)
                for values in product(*grid.values()):
                    added = dict(zip(grid, values, strict=True))
                    repetition, choice = (
                        ", ".join(
                            f"{key} {value}"
                            for key, value in added.items()
                            if (key in self.choose) == chosen and len(grid[key]) > 1
                        )
                        for chosen in (False, True)
                    )
                    yield Planned(
                        row,
                        name,
                        repetition,
                        choice,
                        Run(self.run.name, merge(base, added), self.run.version),
                    )


def by_cell(rows: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> dict[tuple[str, str], Any]:
    """Published values by row and column, from one list per row; None where the paper has no value."""
    return {
        (row, column): value
        for row, values in rows.items()
        for column, value in zip(columns, values)
        if value is not None
    }


def merge(*configs: Config) -> dict[str, Any]:
    """Deep-merge configurations; later values win.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
    {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    merged: dict[str, Any] = {}
    for config in configs:
        for name, value in config.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
            merged[name] = merge(merged[name], value) if both else value
    return merged


def plain(value: Any) -> Any:
    """A configuration as JSON types: whole numbers without a point, ranges and tuples as lists."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple | range) else value
