"""The conversions of `relucid.convert` by name, for the command line and for improvements; torch is not imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class NamedConversion:
    """A conversion with a name.

    Args:
        function: its name in `relucid.convert`.
        label: what to call the result in a table.
        options: the arguments that it stands for.
    """

    function: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def call(self, **options: Any) -> Callable[..., Any]:
        """The function, with its arguments and further ones."""
        return partial(getattr(import_module("relucid.convert"), self.function), **self.options, **options)


CONVERSIONS = {
    "crelu": NamedConversion("to_crelu", "CReLU"),
    "merge": NamedConversion("to_crelu", "merged pairs", {"mode": "merge"}),
    "geometric": NamedConversion("to_geometric", "geometric weights"),
    "heavy-ball": NamedConversion("to_heavy_ball", "heavy ball"),
    "plain": NamedConversion("fuse", "plain layers"),
}
IMPROVING = tuple(name for name in CONVERSIONS if name != "plain")  # what an improvement can try
