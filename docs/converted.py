"""The page of networks written by others, and the one number of torchvision's, from what benchmarks have measured."""

import json
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
COLUMNS = ("to_crelu", "to_geometric", "to_heavy_ball", "fuse", "crelu, geometric, fused")
SHOWN = COLUMNS[:-1]  # in the table; of the last one the total is said
COUNTED = {
    "to_crelu": "activations",
    "to_geometric": "layers with weights",
    "fuse": "batch norms",
    "crelu, geometric, fused": "batch norms, after two other conversions",
}
ROUNDING = 1e-4  # of the largest output, in float32: hundreds of layers amplify rounding
Rows = dict[str, dict[str, Any]]


def measured(name: str) -> Rows:
    """The rows of a benchmark."""
    rows: Rows = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
    return rows


def tried(rows: Rows, conversion: str) -> list[dict[str, Any]]:
    """What a conversion did, where it was not refused."""
    found = (row.get(conversion, {}) for row in rows.values())
    return [each for each in found if "changed" in each]


def total(rows: Rows, conversion: str) -> tuple[int, int]:
    """What a conversion has changed of what there is, in all networks together."""
    found = tried(rows, conversion)
    return sum(each["changed"] for each in found), sum(each.get("there", 0) for each in found)


class Torchvision:
    """The classification networks of torchvision."""

    def __init__(self) -> None:
        self.rows = measured("torchvision")

    @cached_property
    def converted(self) -> Rows:
        """Those that every conversion keeps to rounding, and in which one changes layers."""
        return {name: row for name, row in self.rows.items() if self._is_converted(row)}

    def _is_converted(self, row: dict[str, Any]) -> bool:
        found = [row.get(conversion, {}) for conversion in ("to_crelu", "to_geometric", "fuse")]
        exact = all(each.get("outputs", float("inf")) <= ROUNDING for each in found)
        return exact and any(each["changed"] for each in found)

    @property
    def count(self) -> str:
        """How many are converted of how many."""
        return f"{len(self.converted)} of {len(self.rows)}"

    def largest(self) -> float:
        """The largest difference of an output of a converted network."""
        every = (
            each for name in ("to_crelu", "to_geometric", "fuse") for each in tried(self.converted, name)
        )
        return max((each["outputs"] for each in every), default=0.0)

    def left(self) -> list[str]:
        """The others, with the reason."""
        errors = {name: _errors(row) for name, row in self.rows.items() if name not in self.converted}
        return [f"`{name}`: {', '.join(found) or 'differs by more'}" for name, found in errors.items()]


def _errors(row: dict[str, Any]) -> list[str]:
    return [row["error"]] if "error" in row else [v["error"] for v in row.values() if "error" in dict_of(v)]


def dict_of(value: Any) -> dict[str, Any]:
    """A value that is a dictionary, or an empty one."""
    return value if isinstance(value, dict) else {}


def page() -> str:
    """The text of docs/conversions/networks.md."""
    rows, torchvision = measured("conversions"), Torchvision()
    head = "| network | " + " | ".join(SHOWN) + " | difference |"
    table = [head, "|---" * (len(SHOWN) + 2) + "|", *(line(name, row) for name, row in rows.items())]
    seconds = [sum(row[conversion].get("seconds", 0.0) for conversion in COLUMNS) for row in rows.values()]
    counts = [f"`{name}` {_of(*total(rows, name))} {what}" for name, what in COUNTED.items()]
    crelu, geometric = (_of(*total(torchvision.rows, name)) for name in ("to_crelu", "to_geometric"))
    left = torchvision.left()
    return f"""---
budget: 1040
---
# Networks written by others

**torchvision: {torchvision.count} classification networks tried convert to rounding.** `to_crelu` doubles {crelu}
activations, `to_geometric` changes {geometric} layers; in float32, on another input, outputs differ by at most
{torchvision.largest():.0e} of the largest one. Networks without a ReLU count if their layers become geometric.
{"Not converted: " + "; ".join(left) + "." if left else ""}

Below are {len(rows)} others, in float64. Together: {"; ".join(counts)}.

Each cell has what has changed of what there is; of `to_heavy_ball`, how many betas are new, or a dash if it is refused.
The difference is the largest of all conversions, in evaluation and in training, relative to the largest output or
gradient, on an input of another batch and, where possible, another size. All conversions of a network took
{min(seconds):.0f} to {max(seconds):.0f} seconds of one core. Stand-ins have the structure of classes in
collections that cannot be installed here.

{chr(10).join(table)}

Refused:

{chr(10).join(refusals(rows))}

`to_crelu` and `to_geometric` leave some layers alone, [each with a reason](../conversions.md#what-is-left-alone).
"""


def line(name: str, row: dict[str, Any]) -> str:
    """The row of a network."""
    cells = ["–" if "refused" in row[conversion] else _over(row[conversion]) for conversion in SHOWN]
    differences = (
        row[conversion].get(what, 0.0) for conversion in COLUMNS for what in ("outputs", "gradients")
    )
    return f"| {name} | {' | '.join(cells)} | {max(differences):.0e} |"


def refusals(rows: Rows) -> list[str]:
    """The kinds of refusals: sentences without the name of the class, and how many networks each is about."""
    kinds = Counter(
        (conversion, row[conversion]["refused"].partition(" ")[2])
        for row in rows.values()
        for conversion in COLUMNS
        if "refused" in row[conversion]
    )
    return [f"- `{name}`, {count} networks: {kind}." for (name, kind), count in kinds.most_common()]


def _over(found: dict[str, Any]) -> str:
    return f"{found['changed']}/{found['there']}" if "there" in found else str(found["changed"])


def _of(changed: int, there: int) -> str:
    return f"{changed:,} of {there:,}"
