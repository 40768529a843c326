"""Export results from a store to a file, and import them from files and other stores."""

import base64
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from relucid.files import replacing
from relucid.studies.outcome import Outcome, from_record
from relucid.studies.plan import Run
from relucid.studies.store import RESULTS, Store, StoreError, check_version, in_one_line, unpacked
from relucid.studies.table import Table

SMALL = 2**18  # bytes of a packed array that goes into a file; larger ones stay in the store and are named
VOTED = 2**14  # the same for what votes are made of, where their errors are in the file


class ImportedRun(NamedTuple):
    """A run to import, with its arrays packed."""

    run: Run
    outcome: Outcome
    arrays: Mapping[str, bytes]


@dataclass
class Imported:
    """The result of an import: how many runs were added, already there or damaged, and which contradict others."""

    added: int = 0
    there: int = 0
    damaged: int = 0
    conflicts: list[str] = field(default_factory=list)


def export_results(table: Table, store: Store) -> dict[str, Any]:
    """A table and everything behind it, for a file that `import_results` reads; includes arrays of up to 256 kB packed.

    A run names larger ones in `left_out`. In a study with votes their errors are in the file, and the outputs they
    are made of only up to 16 kB.
    """
    votes = any(column.summary == "vote" for column in table.study.columns.values())
    limits = {"outputs": VOTED, "targets": VOTED} if votes else {}
    found = table.to_dict()
    found["runs"] = [
        {**run, **_exported_arrays(store.packed_arrays(run["key"]), limits)} for run in found["runs"]
    ]
    return found


def _exported_arrays(arrays: Mapping[str, bytes], limits: Mapping[str, int]) -> dict[str, Any]:
    small = {name: data for name, data in arrays.items() if len(data) <= limits.get(name, SMALL)}
    fields: dict[str, Any] = {}
    if small:
        fields["arrays"] = {name: base64.b64encode(data).decode() for name, data in small.items()}
    if left_out := sorted(arrays.keys() - small.keys()):
        fields["left_out"] = left_out
    return fields


def file_of(study: str, scale: str) -> str:
    """The name of the result file of a study at a scale.

    >>> file_of("crelu/convpool", "cpu")
    'crelu-convpool-cpu.json'
    """
    return f"{study.replace('/', '-')}-{scale}.json"


def record(table: Table, store: Store, directory: Path) -> Path:
    """Write a table and its runs to the result file of its study and scale; refuse to lose runs that are there."""
    if not directory.is_dir():
        raise ValueError(f"there is no directory {directory}")
    path = directory / file_of(table.study.name, table.scale)
    if path.exists():
        before = json.loads(path.read_text())
        if (before["study"], before["scale"]) != (table.study.name, table.scale):
            raise ValueError(
                f"{path} holds {before['study']} at scale {before['scale']}, which is never overwritten"
            )
        lost = {run["key"] for run in before["runs"]} - {run["key"] for run in table.runs}
        if lost:
            raise ValueError(
                f"{path} has {len(lost)} runs that the store lacks: `relucid import {path}` first adds them to it"
            )
    with replacing(path) as new:
        new.write_text(json.dumps(export_results(table, store), indent=1, ensure_ascii=False) + "\n")
    return path


def check_name(path: Path, recorded: Mapping[str, Any]) -> None:
    """Refuse a result file that is not named for its study and scale: another scale could overwrite it."""
    expected = file_of(recorded["study"], recorded["scale"])
    if path.name != expected:
        raise ValueError(
            f"{path} holds {recorded['study']} at scale {recorded['scale']}; it should be named {expected}"
        )


def import_results(source: str | Path, store: Store) -> Imported:
    """Import the runs of a result file or of another store into a store.

    Nothing is overwritten. A run that is present with the same outcome only gains the arrays it lacks; one with
    another outcome stays as it is and is listed in `conflicts`.
    """
    source, imported, refused = Path(source), Imported(), set[str]()
    with _opened(source) as (count, runs, votes):
        for run, outcome, arrays in runs:
            if outcome.state == "failed" and store.state(run.key):
                imported.there += 1
            elif store.put_packed(run, outcome, arrays):
                imported.added += 1
            elif _same(store.get(run.key), outcome):
                imported.there += 1
                store.complete(run, outcome.history, arrays)
            else:
                refused.add(run.key)
                imported.conflicts.append(f"{run.key[:8]} {run.canonical}")
        imported.damaged = count - imported.added - imported.there - len(imported.conflicts)
        for keys, error in votes:
            if not refused.intersection(keys):
                store.put_vote(keys, error)
    return imported


def _same(here: Outcome | None, there: Outcome) -> bool:
    return here is not None and (here.state, here.metrics) == (there.state, there.metrics)


Votes = list[tuple[tuple[str, ...], float]]


@contextmanager
def _opened(source: Path) -> Iterator[tuple[int, Iterator[ImportedRun], Votes]]:
    """Open a file or a store; give the number of its runs, the runs, and the votes."""
    if not source.exists():
        raise ValueError(f"there is no {source}: name a file of results or the directory of a store")
    if source.is_dir():
        with _copied(source) as store:
            yield store.count(), _runs_of_store(store), store.votes()
    else:
        runs, votes = _runs_of_file(source)
        yield len(runs), iter(runs), votes


@contextmanager
def _copied(source: Path) -> Iterator[Store]:
    """Open a copy of a store; the original is not written to."""
    path = source / RESULTS
    if not path.is_file():
        raise ValueError(f"{source} is not a store: it has no {RESULTS}")
    with TemporaryDirectory() as directory:
        try:
            with (
                closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as original,
                closing(sqlite3.connect(Path(directory) / RESULTS)) as copy,
            ):
                check_version(original, path)
                original.backup(copy)
        except sqlite3.Error as error:
            raise ValueError(
                f"{path} cannot be read ({in_one_line(error)}): it is damaged or not a store"
            ) from error
        with Store(directory) as store:
            yield store


def _runs_of_store(store: Store) -> Iterator[ImportedRun]:
    """The intact runs; skip damaged ones."""
    for run in store.runs():
        try:
            outcome, arrays = store.get(run.key), store.packed_arrays(run.key)
        except StoreError:
            continue
        if outcome is not None:
            yield ImportedRun(run, outcome, arrays)


def _parsed(source: Path) -> dict[str, Any]:
    advice = "it must be a file that `relucid show STUDY --format json` has written"
    try:
        recorded = json.loads(source.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{source} is not JSON ({error}): {advice}") from error
    if not isinstance(recorded, dict) or not isinstance(recorded.get("runs"), list):
        raise ValueError(f"{source} has no runs: {advice}")
    return recorded


def _runs_of_file(source: Path) -> tuple[list[ImportedRun], Votes]:
    """The runs and votes of a result file; refuse all of it if any of it cannot be right."""
    found = _parsed(source)
    try:
        votes = [(tuple(map(str, each["runs"])), float(each["error"])) for each in found.get("votes", [])]
        runs = []
        for record in found["runs"]:
            arrays = {name: _array(data) for name, data in record.get("arrays", {}).items()}
            runs.append(ImportedRun(*from_record(record), arrays))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{source} cannot be imported: {what}") from error
    return runs, votes


def _array(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    unpacked(data)
    return data
