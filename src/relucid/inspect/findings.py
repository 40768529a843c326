"""A notable fact about a layer, in plain language, with its evidence and a conversion that would address it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relucid.inspect.measurement import plain_fields
from relucid.printing import printable

SEVERITIES = ("error", "warning", "note")  # the gravest first
LEAST = 0.05  # share of a layer's units that makes a finding


@dataclass(frozen=True)
class Suggestion:
    """Conversion of some layers, by the names that `relucid.convert` takes.

    >>> merge = Suggestion("to_crelu", ("conv1", "conv2"), "merge")
    >>> print(merge)
    to_crelu(model, example, layers=['conv1', 'conv2'], mode='merge')
    >>> Suggestion("to_geometric", ("fc",)).command("net.py:build", "--example", "1,4")
    'relucid convert net.py:build --example 1,4 --to geometric --layers fc -o converted-geometric'
    """

    conversion: str  #: function of `relucid.convert`: "to_crelu" or "to_geometric"
    layers: tuple[str, ...]
    mode: str | None = None  #: mode of `to_crelu`: "expand" or "merge"

    @property
    def name(self) -> str:
        """Name of the conversion on the command line: "crelu", "merge" or "geometric"."""
        return self.mode if self.mode == "merge" else self.conversion.removeprefix("to_")

    def __str__(self) -> str:
        mode = "" if self.mode is None else f", mode={self.mode!r}"
        return f"{self.conversion}(model, example, layers={list(self.layers)!r}{mode})"

    def command(self, factory: str, *options: str) -> str:
        """The command that converts, into ``converted-<name>``.

        Args:
            factory: The function that builds the network, as MODULE:FACTORY.
            options: Further options for the network, such as "--checkpoint", "w.pt", "--example", "1,3,32,32".
        """
        layers = [word for layer in self.layers for word in ("--layers", layer)]
        words = ["relucid", "convert", factory, *options, "--to", self.name, *layers]
        return printable(shlex.join([*words, "-o", f"converted-{self.name}"]))

    def to_dict(self) -> dict[str, Any]:
        """The suggestion as plain values."""
        return plain_fields(self) | {"call": str(self)}


def merged(suggestions: Iterable[Suggestion]) -> Sequence[Suggestion]:
    """Merge suggestions into one per conversion, with the layers of all of them.

    >>> [str(s) for s in merged([Suggestion("to_geometric", ("a",)), Suggestion("to_geometric", ("b", "a"))])]
    ["to_geometric(model, example, layers=['a', 'b'])"]
    """
    layers: dict[tuple[str, str | None], dict[str, None]] = {}
    for suggestion in suggestions:
        layers.setdefault((suggestion.conversion, suggestion.mode), {}).update(
            dict.fromkeys(suggestion.layers)
        )
    return [Suggestion(conversion, tuple(names), mode) for (conversion, mode), names in layers.items()]


@dataclass(frozen=True)
class Finding:
    """One notable fact about one layer."""

    layer: str
    kind: str  #: "paired", "twins", a key of `Activity.kinds`, "undone split", or a kind of your own
    sentence: str
    evidence: dict[str, Any]
    suggestion: Suggestion | None = None  #: a conversion that has helped in such a case, see docs/choose.md
    severity: Literal["error", "warning", "note"] = "note"
    share: float = 1.0  #: of the layer's units

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values."""
        return plain_fields(self) | {"suggestion": self.suggestion and self.suggestion.to_dict()}


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that concern enough units of their layer, or are errors: the most severe and largest first.

    >>> few, many = (Finding("0", "dead", "", {}, None, "warning", share) for share in (1 / 64, 0.5))
    >>> [finding.share for finding in ranked([few, many])]
    [0.5]
    """
    kept = [finding for finding in findings if finding.share >= LEAST or finding.severity == "error"]
    return tuple(sorted(kept, key=lambda finding: (SEVERITIES.index(finding.severity), -finding.share)))
