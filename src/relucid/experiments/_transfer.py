"""Records from elsewhere: JSON Lines, a directory of them, a JSON file of an earlier release, or another store."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from relucid.experiments._records import Record, read_lines
from relucid.experiments._store import RESULTS, Store, StoreError, is_store

COMPARED = ("state", "metrics", "history", "arrays")  # the rest may differ: where and when it was computed
AT_A_TIME = 1000  # runs in memory and in a transaction, of a store


class Imported(NamedTuple):
    """What became of an import: runs added, already there, and damaged; keys of runs with another outcome."""

    added: int
    known: int
    damaged: int
    conflicts: list[str]


def import_records(source: Path, store: Store) -> Imported:
    """Add the runs of a file, a directory or a store to a store; nothing in it is overwritten."""
    added, known, damaged, conflicts = 0, 0, 0, list[str]()
    records = _records(source)
    while batch := list(islice(records, AT_A_TIME)):
        intact = {record["key"]: record for record in batch if record is not None}
        present = {key: record for key in intact if (record := store.get(key)) is not None}
        refused = [key for key, record in present.items() if _conflict(record, intact[key])]
        added += (new := store.put(*(record for key, record in intact.items() if key not in refused)))
        known += len(intact) - new - len(refused)
        damaged += batch.count(None)
        conflicts += refused
    return Imported(added, known, damaged, conflicts)


def _conflict(one: Record, other: Record) -> bool:
    """Whether two records have different outcomes; a failure, or arrays left out of a file, are none."""
    if "failed" in (one["state"], other["state"]):
        return False
    compared = [name for name in COMPARED if one.get(name) and other.get(name)]
    return any(_shared(one[name], other[name]) != _shared(other[name], one[name]) for name in compared)


def _shared(value: Any, other: Any) -> Any:
    """What both have by name, or the value itself."""
    if not isinstance(value, Mapping):
        return value
    return {name: item for name, item in value.items() if name in other}


def _records(source: Path) -> Iterator[Record | None]:
    """The records of a source, None for each that is damaged in a store; a file is refused if any is wrong."""
    if not source.exists():
        raise ValueError(f"there is no {source}: name a file of results or the directory of a store")
    if not source.is_dir():
        yield from list(read_lines(source))
    elif is_store(source):
        yield from _of_store(source)
    else:
        paths = sorted(source.glob("*.jsonl"))
        if not paths:
            raise ValueError(f"{source} has no records: name a store, or a directory of .jsonl files")
        yield from [record for path in paths for record in read_lines(path)]


def _of_store(source: Path) -> Iterator[Record | None]:
    """The records of a copy of a store; the original is not written to."""
    with TemporaryDirectory() as directory:
        try:
            with (
                closing(
                    sqlite3.connect(f"{(source / RESULTS).resolve().as_uri()}?mode=ro", uri=True)
                ) as original,
                closing(sqlite3.connect(Path(directory) / RESULTS)) as copy,
            ):
                original.backup(copy)
        except sqlite3.Error as error:
            raise ValueError(
                f"{source / RESULTS} cannot be read ({error}): it is damaged or not a store"
            ) from error
        with Store(directory) as store:
            for key in store:
                try:
                    yield store[key]
                except StoreError:
                    yield None
