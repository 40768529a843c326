"""Studies by name: those of installed packages, by the entry points "relucid.studies", and those of a user's file."""

import runpy
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from relucid.experiments._judge import Statement
from relucid.experiments._study import Study, named

GROUP = "relucid.studies"


@cache
def rooms() -> dict[str, ModuleType]:
    """The packages that register studies, by the name of their entry point.

    A package has `TABLES`, the modules of its tables in the order of its pages, and `STATEMENTS`; or it is a table
    itself and has `STUDIES`.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: point.load() for point in points}


def tables(room: str) -> list[ModuleType]:
    """The modules of a room's tables: each has `STUDIES`, and an .md file beside it."""
    module = named(room, rooms(), "paper")
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
    try:
        study: Study = named(name, built_in(), "study")
    except ValueError as error:
        short = str(error).partition("; there are ")[0]
        raise ValueError(f"{short}: `relucid list` shows all of them") from None
    return study


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
