"""Write a file or a directory: all of it or nothing."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a place beside `path` for a new file or directory, which then takes the place of `path`.

    On an error, Ctrl-C included, `path` stays as it was, and nothing else is left.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".relucid-") as beside:
        new, old = Path(beside) / "new", Path(beside) / "old"
        yield new
        if not path.is_dir():
            new.replace(path)
            return
        try:
            path.rename(old)
            new.rename(path)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise
