"""What is conspicuous in a layer, in plain language, with the evidence and the conversion that would address it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relucid.inspect.suggestion import Suggestion


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing of one layer."""

    layer: str
    kind: str  #: "paired", "twins", a key of `Activity.kinds`, "undone split", or what a measurement of yours names
    sentence: str
    evidence: dict[str, Any]
    suggestion: Suggestion | None = None  #: what would address it, if anything would

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "sentence": self.sentence,
            "evidence": self.evidence,
            "suggestion": self.suggestion and self.suggestion.to_dict(),
        }
