"""Progress of an examination, shown on the terminal if rich is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: called with (what, done, total); total is None if unknown
Progress = Callable[[str, int, int | None], None]


@contextmanager
def reporting(progress: Progress | bool) -> Iterator[Progress]:
    """Yield the function to report progress to: the user's own, one that draws bars for True, or a silent one.

    >>> with reporting(lambda *step: print(step)) as report:
    ...     report("batches", 1, 20)
    ('batches', 1, 20)
    """
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda what, done, total: None
    else:
        with _bars() as report:
            yield report


@contextmanager
def _bars() -> Iterator[Progress]:
    """Yield a function that draws a bar for each kind of step, on stderr."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    tasks: dict[str, TaskID] = {}
    with Bars(console=Console(stderr=True), transient=True) as bars:

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield report
