"""Where records are kept: a directory with an SQLite database, one JSON document and one transaction per run."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from relucid.experiments._frame import Record

VERSION = 5


class Lease:
    """The right to execute a run. The system releases its lock when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory  #: for checkpoints, which outlive the process
        directory.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(directory / "lock", thread_local=False)

    def acquire(self) -> bool:
        """Whether the run is ours; False while another process has it."""
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self, *, finished: bool) -> None:
        """Give up the lease; of a finished run the directory goes, too."""
        if finished:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.lock.release()


class Store:
    """Records by key, safe from kill -9 and shared by any number of processes on one machine. Nothing is overwritten."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(self.directory / "results.sqlite", timeout=60, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = FULL")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID"
        )
        self.database.execute(f"PRAGMA user_version = {VERSION}")

    def __contains__(self, key: str) -> bool:
        return bool(self.database.execute("SELECT 1 FROM run WHERE key = ?", (key,)).fetchone())

    def __iter__(self) -> Iterator[Record]:
        return (json.loads(text) for (text,) in self.database.execute("SELECT document FROM run"))

    def put(self, record: Record) -> bool:
        """Keep a record; False if an earlier outcome stays. A failure gives way to any outcome."""
        with self.database:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.execute(
                "DELETE FROM run WHERE key = ? AND json_extract(document, '$.state') = 'failed'",
                (record["key"],),
            )
            added = self.database.execute(
                "INSERT OR IGNORE INTO run VALUES (?, ?)", (record["key"], json.dumps(record))
            )
        return bool(added.rowcount)

    def lease(self, key: str) -> Lease | None:
        """The right to execute a run; None while another process has it."""
        lease = Lease(self.directory / "work" / key)
        return lease if lease.acquire() else None
