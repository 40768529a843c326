"""Where records are kept: a directory with an SQLite database, one JSON document and one transaction per run."""

import base64
import errno
import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from relucid.experiments._records import Record, unversioned, vote_record

VERSION = 5  # of the schema
TABLE = """
CREATE TABLE IF NOT EXISTS record (
    key TEXT PRIMARY KEY,
    document TEXT NOT NULL,  -- JSON
    sum INTEGER NOT NULL     -- CRC-32 of the document: SQLite does not notice that a bit has flipped
) WITHOUT ROWID
"""
RESULTS, OPENING = "results.sqlite", "opening.lock"  # files of a store
RACES = 100  # attempts at a lease while others remove its directory


class StoreError(RuntimeError):
    """The store cannot be used; the message says why and what to do."""


def default_store() -> Path:
    """The default directory of results: `RELUCID_STORE`, or `runs` in the working directory."""
    return Path(os.environ.get("RELUCID_STORE") or "runs").expanduser()


def is_store(directory: Path) -> bool:
    """Whether a directory holds results, or is about to: the lock is there before the results."""
    return (directory / RESULTS).exists() or (directory / OPENING).exists()


class Store(Mapping[str, Record]):
    """Records by key, safe from kill -9 and shared by any number of processes on one machine.

    A run is leased by a lock on a file in its work directory; the system releases the lock when the process that holds
    it ends, however it ends, so a lease cannot outlive its process. Nothing is overwritten: the first outcome of a run
    stays, unless it is a failure.

    Args:
        directory: made if it does not exist. It must be on a disk of this machine (SQLite's way of letting several
            processes write does not work over a network); workers may be anywhere.
        create: if False, nothing is made: a store that does not exist is read as an empty one.
    """

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        self.directory = Path(directory)
        self.path = self.directory / RESULTS
        if not create and not self.path.exists() and (self.directory.is_dir() or not self.directory.exists()):
            self.database = sqlite3.connect(":memory:", isolation_level=None)
            self.database.execute(TABLE)
            self.place = None
            return
        with self._explained():
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / OPENING):
                self.database = sqlite3.connect(self.path, timeout=60, isolation_level=None)
                self.database.execute("PRAGMA journal_mode = WAL")
                self._prepare()
            self.database.execute("PRAGMA synchronous = FULL")
            self.place = _place(self.path)

    def close(self) -> None:
        """Close the database; everything put into it is on disk already."""
        try:
            self._check_place()
        finally:
            self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        with self._explained():
            row = self.database.execute("SELECT 1 FROM record WHERE key = ?", (key,)).fetchone()
        return row is not None

    def __getitem__(self, key: str) -> Record:
        with self._explained():
            row = self.database.execute("SELECT document, sum FROM record WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return self._record(key, *row)

    def __len__(self) -> int:
        with self._explained():
            return int(self.database.execute("SELECT count(*) FROM record").fetchone()[0])

    def __iter__(self) -> Iterator[str]:
        with self._explained():
            keys = self.database.execute("SELECT key FROM record").fetchall()
        return (key for (key,) in keys)

    def put(self, *records: Record) -> int:
        """Keep records, all or none; return how many are new. An earlier outcome stays, unless it is a failure."""
        with self._explained(), _transaction(self.database):
            added = sum(_put(self.database, record) for record in records)
        self._check_place()
        return added

    def forget_failures(self, keys: Sequence[str]) -> None:
        """Forget the failed ones among these runs, so that they run again."""
        with self._explained(), _transaction(self.database):
            for key in keys:
                self.database.execute(FORGET, (key,))

    def lease(self, key: str) -> "Lease | None":
        """The right to execute a run and a directory for it, or None while another process has it."""
        self._check_place()
        work = self.directory / "work" / key
        lock = FileLock(work / "lock", thread_local=False)
        with self._explained():
            for attempt in range(RACES):
                try:
                    work.mkdir(parents=True, exist_ok=True)
                    lock.acquire(timeout=0)
                    break
                except Timeout:
                    return None
                except (FileExistsError, FileNotFoundError):  # a process that finished it has just removed it
                    if attempt == RACES - 1:
                        raise
        return Lease(work, lock)

    def _record(self, key: str, document: str, expected: int) -> Record:
        if zlib.crc32(document.encode()) != expected:
            raise StoreError(
                f"run {key[:8]} in {self.path} is damaged: `relucid import {self.directory} --store NEW` imports "
                "everything intact into a new store"
            )
        record: Record = json.loads(document)
        return record

    def _prepare(self) -> None:
        """Create the table of a new database, take over one of schema 4, refuse any other."""
        (tables,) = self.database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (version,) = self.database.execute("PRAGMA user_version").fetchone()
        if tables and version == 4:
            copy = self.path.with_name(f"{RESULTS}.4")
            if not copy.exists():
                self.database.execute("VACUUM INTO ?", (str(copy),))
        elif tables and version != VERSION:
            what = (
                "a newer relucid wrote it: upgrade relucid"
                if version > VERSION
                else "relucid did not write it"
            )
            raise StoreError(
                f"{self.path} has schema {version}, not {VERSION} ({what}): name another directory with --store"
            )
        with _transaction(self.database):
            self.database.execute(TABLE)
            if tables and version == 4:
                _migrate(self.database)
            self.database.execute(f"PRAGMA user_version = {VERSION}")

    def _check_place(self) -> None:
        """Stop if the directory was moved or removed, after saving what the open database still holds beside it."""
        if self.place is None or _place(self.path) == self.place:
            return
        self.place = None  # closing the database after this error saves nothing a second time
        parent = self.directory.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            saved = Path(tempfile.mkdtemp(prefix=f"{self.directory.name}-saved-", dir=parent))
            self.database.execute("VACUUM INTO ?", (str(saved / RESULTS),))
            what = (
                f"all records are saved in {saved}: continue with --store {saved}, or add them to another store with "
                f"`relucid import {saved} --store STORE`"
            )
        except (sqlite3.Error, OSError) as error:
            what = f"its records are where it was moved to, and could not be saved in {parent} ({error})"
        raise StoreError(f"{self.directory} was moved or removed while it was in use; {what}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain what went wrong with a file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            text = "".join(letter if letter.isprintable() else " " for letter in str(error))
            if "full" in text or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
                what = "its disk is full: make room and run the same command again, what is finished is kept"
            elif "locked" in text:
                what = "another process has kept it locked for a minute: try again"
            elif any(word in text for word in ("not a database", "malformed", "decode")):
                what = "it is damaged or not a database: move it away, or name another directory with --store"
            else:
                what = "name a directory that can be written to with --store"
            raise StoreError(f"cannot use {self.path} ({text}): {what}") from error


@dataclass(frozen=True, eq=False)
class Lease:
    """The right to execute a run, and a directory for its checkpoints that outlives its process."""

    directory: Path
    lock: FileLock

    def release(self, *, finished: bool = False) -> None:
        """Give it up; of a finished run the directory goes, too."""
        if finished:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.lock.release()


FORGET = "DELETE FROM record WHERE key = ? AND json_extract(document, '$.state') = 'failed'"


def _put(database: sqlite3.Connection, record: Record) -> int:
    document = json.dumps(record, allow_nan=False)
    database.execute(FORGET, (record["key"],))
    values = record["key"], document, zlib.crc32(document.encode())
    return database.execute("INSERT OR IGNORE INTO record VALUES (?, ?, ?)", values).rowcount


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, and nobody else writes meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # SQLite has rolled it back itself where the disk is full
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _place(path: Path) -> tuple[int, int] | None:
    """What a path leads to: its device and inode."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _migrate(database: sqlite3.Connection) -> None:
    """Take over the runs of the release before, whose schema is 4; to be deleted two releases later."""
    arrays: dict[str, dict[str, str]] = {}
    for key, name, data in database.execute("SELECT key, name, data FROM array"):
        arrays.setdefault(key, {})[name] = base64.b64encode(data).decode()
    columns = "key, run, state, metrics, history, error, environment, started, seconds"
    # The newest first: of a plain function's runs, all versions of its file become version 1.
    for key, *row in database.execute(f"SELECT {columns} FROM run ORDER BY started DESC").fetchall():
        whole, state, metrics, history, error, environment, started, seconds = row
        run = unversioned(json.loads(whole))
        outcome: dict[str, Any] = {
            "state": state, "metrics": json.loads(metrics), "history": json.loads(history), "error": error,
            "environment": json.loads(environment), "started": started, "seconds": seconds,
            "arrays": arrays.get(key, {}),
        }  # fmt: skip
        _put(database, {**run, **outcome})
    for runs, error in database.execute("SELECT runs, error FROM vote").fetchall():
        _put(database, vote_record(json.loads(runs), error, ""))
    for table in ("vote", "array", "run"):
        database.execute(f"DROP TABLE {table}")
