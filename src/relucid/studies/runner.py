"""A run function under a stable name: recorded runs are identified by it, wherever the code lives."""

import hashlib
import inspect
import json
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import relucid


@dataclass(frozen=True)
class Runner:
    """A run function with the name and version that its recorded runs carry.

    The function may be renamed or moved; name and version stay, and so do the keys of its runs.

    Args:
        name: "gmp/uci", say; one name per function.
        function: takes a configuration and returns metrics, by name (a dict) or as a `Result`; a function with
            a second parameter is given the `relucid.train.Machine` it runs on.
        version: raise it when the function has changed so that its old results do not count any more. relucid does
            not look at the code. The version of a plain function is a digest of its source file (`version_of`).

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


def version_of(function: Callable[..., Any]) -> str:
    """The version of a user's function: a digest of its source file, and the releases of relucid and torch.

    In a notebook, the cell stands for the file. Whatever changes in the file changes the version, a comment or a row
    of the study too; what the file imports does not. Values that an inner function has captured count, if they are
    numbers or text. Of relucid and torch, the first two numbers count (2.13).

    >>> version_of(len).startswith("source ")
    True
    """
    releases = (".".join(version.split(".")[:2]) for version in (relucid.__version__, torch.__version__))
    digest = hashlib.sha256(_source(inspect.unwrap(function)).encode()).hexdigest()[:12]
    return "source {}, relucid {}, torch {}".format(digest, *releases)


def _source(function: Any) -> str:
    """The text of the file or cell that a function is in, and the plain values that the function has captured."""
    code = getattr(function, "__code__", None)
    if code is None:  # a built-in function
        return str(getattr(function, "__qualname__", repr(function)))
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename) or [code.co_code.hex(), str(code.co_consts)]
    captured = sorted(inspect.getclosurevars(function).nonlocals.items())
    values = json.dumps(captured, skipkeys=True, default=lambda value: type(value).__qualname__)
    place = f"{function.__qualname__} {code.co_firstlineno}"  # a file may hold several functions
    return "".join([*lines, place, values])
