"""Code that is not ours: a user's network, data or study. Where it fails, one sentence says at which line."""

import linecache
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import FrameSummary, extract_tb

OURS = Path(__file__).parents[1]
INSTALLED = tuple(
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)  # of Python and of packages
LONGEST = 400  # characters of somebody else's message


class ForeignError(Exception):
    """Code that is not ours has failed; the message says which, how, and at which line."""


@contextmanager
def foreign(failure: str, *ours: type[Exception]) -> Iterator[None]:
    """Run code that is not ours: its output does not mix with ours, and what goes wrong is a `ForeignError`.

    Args:
        failure: the beginning of the sentence, such as "my_net.py:build fails".
        ours: errors that relucid raises in words for the user; they pass, as do others that it raises by itself.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ours:
        raise
    except (Exception, SystemExit) as error:
        frames = extract_tb(error.__traceback__)
        place = _place(error, frames)
        if not place and Path(frames[-1].filename).is_relative_to(OURS):
            raise
        raise ForeignError(f"{failure}: {_what(error)}{place}") from error


def first_line(error: BaseException) -> str:
    """The beginning of what an error says, without the lists and traces that may follow."""
    said = (isinstance(error, OSError) and error.strerror) or str(error)
    lines = said.strip().splitlines()
    line = lines[0].strip() if lines else type(error).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _what(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program by sys.exit({'' if error.code is None else repr(error.code)})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind or type(error) is RuntimeError else f"{kind}: {said}"


def _place(error: BaseException, frames: list[FrameSummary]) -> str:
    """The last line of the user's own files that was reached, in brackets; empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _line(error.filename, error.lineno, error.text or "")
    for frame in reversed(frames):
        if frame.lineno and _is_the_users(frame.filename):
            return _line(frame.filename, frame.lineno, linecache.getline(frame.filename, frame.lineno))
    return ""


def _line(file: str, number: int, source: str) -> str:
    source = source.strip()
    return f" ({Path(file).name}, line {number}{': ' if source else ''}{source[:LONGEST]})"


def _is_the_users(file: str) -> bool:
    """Whether code is neither ours nor Python's nor an installed package's, nor made while it ran."""
    return not file.startswith("<") and not any(Path(file).is_relative_to(p) for p in (OURS, *INSTALLED))
