"""The data directory, found without importing torch."""

import os
from pathlib import Path


def directory() -> Path:
    """The directory of all data sets: `RELUCID_DATA`, or `relucid` in the user's cache.

    >>> directory().is_absolute()
    True
    """
    # The same cache directory on every platform, as in torch.hub and the Hugging Face libraries.
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("RELUCID_DATA") or f"{cache}/relucid").expanduser().absolute()
