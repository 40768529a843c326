"""Compare two examinations, such as before and after training or a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relucid.inspect.measurement import indices, plain_fields
from relucid.printing import Tabular

if TYPE_CHECKING:
    from relucid.inspect.examination import Examination, ExaminedLayer


@dataclass(frozen=True)
class LayerChange:
    """How one layer changed."""

    layer: str
    before: dict[str, str]  #: its row of the table before
    after: dict[str, str]  #: and after
    died: tuple[int, ...]  #: units that are dead now and were not before, if both examinations can tell
    revived: tuple[int, ...]  #: units that were dead and no longer are
    moved: float | None  #: mean absolute change of a unit's share of activity

    def row(self) -> dict[str, str]:
        """The row, with differing cells as "before -> after"."""
        cells = {
            name: now if now == self.before[name] else f"{self.before[name]} -> {now}"
            for name, now in self.after.items()
        }
        moved = "" if self.moved is None else f"{self.moved:.1%}"
        return {**cells, "activity moved by": moved}


@dataclass(frozen=True)
class Changes(Tabular):
    """Differences between two examinations, layer by layer."""

    layers: tuple[LayerChange, ...]  #: layers that both have
    gone: tuple[str, ...]  #: layers that only the first has
    new: tuple[str, ...]  #: layers that only the second has

    def rows(self) -> list[dict[str, str]]:
        """The table, one row per layer."""
        return [change.row() for change in self.layers]

    def notes(self) -> list[str]:
        """Which units died or were revived, then the layers that only one network has."""
        return [
            *(
                f"{change.layer}: {len(change.died)} units died, {len(change.revived)} were revived"
                for change in self.layers
                if change.died or change.revived
            ),
            *(f"{name}: only in the first network" for name in self.gone),
            *(f"{name}: only in the second network" for name in self.new),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return plain_fields(self)


def compare(before: Examination, after: Examination) -> Changes:
    """Compare two examinations; layers are matched by name."""
    first, second = ({layer.name: layer for layer in examination.layers} for examination in (before, after))
    columns = before.columns() | after.columns()
    first_rows, second_rows = (
        {row["layer"]: {name: row.get(name, "") for name in columns} for row in examination.rows()}
        for examination in (before, after)
    )
    shared = [name for name in second if name in first]
    return Changes(
        tuple(_change(first[name], second[name], first_rows[name], second_rows[name]) for name in shared),
        gone=tuple(name for name in first if name not in second),
        new=tuple(name for name in second if name not in first),
    )


def _change(
    first: ExaminedLayer, second: ExaminedLayer, before: dict[str, str], after: dict[str, str]
) -> LayerChange:
    """How a layer changed; which units died is known if both examinations saw enough inputs."""
    one, other = first.activity, second.activity
    died: list[int] = []
    revived: list[int] = []
    moved = None
    if one is not None and other is not None and len(one.active) == len(other.active):
        moved = float((one.active - other.active).abs().mean())
        if one.sample.enough and other.sample.enough and one.phases == other.phases:
            died, revived = indices(other.dead & ~one.dead), indices(one.dead & ~other.dead)
    return LayerChange(first.name, before, after, tuple(died), tuple(revived), moved)
