"""Migrations that bring the database of an older store up to date."""

import hashlib
import json
import sqlite3
from typing import Any

# One entry per version of the schema: what brings the database from the version before to this one.
MIGRATIONS: list[tuple[str, ...]] = [
    (
        """
        CREATE TABLE run (
            key TEXT PRIMARY KEY,
            run TEXT NOT NULL,          -- canonical JSON: runner, version, configuration
            state TEXT NOT NULL,        -- finished, diverged or failed
            metrics TEXT NOT NULL,      -- JSON: name -> number or list of numbers
            history TEXT NOT NULL,      -- JSON: name -> list, one entry an epoch
            error TEXT,                 -- what went wrong, with the traceback
            environment TEXT NOT NULL,  -- JSON: versions, device, commit
            started TEXT NOT NULL,      -- UTC
            seconds REAL NOT NULL
        )
        """,
        """
        CREATE TABLE array (
            key TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
            name TEXT NOT NULL,
            data BLOB NOT NULL,         -- as numpy.save writes it, compressed
            PRIMARY KEY (key, name)
        )
        """,
    ),
    (  # Runs were named by the path of a Python function; now by the name of their runner.
        """
        UPDATE array SET key = sha256(by_runner((SELECT run FROM run WHERE run.key = array.key)))
        WHERE key IN (SELECT key FROM run)
        """,
        "UPDATE run SET key = sha256(by_runner(run)), run = by_runner(run)",
    ),
    (  # The error of several runs' vote, where a file of results has brought it but not their outputs.
        "CREATE TABLE vote (runs TEXT PRIMARY KEY, error REAL NOT NULL)",
    ),
    (  # SQLite does not see that a bit of a number has flipped.
        "ALTER TABLE run ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "UPDATE run SET digest = digest(run, state, metrics, history, error, environment, started, seconds)",
        "ALTER TABLE array ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "UPDATE array SET digest = digest(key, name, data)",
        "ALTER TABLE vote ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "UPDATE vote SET digest = digest(runs, error)",
    ),
]

# The runners of those functions. A user's own function is called what it was called.
RUNNERS = {
    "relucid.studies.crelu.convpool:run": "crelu/convpool",
    "relucid.studies.crelu.imagenet:count": "crelu/parameters",
    "relucid.studies.crelu.imagenet:run": "crelu/imagenet",
    "relucid.studies.crelu.random:run": "crelu/random",
    "relucid.studies.crelu.vgg:run": "crelu/vgg",
    "relucid.studies.gmp.evolution:run": "gmp/evolution",
    "relucid.studies.gmp.images:run": "gmp/images",
    "relucid.studies.gmp.perturbation:run": "gmp/perturbation",
    "relucid.studies.gmp.uci:run": "gmp/uci",
    "relucid.studies.merge:run": "merge",
    "relucid.studies.quickstart:run": "quickstart",
    "relucid.studies.structure.cifar:run": "structure/cifar",
    "relucid.studies.structure.convergence:compare": "structure/lemma1",
    "relucid.studies.structure.convergence:count": "structure/convergence",
    "relucid.studies.structure.deep:run": "structure/deep",
    "relucid.studies.structure.depth:run": "structure/depth",
    "relucid.studies.structure.imagenet:run": "structure/imagenet",
    "relucid.studies.together:run": "together",
}


def migrate(database: sqlite3.Connection, version: int) -> None:
    """Migrate a database from this version to the newest, each step in one transaction."""
    database.create_function("sha256", 1, sha256)
    database.create_function("by_runner", 1, by_runner)
    database.create_function("digest", -1, digest)
    for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        with database:
            database.execute("BEGIN IMMEDIATE")
            for statement in statements:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {number}")


def sha256(text: str) -> str:
    """The SHA-256 of any text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def digest(*values: Any) -> str:
    """A digest of a row's values, which reveals damage to any of them."""
    short = [hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    return sha256(json.dumps(short))


def by_runner(run: str) -> str:
    """A run's canonical JSON with its runner instead of its function.

    >>> by_runner('{"config":{},"function":"relucid.studies.gmp.images:run","version":1}')
    '{"config":{},"runner":"gmp/images","version":1}'
    """
    found = json.loads(run)
    function = found.pop("function")
    found["runner"] = RUNNERS.get(function, function)
    if found["runner"] == "gmp/uci":
        found["config"].setdefault("first", 0)  # there were ten splits, and no others that might come first
    return json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
