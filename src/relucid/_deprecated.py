"""Names that were renamed, kept for one minor release with a warning."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module that finds what it offers by old names, too.

    Args:
        module: the module's `__name__`.
        names: old name -> new one.

    >>> __getattr__ = renamed("math", {"ceiling": "ceil"})
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     __getattr__("ceiling")(0.5), str(caught[0].message)
    (1, 'math.ceiling is math.ceil now; the old name ends with the next minor release')
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is {module}.{names[name]} now; the old name ends with the next minor release",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(import_module(module), names[name])

    return find
