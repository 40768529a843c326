"""A run function under a stable name: recorded runs are identified by it, wherever the code lives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relucid.studies.source import version_of


@dataclass(frozen=True)
class Runner:
    """A run function with the name and version that its recorded runs carry.

    The function may be renamed or moved; name and version stay, and so do the keys of its runs.

    Args:
        name: "gmp/uci", say; one name per function.
        function: takes a configuration and returns metrics, by name (a dict) or as a `Result`; a function with
            a second parameter is given the `relucid.train.Machine` it runs on.
        version: raise it when the function has changed so that its old results do not count any more. It is your
            word: nobody looks at the code. A plain function has a digest of its source here (`version_of`).

    >>> Runner("double", lambda config: {"double": 2 * config["x"]})({"x": 4})
    {'double': 8}
    """

    name: str
    function: Callable[..., Any]
    version: int | str = 1

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self.function(*args)


def runner_of(run: Runner | Callable[..., Any]) -> Runner:
    """A runner unchanged, or a plain function as a runner named after it, with its source as its version."""
    if isinstance(run, Runner):
        return run
    if not hasattr(run, "__qualname__"):
        raise TypeError(f"run is {run!r}; it must be a function, or a Runner that gives it a name")
    return Runner(f"{run.__module__}:{run.__qualname__}", run, version_of(run))
