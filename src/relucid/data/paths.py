"""Where data sets live, and the errors for one that is missing or damaged."""

import os
from pathlib import Path


class MissingDataError(FileNotFoundError):
    """A data set is not there; the message says what to run or which file to put where."""


class DamagedDataError(ValueError):
    """A data file cannot be used; the message names the file and, where there is one, the row."""


def locate(path: str, advice: str) -> Path:
    """The file or folder `path` of the data directory; if it is missing, `advice` says how to get it."""
    file = directory() / path
    if not file.exists():
        raise MissingDataError(f"{file} does not exist: {advice}; RELUCID_DATA names the data directory")
    return file


def directory() -> Path:
    """The directory of all data sets: `RELUCID_DATA`, or `relucid` in the user's cache.

    >>> directory().is_absolute()
    True
    """
    # The same cache directory on every platform, as in torch.hub and the Hugging Face libraries.
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("RELUCID_DATA") or f"{cache}/relucid").expanduser().absolute()
