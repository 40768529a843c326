"""Studies by name: those of installed packages, by the entry points "relucid.studies", and those of a user's file."""

import runpy
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import cast

from relucid.experiments._judge import Statement
from relucid.experiments._study import Study, named
from relucid.printing import suggest

GROUP = "relucid.studies"


@cache
def _points() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


@cache
def rooms() -> dict[str, ModuleType]:
    """The packages that register studies, by the name of their entry point.

    A package has `TABLES`, the modules of its tables in the order of its pages, and `STATEMENTS`; or it is a table
    itself and has `STUDIES`.
    """
    return {point.name: point.load() for point in _points()}


def tables(room: str) -> list[ModuleType]:
    """The modules of a room's tables: each has `STUDIES`, and an .md file beside it."""
    return _tables(named(room, rooms(), "paper"))


def _tables(module: ModuleType) -> list[ModuleType]:
    return list(getattr(module, "TABLES", [module]))


def studies(room: str) -> list[Study]:
    """The studies of a room."""
    return [study for table in tables(room) for study in table.STUDIES]


def statements(room: str) -> list[Statement]:
    """The theorems, definitions and counts of a room's paper."""
    return list(getattr(rooms()[room], "STATEMENTS", []))


def built_in() -> dict[str, Study]:
    """All registered studies, by name."""
    return {study.name: study for room in rooms() for study in studies(room)}


def find(name: str) -> Study:
    """Find a study by name, or in a file: "path/to/my_study.py", or "path/to/my_study.py:name" if it has several."""
    path, _, inner = name.partition(".py:")
    if inner:
        return _from_file(Path(f"{path}.py"), inner)
    if name.endswith(".py"):
        return _from_file(Path(name))
    paper = name.partition("/")[0]
    for point in sorted(
        _points(), key=lambda point: point.name != paper
    ):  # its own paper first, most often alone
        for table in _tables(point.load()):
            if study := next((study for study in table.STUDIES if study.name == name), None):
                return cast("Study", study)
    raise ValueError(
        f"there is no study {name!r}{suggest(name, built_in())}: `relucid list` shows all of them"
    )


def _from_file(path: Path, name: str | None = None) -> Study:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))  # like any script, it can import the files beside it
    # Run under its own name, not imported: functions from no importable module are pickled by value, for workers.
    values = runpy.run_path(str(path), run_name=path.stem).values()
    found = {value.name: value for value in values if isinstance(value, Study)}
    if not found:
        raise ValueError(f"{path} has no study: assign a relucid.experiments.Study to a variable in it")
    if name is not None:
        study: Study = named(name, found, "study", str(path))
        return study
    if len(found) > 1:
        names = ", ".join(f"{path}:{each}" for each in found)
        raise ValueError(f"{path} has several studies; name one: {names}")
    return next(iter(found.values()))
