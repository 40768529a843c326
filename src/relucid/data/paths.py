"""Where data sets live, and what is said when one is missing or damaged."""

from pathlib import Path

from relucid.paths import directory as directory


class MissingDataError(FileNotFoundError):
    """A data set is not there; the message says what to run or which file to put where."""


class DamagedDataError(ValueError):
    """A data file cannot be used; the message names the file and, where there is one, the row."""


def locate(path: str, advice: str) -> Path:
    """The file or folder `path` of the data directory; if it is missing, `advice` says how to get it."""
    found = directory() / path
    if not found.exists():
        raise MissingDataError(f"{found} does not exist: {advice}; RELUCID_DATA names the data directory")
    return found
