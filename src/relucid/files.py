"""Write a file or a directory: all of it or nothing."""

import ctypes
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OURS = Path(__file__).parent
# Python itself and installed packages:
INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux, from fcntl.h and stdio.h


def is_the_users(file: str) -> bool:
    """Whether a file is the user's: not relucid's, Python's or a package's, and not generated at run time."""
    return not file.startswith("<") and not any(Path(file).is_relative_to(p) for p in (OURS, *INSTALLED))


def _prefix(path: Path) -> str:
    """The beginning of the name of the directory in which `path` is written."""
    return f".relucid-{path.name[:50]}-"


def clear_beside(path: Path) -> None:
    """Remove what a process that was killed while it wrote `path` has left; no other may be writing it."""
    for place in path.parent.iterdir() if path.parent.is_dir() else ():
        if place.name.startswith(_prefix(path)):
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a place beside `path` for a new file or directory, which then takes the place of `path`.

    On an error, Ctrl-C included, `path` stays as it was, and nothing else is left. At every moment the old or the new
    one is in its place, whole; a kill leaves at most a directory `.relucid-*` beside it. Only where the system cannot
    exchange two directories, a kill between two renames leaves the old one in there.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_prefix(path)) as beside:
        new, old = Path(beside) / "new", Path(beside) / "old"
        yield new
        if not path.is_dir():
            new.replace(path)
        elif not _exchanged(new, path):
            try:
                path.rename(old)
                new.rename(path)
            except BaseException:
                if old.exists() and not path.exists():
                    old.rename(path)
                raise


def _exchanged(one: Path, other: Path) -> bool:
    """Let two directories change places in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    paths = map(os.fsencode, (one, other))
    return rename is not None and rename(AT_FDCWD, next(paths), AT_FDCWD, next(paths), RENAME_EXCHANGE) == 0
