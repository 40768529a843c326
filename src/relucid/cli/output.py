"""Writing a directory of results: all of it or nothing, and never over other people's files."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from relucid.files import replacing


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
    """Write all that `fill` writes into a directory, or nothing."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as new:
            new.mkdir()
            fill(new)
            for path in new.iterdir():  # follow the umask; some writers let only the owner read
                path.chmod(new.stat().st_mode & 0o666)
            check_directory(out, ours, force)
