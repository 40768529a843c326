"""Records from elsewhere: JSON Lines, a directory of them, a JSON file of an earlier release, or another store."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from relucid.experiments._records import Record, read_lines
from relucid.experiments._store import RESULTS, Store, StoreError, is_store

COMPARED = ("metrics", "history", "arrays")  # the rest may differ: where and when it was computed
AT_A_TIME = 1000  # runs in memory and in a transaction, of a store


def import_records(source: Path, store: Store) -> dict[str, list[str]]:
    """Add the runs of a file, a directory or a store to a store; nothing in it is overwritten.

    Returns the keys of the runs that are "added", "known", "damaged" in their store, or "refused" for another outcome.
    """
    keys: dict[str, list[str]] = {"added": [], "known": [], "damaged": [], "refused": []}
    records = _records(source)
    while batch := dict(islice(records, AT_A_TIME)):
        new = []
        for key, record in batch.items():
            if record is None:
                fate = "damaged"
            elif (known := store.get(key)) is None or known["state"] == "failed":
                fate = "added"
                new.append(record)
            else:
                fate = "refused" if _conflict(known, record) else "known"
            keys[fate].append(key)
        store.put(*new)
    return keys


def _conflict(known: Record, other: Record) -> bool:
    """Whether two records have different outcomes; a failure, or arrays left out of a file, are none."""
    return other["state"] != "failed" and (
        other["state"] != known["state"]
        or any(
            known.get(part, {}).get(name, value) != value
            for part in COMPARED
            for name, value in other.get(part, {}).items()
        )
    )


def _records(source: Path) -> Iterator[tuple[str, Record | None]]:
    """The records of a source by key, None for each that is damaged in a store; a file is refused if any is wrong."""
    if not source.exists():
        raise ValueError(f"there is no {source}: name a file of results or the directory of a store")
    if source.is_dir() and is_store(source):
        yield from _of_store(source)
        return
    paths = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    if not paths:
        raise ValueError(f"{source} has no records: name a store, or a directory of .jsonl files")
    yield from [(record["key"], record) for path in paths for record in read_lines(path)]


def _of_store(source: Path) -> Iterator[tuple[str, Record | None]]:
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
                    yield key, store[key]
                except StoreError:
                    yield key, None
