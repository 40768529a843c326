"""Running a user's code: a network, data or a study. If it fails, one sentence says how and at which line."""

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import FrameSummary, extract_tb

from relucid.files import OURS, is_the_users
from relucid.printing import LONGEST, first_line


class ForeignError(Exception):
    """A user's code has failed; the message says what failed, how, and at which line."""


@contextmanager
def foreign(failure: str, *ours: type[Exception]) -> Iterator[None]:
    """Run a user's code: redirect its output to standard error, and turn its errors into a `ForeignError`.

    Args:
        failure: the beginning of the message, such as "my_net.py:build fails".
        ours: errors that relucid raises with a message for the user; they pass through, as do relucid's own bugs.
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


def _what(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({'' if error.code is None else repr(error.code)})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    kind, message = type(error).__name__, first_line(error)
    return message if message == kind or type(error) is RuntimeError else f"{kind}: {message}"


def _place(error: BaseException, frames: list[FrameSummary]) -> str:
    """The innermost line of the user's own files in the traceback, in brackets; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _line(error.filename, error.lineno, error.text or "")
    for frame in reversed(frames):
        if frame.lineno and is_the_users(frame.filename):
            return _line(frame.filename, frame.lineno, linecache.getline(frame.filename, frame.lineno))
    return ""


def _line(file: str, number: int, source: str) -> str:
    source = source.strip()
    return f" ({Path(file).name}, line {number}{': ' if source else ''}{source[:LONGEST]})"
