"""Studies by name: those that come with relucid, and a user's own from a file."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

from relucid.studies.study import Study, named

MODULES: tuple[str, ...] = (  # each has STUDIES
    "relucid.studies.quickstart",
    "relucid.studies.structure",
    "relucid.studies.together",
    "relucid.studies.gmp",
    "relucid.studies.crelu",
    "relucid.studies.merge",
)


def built_in() -> dict[str, Study]:
    """The studies that come with relucid, by name."""
    return {study.name: study for module in MODULES for study in import_module(module).STUDIES}


def find(name: str) -> Study:
    """A study by its name, or from a file: "path/to/my_study.py", "path/to/my_study.py:name" if it has several."""
    path, _, inner = name.partition(".py:")
    if inner:
        return _from_file(Path(path + ".py"), inner)
    if name.endswith(".py"):
        return _from_file(Path(name))
    study: Study = named(name, built_in(), "study")
    return study


def _from_file(path: Path, name: str | None = None) -> Study:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))  # as for any script, what lies beside it can be imported
    # Under its own name, not as a module: functions of no importable module travel to other processes whole.
    try:
        found = runpy.run_path(str(path), run_name=path.stem)
    except SystemExit as error:
        raise ValueError(
            f"{path} ends by sys.exit() when it is loaded; it must leave its study behind"
        ) from error
    studies = {value.name: value for value in found.values() if isinstance(value, Study)}
    if not studies:
        raise ValueError(f"{path} has no study: it must have a variable that is a relucid.studies.Study")
    if name is not None:
        study: Study = named(name, studies, f"study in {path}")
        return study
    if len(studies) > 1:
        names = ", ".join(f"{path}:{each}" for each in studies)
        raise ValueError(f"{path} has several studies; name one: {names}")
    return next(iter(studies.values()))
