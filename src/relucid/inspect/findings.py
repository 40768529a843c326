"""A notable fact about a layer, in plain language, with its evidence and a conversion that would address it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relucid.inspect.suggestion import Suggestion


@dataclass(frozen=True)
class Finding:
    """One notable fact about one layer."""

    layer: str
    kind: str  #: "paired", "twins", a key of `Activity.kinds`, "undone split", or a kind of your own
    sentence: str
    evidence: dict[str, Any]
    suggestion: Suggestion | None = None  #: the conversion that would address it, if any

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "sentence": self.sentence,
            "evidence": self.evidence,
            "suggestion": self.suggestion and self.suggestion.to_dict(),
        }
