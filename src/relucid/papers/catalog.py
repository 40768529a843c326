"""Studies by name: those that come with relucid, and a user's own from a file."""

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path

from relucid.printing import suggest
from relucid.studies import Claim, Study, Table
from relucid.studies.study import named
from relucid.studies.travel import check_name

PAPERS = {
    "crelu": "Shang, Sohn, Almeida, Lee: *Understanding and Improving CNNs via Concatenated ReLU* (ICML 2016)",
    "gmp": "Chen, Ge: *Neural Characteristic Activation Value Analysis*",
    "structure": "Li, Yang, Chen, Lin: *Optimization Algorithm Inspired DNN Structure Design* (2018)",
    "ours": "What no paper has asked",
}
"""Titles of the papers, by the name of their room."""


def studies() -> dict[str, tuple[Study, ...]]:
    """The studies of every paper."""
    return {paper: import_module(f"relucid.papers.{paper}").STUDIES for paper in PAPERS}


def statements() -> dict[str, tuple[Claim, ...]]:
    """The claims of every paper that no study covers."""
    return {paper: import_module(f"relucid.papers.{paper}").STATEMENTS for paper in PAPERS}


def built_in() -> dict[str, Study]:
    """The studies that come with relucid, by name."""
    return {study.name: study for found in studies().values() for study in found}


def recorded(directory: Path) -> list[Table]:
    """Read the tables in a directory of result files, each a study at one scale."""
    found = []
    for path in sorted(directory.glob("*.json")):
        each = json.loads(path.read_text())
        if "study" in each:
            check_name(path, each)
            found.append(Table.from_dict(find(each["study"]), each))
    return found


def find(name: str) -> Study:
    """Find a study by name, or in a file: "path/to/my_study.py", or "path/to/my_study.py:name" if it has several."""
    path, _, inner = name.partition(".py:")
    if inner:
        return _from_file(Path(path + ".py"), inner)
    if name.endswith(".py"):
        return _from_file(Path(name))
    # A prefix names its paper: the others are not imported.
    paper = name.partition("/")[0] if "/" in name else "ours"
    mine = import_module(f"relucid.papers.{paper}").STUDIES if paper in PAPERS else ()
    found: dict[str, Study] = {study.name: study for study in mine}
    if name not in found:
        near = suggest(name, built_in())
        raise ValueError(f"there is no study {name!r}{near or ':'} `relucid list` shows all of them")
    return found[name]


def _from_file(path: Path, name: str | None = None) -> Study:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))  # like any script, it can import the files beside it
    # Run under its own name, not imported: functions from no importable module are pickled by value, for workers.
    found = runpy.run_path(str(path), run_name=path.stem)
    studies = {value.name: value for value in found.values() if isinstance(value, Study)}
    if not studies:
        raise ValueError(f"{path} has no study: assign a relucid.studies.Study to a variable in it")
    if name is not None:
        study: Study = named(name, studies, "study", str(path))
        return study
    if len(studies) > 1:
        names = ", ".join(f"{path}:{each}" for each in studies)
        raise ValueError(f"{path} has several studies; name one: {names}")
    return next(iter(studies.values()))
