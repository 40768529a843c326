"""A study: a grid of runs, labeled by row and column. A run is a runner and a configuration, and so has a key."""

import hashlib
import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cached_property
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from relucid.printing import suggest

if TYPE_CHECKING:
    from relucid.experiments._frame import Results
    from relucid.experiments._judge import Claim

Config = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
# The paper's own scale, hours on two cores, less, and seconds.
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

    def __reduce__(self) -> Any:
        """Travel to a worker by name where it can: the decorator has left a runner in its function's place."""
        module, name = (
            getattr(self.function, key, "") for key in ("__module__", "__qualname__")
        )  # not of partial
        if module != "__main__" and name and getattr(sys.modules.get(module), name, None) is self:
            return _by_name, (module, name)
        return Runner, (self.name, self.function, self.version)


def _by_name(module: str, name: str) -> Runner:
    runner: Runner = getattr(importlib.import_module(module), name)
    return runner


def runner(name: str, version: int | str = 1) -> Callable[[Callable[..., Any]], Runner]:
    """Give a function a name and a version: raise the version when its old results no longer count."""
    return lambda function: Runner(name, function, version)


@dataclass(frozen=True)
class Run:
    """One run: what is executed, and the key of its record."""

    runner: str
    config: Config
    version: int | str = 1

    @cached_property
    def key(self) -> str:
        """The SHA-256 of the run as canonical JSON: sorted, without spaces, whole numbers without a point.

        >>> Run("r", {"rate": 1.0, "seeds": range(2)}).key == Run("r", {"seeds": (0, 1), "rate": 1}).key
        True
        """
        whole = {"config": plain(self.config), "runner": self.runner, "version": plain(self.version)}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()

    def begun(self) -> dict[str, Any]:
        """What its record begins with."""
        about = {"key": self.key, "runner": self.runner, "version": self.version}
        return {**about, "config": plain(self.config)}


@dataclass(frozen=True)
class Column:
    """What a column shows of its runs, and the setting it adds to their configuration.

    Args:
        metric: what the function returns under this name: a number, or a list of them (one per split, say).
        config: settings that the column adds.
        repeat: what the runs of a cell differ in; the study's by default.
        best: which values are better; None where neither is.
        digits: after the decimal point.
        perfect: the value of a network without error: 0 for errors, 100 for accuracies in per cent.
        share: every value is 0 or 100, so that counts are compared.
        tries: in a study that tries learning rates, for which setting ("" if there is only one) and which rate.
        examples: of a share in per cent, how many examples it is of.
        vote: the value is the error of the vote of all runs, which leave arrays `outputs` and `targets`.
    """

    metric: str
    config: Config = field(default_factory=dict)
    repeat: Grid | None = None
    best: Literal["lowest", "highest"] | None = "lowest"
    digits: int = 2
    perfect: float = 0.0
    share: bool = False
    tries: tuple[str, float] | None = None
    examples: int = 0
    vote: bool = False


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: settings that are added, other lists to repeat over, fewer rows or columns.

    Args:
        config: settings that the scale adds.
        repeat: lists that replace those of the study and its columns.
        rows: label -> settings that the scale adds to this row; rows that are not named are not run.
        columns: the columns that are run.
    """

    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=dict)
    rows: Mapping[str, Config] | None = None
    columns: Sequence[str] | None = None


class Planned(NamedTuple):
    """A run in its cell: `repetition` is what it shares with other rows, `choice` what was tried for the cell."""

    row: str
    column: str
    repetition: str
    choice: str
    run: Run


@dataclass(frozen=True)
class Study:
    """A table of runs. Later settings win: the study's, the scale's, the column's, the row's, the repetition's.

    Args:
        name: what `relucid run` calls it.
        title: what is compared, in one sentence.
        run: a function whose arguments are the settings, and that returns metrics by name: numbers, or lists of them.
            It may return "history" (lists over epochs) and "arrays" beside them, and take the `relucid.train.Machine`
            it runs on as `machine`.
        rows: label -> settings.
        columns: label -> `Column`.
        scales: how much of it is run, by name.
        config: settings that all runs share.
        repeat: what the runs of a cell differ in.
        choose: a grid from which each cell chooses by the lowest mean of the metric `by`, on data held out.
        by: see `choose`.
        paired: whether rows share data and seeds, so that differences are taken repetition by repetition.
        published: (row, column) -> the published value, or value and standard error.
        splits: rows whose repetitions are random splits of one data set.
        tries: the rates among which every run chooses by itself; it records its choice as the metric "rate".
        paper: the paper's sizes of networks and data, for a study without the scale "full".
        tuning: by scale, the study that chose the learning rates of its rows.
        claims: what it is expected to show.
        figures: functions of its results that return figures (`relucid.report.Figure`).
        page: renders an HTML page of its own.

    >>> def parabola(x, shift):
    ...     return {"value": (x - shift) ** 2}
    >>> study = Study("parabola", "Where it is lowest", parabola, rows={"one": {"x": 1}, "two": {"x": 2}},
    ...               columns={"value": Column("value")}, repeat={"shift": [0, 1]})
    >>> [(planned.row, planned.run.config["shift"]) for planned in study.plan()]
    [('one', 0), ('one', 1), ('two', 0), ('two', 1)]
    """

    name: str
    title: str
    run: Runner | Callable[..., Any]
    rows: Mapping[str, Config]
    columns: Mapping[str, Column]
    scales: Mapping[str, Scale] = field(default_factory=lambda: {"full": Scale()})
    config: Config = field(default_factory=dict)
    repeat: Grid = field(default_factory=lambda: {"seed": range(3)})
    choose: Grid = field(default_factory=dict)
    by: str = "val_error"
    paired: bool = True
    published: Mapping[tuple[str, str], float | tuple[float, float]] = field(default_factory=dict)
    splits: Sequence[str] = ()
    tries: Sequence[float] = ()
    paper: Config = field(default_factory=dict)
    tuning: Mapping[str, "Study"] = field(default_factory=dict)
    claims: "Sequence[Claim]" = ()
    figures: Sequence[Callable[["Results"], Sequence[Any]]] = ()
    page: Callable[["Results"], str] | None = None

    def __post_init__(self) -> None:
        for what in ("name", "rows", "columns"):
            if not getattr(self, what):
                raise ValueError(f"study {self.name!r} has no {what}: a study needs a name, rows and columns")
        _ = self.runner  # refuses what cannot be called
        here = f"study {self.name!r}"
        cells = [(cell, f"what {here} publishes") for cell in self.published]
        cells += [(cell[:2], f"claim {of.where!r} of {here}") for of in self.claims for cell in of.cells()]
        rows = [(row, where) for (row, _), where in cells]
        columns = [(column, where) for (_, column), where in cells]
        for scale in self.scales.values():
            rows += [(row, f"a scale of {here}") for row in scale.rows or ()]
            columns += [(column, f"a scale of {here}") for column in scale.columns or ()]
        for row, where in rows:
            named(row, self.rows, "row", where)
        for column, where in columns:
            named(column, self.columns, "column", where)

    @cached_property
    def runner(self) -> Runner:
        """The runner; a plain function is named by its file and itself."""
        if isinstance(self.run, Runner):
            return self.run
        if not hasattr(self.run, "__qualname__"):
            raise TypeError(f"run of study {self.name!r} is {self.run!r}; it must be a function")
        return Runner(f"{self.run.__module__}:{self.run.__qualname__}", self.run)

    @property
    def default_scale(self) -> str:
        """The scale to run by default: "small" if there is one, else "cpu", else the first."""
        return next((name for name in ("small", "cpu") if name in self.scales), next(iter(self.scales)))

    def largest_first(self) -> list[str]:
        """The names of the scales, the paper's first; "cpu-four" counts as "cpu", other names as "small"."""
        rank = {name: place for place, name in enumerate(SCALES)}
        return sorted(self.scales, key=lambda name: rank.get(name.partition("-")[0], rank["small"]))

    def variant(self, name: str, title: str = "", **changes: Any) -> "Study":
        """Another study that differs in these fields; published values follow its rows and columns."""
        rows, columns = changes.get("rows", self.rows), changes.get("columns", self.columns)
        published = {
            cell: value
            for cell, value in changes.pop("published", self.published).items()
            if cell[0] in rows and cell[1] in columns
        }
        return replace(self, name=name, title=title or self.title, published=published, **changes)

    def plan(
        self, scale: str | None = None, *, only: str | None = None, seeds: int | None = None
    ) -> Iterator[Planned]:
        """Every run of every cell.

        Args:
            scale: one of its scales.
            only: one of its rows.
            seeds: how many seeds to run, where the seed is repeated: the first of them, then the numbers that follow.
        """
        name = scale or self.default_scale
        at: Scale = named(name, self.scales, "scale", f"study {self.name!r}")
        if only is not None:
            named(only, self.rows, "row", f"study {self.name!r}")
        for row in self.rows if at.rows is None else (row for row in self.rows if row in at.rows):
            settings = {**self.rows[row], **(at.rows[row] if at.rows is not None else {})}
            if only in (None, row):
                for column in self.columns if at.columns is None else at.columns:
                    yield from self._cell(at, row, settings, column, seeds)

    def _cell(
        self, at: Scale, row: str, settings: Config, label: str, seeds: int | None
    ) -> Iterator[Planned]:
        column = self.columns[label]
        pinned = settings.keys() | column.config.keys()  # what a row or column fixes is not repeated
        varied = {**self.choose, **(self.repeat if column.repeat is None else column.repeat)}
        grid = {name: at.repeat.get(name, values) for name, values in varied.items() if name not in pinned}
        if seeds is not None and "seed" in grid:
            following = max(grid["seed"], default=-1) + 1
            grid["seed"] = [*grid["seed"], *range(following, following + seeds)][:seeds]
        base = merge(self.config, at.config, column.config, settings)
        for values in product(*grid.values()):
            added = dict(zip(grid, values, strict=True))
            words = {name: f"{name} {value}" for name, value in added.items() if len(grid[name]) > 1}
            choice = ", ".join(text for name, text in words.items() if name in self.choose)
            repetition = ", ".join(text for name, text in words.items() if name not in self.choose)
            run = Run(self.runner.name, merge(base, added), self.runner.version)
            yield Planned(row, label, repetition, choice, run)

    def runs(
        self, scale: str | None = None, *, only: str | None = None, seeds: int | None = None
    ) -> list[Run]:
        """Every run once, the first of every cell first, so that tables fill evenly."""
        cells: dict[tuple[str, str], list[Run]] = {}
        for planned in self.plan(scale, only=only, seeds=seeds):
            cells.setdefault((planned.row, planned.column), []).append(planned.run)
        rounds = chain.from_iterable(zip_longest(*cells.values()))
        return list({run.key: run for run in rounds if run is not None}.values())

    def check(self, scale: str | None = None) -> None:
        """Refuse settings that the function does not take, and arguments that no setting gives."""
        arguments = inspect.signature(self.runner.function).parameters
        variadic = {name for name, of in arguments.items() if of.kind in (of.VAR_POSITIONAL, of.VAR_KEYWORD)}
        needed = {name for name, of in arguments.items() if of.default is of.empty} - variadic - {"machine"}
        for row, _, _, _, run in self.plan(scale):
            unknown = [name for name in run.config if name not in arguments and not variadic]
            missing = [name for name in needed if name not in run.config]
            where = f"row {row!r} of study {self.name!r}"
            if unknown:
                near = suggest(unknown[0], arguments) or f"; it takes {', '.join(arguments)}"
                raise ValueError(f"the function of {where} has no argument {unknown[0]!r}{near}")
            if missing:
                raise ValueError(f"{where} has no setting {missing[0]!r}, which its function needs")

    def source(self) -> str | None:
        """A digest of the file that a plain function is in, as a fact for its records; None for a named runner."""
        if isinstance(self.run, Runner):
            return None
        try:
            file = inspect.getsourcefile(inspect.unwrap(self.run))
            return hashlib.sha256(Path(file or "").read_bytes()).hexdigest()[:12]
        except (OSError, TypeError):
            return None


def by_cell(rows: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> dict[tuple[str, str], Any]:
    """Published values by row and column, from one list per row; None where the paper has no value.

    >>> by_cell({"SP": [3.37, None]}, ["Boston", "Wine"])
    {('SP', 'Boston'): 3.37}
    """
    return {
        (row, column): value
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=False)
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


def plain(value: Any, where: str = "config") -> Any:
    """A configuration as JSON types: whole numbers without a point, ranges and tuples as lists.

    >>> plain({"rates": (0.5, 1.0)})
    {'rates': [0.5, 1]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: plain(item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item, where) for item in value]
    kind = f"{value!r}, a {type(value).__name__}"
    raise TypeError(f"{where} is {kind}; it must be finite numbers, text, or lists or dictionaries of them")


def named(name: str, known: Mapping[str, Any], what: str, where: str = "") -> Any:
    """Look up `name` in `known`; on failure, suggest close matches.

    >>> named("ReLu", {"ReLU": 1, "AVR": 2}, "row", "study 'activations'")
    Traceback (most recent call last):
    ValueError: there is no row 'ReLu' in study 'activations'; did you mean 'ReLU'?
    """
    if name not in known:
        all_known = f"; there are {', '.join(known) or 'none'}"
        place = f" in {where}" if where else ""
        raise ValueError(f"there is no {what} {name!r}{place}{suggest(name, known) or all_known}")
    return known[name]
