"""From a study to its runs, each with a canonical, hashed configuration."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from itertools import chain, product, zip_longest
from typing import Any

from relucid.studies.study import Column, Config, Grid, Scale, Study, named


@dataclass(frozen=True)
class Run:
    """One run: the name of its runner, a configuration, and the version of the runner they count for.

    >>> Run("gmp/uci", {"rate": 1.0, "seeds": (1, 2)}).config
    {'rate': 1, 'seeds': [1, 2]}
    """

    runner: str
    settings: Config
    version: int | str = 1

    @cached_property
    def canonical(self) -> str:
        """The run as JSON: sorted, without spaces, whole numbers without a point. Equal runs have equal text."""
        whole = {"config": self.settings, "runner": self.runner, "version": self.version}
        return json.dumps(_plain(whole, "config"), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def key(self) -> str:
        """The SHA-256 of `canonical`, which identifies the run."""
        return sha256(self.canonical)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as the function gets it: what was hashed, and nothing else."""
        config: dict[str, Any] = json.loads(self.canonical)["config"]
        return config


def sha256(text: str) -> str:
    """The SHA-256 of any text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


Cells = dict[tuple[str, str], list[Run]]


@dataclass(frozen=True, eq=False)
class Plan(Sequence[Run]):
    """The runs of a study: by cell, and in sequence without duplicates.

    The first run of every cell comes first in the sequence, so that tables fill evenly.

    Args:
        study: the study as it is run at the scale.
        scale: one of its scales.
        cells: the runs of every cell, by row and column.
    """

    study: Study
    scale: str
    cells: Cells

    @cached_property
    def runs(self) -> list[Run]:
        """The sequence."""
        rounds = zip_longest(*self.cells.values())
        return list({run.key: run for run in chain.from_iterable(rounds) if run is not None}.values())

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: Any) -> Any:
        return self.runs[place]


def plan(
    study: "Study | Plan", scale: str | None = None, *, only: str | None = None, seeds: int | None = None
) -> Plan:
    """All runs of a study; a plan is returned as it is.

    Args:
        study: the study.
        scale: one of its scales.
        only: one of its rows.
        seeds: how many seeds to run, where the seed is repeated: the first of them, then the numbers that follow.

    >>> study = Study("s", "", print, {"a": {"x": 1}, "b": {"x": 2}}, {"loss": Column("loss")}, repeat={"seed": [0, 1]})
    >>> [(run.config["x"], run.config["seed"]) for run in plan(study)]
    [(1, 0), (2, 0), (1, 1), (2, 1)]
    """
    if isinstance(study, Plan):
        return study
    scale = scale or study.default_scale
    study = study.at(scale)
    if only is not None:
        named(only, study.rows, "row", f"study {study.name!r}")
    runs = {
        (row, column): _runs(study, study.scales[scale], study.rows[row], study.columns[column], seeds)
        for row in (study.rows if only is None else [only])
        for column in study.columns
    }
    return Plan(study, scale, runs)


def cells(
    study: Study, scale: str | None = None, *, only: str | None = None, seeds: int | None = None
) -> Cells:
    """The runs of every cell of a study, by row and column; the arguments are those of `plan`."""
    return plan(study, scale, only=only, seeds=seeds).cells


def _runs(study: Study, scale: Scale, row: Config, column: Column, seeds: int | None) -> list[Run]:
    grid: Grid = {**study.choose, **(study.repeat if column.repeat is None else column.repeat)}
    pinned = row.keys() | column.config.keys()  # a row or column that fixes a name is not repeated over it
    grid = {name: scale.repeat.get(name, values) for name, values in grid.items() if name not in pinned}
    if seeds is not None and "seed" in grid:
        following = max(grid["seed"], default=-1) + 1
        grid["seed"] = [*grid["seed"], *range(following, following + seeds)][:seeds]
    base = merge(study.config, scale.config, column.config, row)
    return [
        Run(study.runner.name, merge(base, dict(zip(grid, values, strict=True))), study.runner.version)
        for values in product(*grid.values())
    ]


def merge(*configs: Config) -> dict[str, Any]:
    """Deep-merge configurations; later values win.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
    {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    merged: dict[str, Any] = {}
    for config in configs:
        for name, value in config.items():
            old = merged.get(name)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                value = merge(old, value)
            merged[name] = value
    return merged


def flat(config: Config, *path: str) -> dict[tuple[str, ...], Any]:
    """The values of nested dictionaries, by their paths.

    >>> flat({"data": "digits", "recipe": {"lr": 0.1}})
    {('data',): 'digits', ('recipe', 'lr'): 0.1}
    """
    found: dict[tuple[str, ...], Any] = {}
    for name, value in config.items():
        found |= flat(value, *path, name) if isinstance(value, Mapping) else {(*path, name): value}
    return found


def _plain(value: Any, where: str) -> Any:
    """A value as JSON types; anything else raises an error that names its place in the configuration."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and value - value == 0:  # finite
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item, where) for item in value]
    kind = f"{value!r}, a {type(value).__name__}"
    raise TypeError(f"{where} is {kind}; it must be finite numbers, text, or lists or dictionaries of them")
