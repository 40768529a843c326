"""How far an examination is: on a terminal, if rich is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[
    [str, int, int | None], None
]  #: what is done, how many of them, of how many (None: unknown)


@contextmanager
def telling(progress: Progress | bool) -> Iterator[Progress]:
    """Give the function that is told of progress: the user's own, one that draws bars for True, or a silent one.

    >>> with telling(lambda *said: print(said)) as tell:
    ...     tell("batches", 1, 20)
    ('batches', 1, 20)
    """
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda what, done, total: None
    else:
        with _bars() as tell:
            yield tell


@contextmanager
def _bars() -> Iterator[Progress]:
    """Give a function that draws a bar for each thing that is done, on the error stream."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    tasks: dict[str, TaskID] = {}
    with Bars(console=Console(stderr=True), transient=True) as bars:

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield tell
