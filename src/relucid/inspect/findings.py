"""A notable fact about a layer, in plain language, with its evidence and a conversion that would address it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from relucid.inspect.suggestion import Suggestion

Severity = Literal["error", "warning", "note"]
LEAST = 0.05  # share of a layer's units that makes a finding


@dataclass(frozen=True)
class Finding:
    """One notable fact about one layer."""

    layer: str
    kind: str  #: "paired", "twins", a key of `Activity.kinds`, "undone split", or a kind of your own
    sentence: str
    evidence: dict[str, Any]
    suggestion: Suggestion | None = None  #: a conversion that has helped in such a case, see docs/choose.md
    severity: Severity = "note"
    share: float = 1.0  #: of the layer's units

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "severity": self.severity,
            "share": self.share,
            "sentence": self.sentence,
            "evidence": self.evidence,
            "suggestion": self.suggestion and self.suggestion.to_dict(),
        }


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that concern enough units of their layer, or are errors: the most severe and largest first.

    >>> few, many = (Finding("0", "dead", "", {}, None, "warning", share) for share in (1 / 64, 0.5))
    >>> [finding.share for finding in ranked([few, many])]
    [0.5]
    """
    order = get_args(Severity)
    kept = [each for each in findings if each.share >= LEAST or each.severity == "error"]
    return tuple(sorted(kept, key=lambda each: (order.index(each.severity), -each.share)))
