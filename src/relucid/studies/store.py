"""Where results are kept: a directory with an SQLite database, one transaction per run."""

import errno
import hashlib
import io
import json
import math
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from relucid.studies.outcome import Outcome, State
from relucid.studies.plan import Run, sha256

VERSION = 4  # of the schema
SCHEMA = (
    """
    CREATE TABLE run (
        key TEXT PRIMARY KEY,
        run TEXT NOT NULL,          -- canonical JSON: runner, version, configuration
        state TEXT NOT NULL,        -- finished, diverged or failed
        metrics TEXT NOT NULL,      -- JSON: name -> number or list of numbers
        history TEXT NOT NULL,      -- JSON: name -> list, one entry per epoch
        error TEXT,                 -- what went wrong, with the traceback
        environment TEXT NOT NULL,  -- JSON: versions, device, commit
        started TEXT NOT NULL,      -- UTC
        seconds REAL NOT NULL,
        digest TEXT NOT NULL        -- SQLite does not notice that a bit of a number has flipped
    )
    """,
    """
    CREATE TABLE array (
        key TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        name TEXT NOT NULL,
        data BLOB NOT NULL,         -- see `packed`
        digest TEXT NOT NULL,
        PRIMARY KEY (key, name)
    )
    """,
    # The error of several runs' vote, imported from a result file without their outputs.
    "CREATE TABLE vote (runs TEXT PRIMARY KEY, error REAL NOT NULL, digest TEXT NOT NULL)",
)
VALUES = "run, state, metrics, history, error, environment, started, seconds"
RESULTS, OPENING = "results.sqlite", "opening.lock"  # files of a store
RACES = 100  # attempts at a lease while others remove its directory


class StoreError(RuntimeError):
    """The store cannot be used; the message says why and what to do."""


def check_version(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that another release has written."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        what = (
            "a newer relucid wrote it: upgrade relucid" if version > VERSION else "an older relucid wrote it"
        )
        raise StoreError(
            f"{path} has schema {version}, not {VERSION} ({what}): name another directory with --store"
        )


def is_store(directory: Path) -> bool:
    """Whether a directory holds results, or is about to: the lock is there before the results."""
    return (directory / RESULTS).exists() or (directory / OPENING).exists()


class Store:
    """Results of runs by their keys, safe from kill -9 and shared by any number of processes on one machine.

    A run is leased by a lock on a file in its work directory; the system releases the lock when the process
    that holds it ends, however it ends, so a lease cannot outlive its process. Nothing is overwritten: the
    first outcome of a run stays, unless it is a failure.

    Args:
        directory: made if it does not exist. It must be on a disk of this machine (SQLite's way of letting
            several processes write does not work over a network); workers may be anywhere.
        create: if False, nothing is made: a store that does not exist is read as an empty one.
    """

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        self.directory = Path(directory)
        self.path = self.directory / RESULTS
        absent = not self.directory.exists() or (self.directory.is_dir() and not self.path.exists())
        if absent and not create:
            self.database = sqlite3.connect(":memory:")
            self._create()
            return
        with self._explained():
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / OPENING):
                self.database = sqlite3.connect(self.path, timeout=60)
                self.database.execute("PRAGMA journal_mode = WAL")
                self._create()
            self.database.execute("PRAGMA synchronous = FULL")
            self.database.execute("PRAGMA foreign_keys = ON")

    def close(self) -> None:
        """Close the database; everything put into it is on disk already."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self, key: str) -> State | None:
        """The state of a run's outcome; None if it has none."""
        with self._explained():
            row = self.database.execute("SELECT state FROM run WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def missing(self, runs: Iterable[Run], *, retry: bool = False) -> list[Run]:
        """The runs that have no outcome; with `retry` those that failed, too."""
        left = (None, "failed") if retry else (None,)
        return [run for run in runs if self.state(run.key) in left]

    def get(self, key: str) -> Outcome | None:
        """The outcome of a run without its arrays; None if it has not been run."""
        with self._explained():
            row = self.database.execute(f"SELECT {VALUES}, digest FROM run WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        *values, seen = row
        # The index may lead to the row of another run, whole as that may be.
        if digest(*values) != seen or sha256(values[0]) != key:
            raise self._damaged(f"run {key[:8]}")
        _, state, metrics, history, error, environment, started, seconds = values
        metrics, history, environment = map(json.loads, (metrics, history, environment))
        return Outcome(state, metrics, history, {}, error, environment, started, seconds)

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of a run by name."""
        try:
            return {name: unpacked(data) for name, data in self.packed_arrays(key).items()}
        except ValueError as error:
            raise StoreError(
                f"cannot read an array of run {key[:8]} in {self.path}: {in_one_line(error)}"
            ) from error

    def packed_arrays(self, key: str) -> dict[str, bytes]:
        """The packed arrays of a run by name."""
        query = "SELECT name, data, digest FROM array WHERE key = ?"
        with self._explained():
            rows = self.database.execute(query, (key,)).fetchall()
        if any(digest(key, name, data) != seen for name, data, seen in rows):
            raise self._damaged(f"an array of run {key[:8]}")
        return {name: data for name, data, _ in rows}

    def runs(self, runner: str | None = None) -> list[Run]:
        """The runs that have an outcome, the latest last; optionally only those of a runner, in any version."""
        with self._explained():
            rows = self.database.execute("SELECT key, run FROM run ORDER BY started").fetchall()
        whole = [json.loads(text) for key, text in rows if sha256(str(text)) == key]
        runs = [Run(each["runner"], each["config"], each["version"]) for each in whole]
        return [run for run in runs if runner is None or run.runner == runner]

    def count(self) -> int:
        """The number of runs with an outcome, including damaged ones."""
        with self._explained():
            (count,) = self.database.execute("SELECT count(*) FROM run").fetchone()
        return int(count)

    def vote(self, keys: Sequence[str]) -> float | None:
        """The error of these runs' vote, if it was imported."""
        return dict(self.votes()).get(tuple(sorted(keys)))

    def votes(self) -> list[tuple[tuple[str, ...], float]]:
        """All imported votes: the sorted keys of the runs, and the error."""
        with self._explained():
            rows = self.database.execute("SELECT runs, error, digest FROM vote").fetchall()
        if any(digest(keys, error) != seen for keys, error, seen in rows):
            raise self._damaged("a vote")
        return [(tuple(json.loads(keys)), error) for keys, error, _ in rows]

    def put_vote(self, keys: Sequence[str], error: float) -> None:
        """Store the error of a vote, if there is none yet."""
        voters = json.dumps(sorted(keys))
        with self._explained(), self.database:
            self.database.execute(
                "INSERT OR IGNORE INTO vote VALUES (?, ?, ?)", (voters, error, digest(voters, error))
            )

    def keep(self, former: Run, run: Run) -> None:
        """Count the outcome of one run for another too, marked with the version that produced it."""
        outcome = self.get(former.key)
        if outcome is not None:
            environment = {"kept": str(former.version), **outcome.environment}
            arrays = self.packed_arrays(former.key)
            self.put_packed(run, replace(outcome, environment=environment), arrays)

    def put(self, run: Run, outcome: Outcome) -> None:
        """Store the outcome of a run, all of it or nothing."""
        self.put_packed(run, outcome, {name: packed(array) for name, array in outcome.arrays.items()})

    def put_packed(self, run: Run, outcome: Outcome, arrays: Mapping[str, bytes]) -> bool:
        """Store an outcome with packed arrays; return False if an earlier outcome stays."""
        values = _values(run, outcome)
        with self._explained(), self.database:
            self.database.execute("DELETE FROM run WHERE key = ? AND state = 'failed'", (run.key,))
            cursor = self.database.execute(
                f"INSERT OR IGNORE INTO run (key, {VALUES}, digest) VALUES ({', '.join('?' * 10)})",
                (run.key, *values, digest(*values)),
            )
            if cursor.rowcount:
                self._put_arrays(run.key, arrays)
        return bool(cursor.rowcount)

    def complete(self, run: Run, history: Mapping[str, list[float]], arrays: Mapping[str, bytes]) -> None:
        """Add the history and the arrays that an outcome was imported without."""
        outcome = self.get(run.key)
        if outcome is None:
            return
        values = _values(run, replace(outcome, history=outcome.history or history))
        with self._explained(), self.database:
            changed = "UPDATE run SET history = ?, digest = ? WHERE key = ?"
            self.database.execute(changed, (values[3], digest(*values), run.key))
            self._put_arrays(run.key, arrays)

    def _put_arrays(self, key: str, arrays: Mapping[str, bytes]) -> None:
        rows = [(key, name, data, digest(key, name, data)) for name, data in arrays.items()]
        self.database.executemany("INSERT OR IGNORE INTO array VALUES (?, ?, ?, ?)", rows)

    def forget_failures(self, keys: Sequence[str]) -> None:
        """Forget the failed ones among these runs, so that they run again."""
        with self._explained(), self.database:
            self.database.executemany(
                "DELETE FROM run WHERE key = ? AND state = 'failed'", [(key,) for key in keys]
            )

    def lease(self, key: str) -> "Lease | None":
        """The right to execute a run and a directory for it, or None while another process has it."""
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
                # A process that finished the run has just removed its directory.
                except (FileExistsError, FileNotFoundError):
                    if attempt == RACES - 1:
                        raise
        return Lease(work, lock)

    def _create(self) -> None:
        """Create the tables of a new database; refuse one that another release has written."""
        (tables,) = self.database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:
            check_version(self.database, self.path)
            return
        with self.database:
            self.database.execute("BEGIN IMMEDIATE")
            for statement in (*SCHEMA, f"PRAGMA user_version = {VERSION}"):
                self.database.execute(statement)

    def _damaged(self, what: str) -> StoreError:
        advice = f"`relucid import {self.directory} --store NEW` imports everything intact into a new store"
        return StoreError(f"{what} in {self.path} is damaged: {advice}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain what went wrong with a file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            text = in_one_line(error)
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

    def release(self) -> None:
        """Let other processes have the run; its directory stays."""
        self.lock.release()

    def finish(self) -> None:
        """Give up the lease for good, once the run's outcome is in the store."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.lock.release()


def _values(run: Run, outcome: Outcome) -> tuple[str | float | None, ...]:
    """The stored values of a run, in the order of `VALUES`."""
    return (
        run.canonical,
        outcome.state,
        _json(outcome.metrics),
        _json(outcome.history),
        outcome.error,
        _json(outcome.environment),
        outcome.started,
        float(outcome.seconds),
    )


def in_one_line(error: Exception) -> str:
    """Put an error message on one line: it may quote the content of a damaged file."""
    return "".join(letter if letter.isprintable() else " " for letter in str(error))


def _json(value: Any) -> str:
    """A value as JSON; numbers that are not finite become null."""

    def finite(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {name: finite(inner) for name, inner in item.items()}
        if isinstance(item, list | tuple):
            return [finite(inner) for inner in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(finite(value), allow_nan=False)


def digest(*values: Any) -> str:
    """A digest of a row's values, which reveals damage to any of them."""
    short = [hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    return sha256(json.dumps(short))


def packed(array: np.ndarray) -> bytes:
    """Pack an array with `numpy.savez_compressed`, under the name "array"."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, array=array)
    return buffer.getvalue()


def unpacked(data: bytes) -> np.ndarray:
    """Unpack an array; refuse objects, which could run code, and damaged data.

    >>> unpacked(packed(np.arange(3.0))).tolist()
    [0.0, 1.0, 2.0]
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            array: np.ndarray = archive["array"]
            return array
    except Exception as error:  # a damaged archive may fail in any way
        raise ValueError(f"it is damaged, or no array of numbers ({error})") from error
