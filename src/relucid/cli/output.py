"""Writing a directory of results: all of it or nothing, and never over other people's files."""

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Name the result that could not be written, not the file inside it that failed."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror or error}") from error


def check_directory(out: Path, ours: Collection[str], force: bool) -> None:
    """Refuse a directory that cannot take a result; only an earlier result, with no files but `ours`, is replaced."""
    if out.is_symlink():
        raise ValueError(f"{out} is a symbolic link, which is never replaced: name the directory itself")
    above = next((place for place in out.parents if place.exists()), None)
    if above is not None and not above.is_dir():
        raise ValueError(f"{above} is a file, not a directory: {out} cannot be in it")
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file, which is never replaced: name a directory")
    foreign = sorted(
        entry.name
        for entry in out.iterdir()
        if entry.name not in ours or entry.is_symlink() or not entry.is_file()
    )
    if foreign:
        raise ValueError(f"{out} holds {foreign[0]}, which is not part of a result: name another directory")
    if any(out.iterdir()) and not force:
        raise ValueError(f"{out} exists; --force replaces it")


def write_directory(out: Path, ours: Collection[str], force: bool, fill: Callable[[Path], None]) -> None:
    """Write all that `fill` writes, or nothing: fill a directory beside `out`, then rename it."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".relucid-") as place:
            filled = Path(place) / "filled"
            filled.mkdir()
            fill(filled)
            for path in filled.iterdir():  # follow the umask; some writers let only the owner read
                path.chmod(filled.stat().st_mode & 0o666)
            check_directory(out, ours, force)
            if out.exists():
                exchange(filled, out)
            else:
                filled.rename(out)


def exchange(new: Path, old: Path) -> None:
    """Put a directory in the place of another; restore the other on failure."""
    aside = new.with_name("replaced")
    try:
        old.rename(aside)
        new.rename(old)
    except BaseException:  # Ctrl-C too
        if aside.exists() and not old.exists():
            aside.rename(old)
        raise
