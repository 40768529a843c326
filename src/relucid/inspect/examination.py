"""The result of an examination: as a table, findings, figures and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relucid.extras import needed
from relucid.inspect._boundary import Boundary
from relucid.inspect._pairing import Pairing, Pairings
from relucid.inspect._trace import Rectified, Source
from relucid.inspect.activity import Activity
from relucid.inspect.findings import Finding, Suggestion, merged
from relucid.inspect.measurement import Measurement, indices, plain_fields
from relucid.inspect.phase import PhaseCorrelation, PhaseCorrelations
from relucid.inspect.plasticity import Plasticity
from relucid.printing import Tabular, counted

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

M = TypeVar("M", bound=Measurement)
MOST = 10  # findings that are printed
LISTED = 4  # weights and activations that are not examined: their names are printed, with the reasons
COLUMNS = {
    "layer": "the weights that feed a rectification, or the rectification itself if many weights feed it",
    "kind": "the activation that rectifies the units",
    "units": "the number of units",
}


@dataclass(frozen=True)
class ExaminedLayer:
    """Measurements of one rectification and the weights that feed it."""

    rectified: Rectified
    measured: Mapping[str, Measurement]  #: by name in `MEASURES`; only those that apply

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self.rectified.layer

    @property
    def pairing(self) -> dict[str, Pairing]:
        """Pairs of filters, by the weight that feeds the layer."""
        return pairs.by_source if (pairs := self._find(Pairings)) else {}

    @property
    def phase_correlation(self) -> dict[str, PhaseCorrelation]:
        """Correlation of the two phases' outgoing weights, by the layer that reads them."""
        return phases.by_reader if (phases := self._find(PhaseCorrelations)) else {}

    @property
    def boundary(self) -> Boundary | None:
        """Boundaries at which the units switch."""
        return self._find(Boundary)

    @property
    def activity(self) -> Activity | None:
        """How often each unit is on either side of its boundary."""
        return self._find(Activity)

    @property
    def plasticity(self) -> Plasticity | None:
        """How able the layer is to learn on."""
        return self._find(Plasticity)

    def _find(self, kind: type[M]) -> M | None:
        return next((result for result in self.measured.values() if isinstance(result, kind)), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything except the weights as plain values."""
        r = self.rectified
        return {
            "name": self.name,
            "rectification": r.name,
            "kind": r.kind,
            "units": r.units,
            "doubled": r.doubled,
            "sources": [_source_as_dict(source) for source in r.sources],
            "adds": list(r.adds),
            "obstacle": r.obstacle,
            **{name: result.to_dict() for name, result in self.measured.items()},
        }


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


@dataclass(frozen=True)
class Examination(Tabular):
    """Layers of a network, findings about them, and what could not be attributed to any layer."""

    layers: tuple[ExaminedLayer, ...]
    findings: tuple[Finding, ...]
    unattributed: tuple[tuple[str, str], ...]  #: (name, reason)
    policy_entropy: float | None = None  #: in nats, if a policy was named

    def __repr__(self) -> str:
        what = f"{counted(len(self.layers), 'layer')}, {counted(len(self.findings), 'finding')}"
        return f"<Examination of {what}; print it for the summary>"

    def __getitem__(self, name: str) -> ExaminedLayer:
        """The layer or rectification with this name."""
        for layer in self.layers:
            if name in (layer.name, *layer.rectified.calls):
                return layer
        raise KeyError(
            f"there is no layer {name!r}; the layers are {', '.join(layer.name for layer in self.layers)}"
        )

    def suggestions(self) -> Sequence[Suggestion]:
        """The suggestions of all findings, merged into one per conversion."""
        return merged(finding.suggestion for finding in self.findings if finding.suggestion)

    def against(self, other: Examination) -> Changes:
        """Compare with an earlier examination, such as one from before training or a conversion."""
        return _compared(other, self)

    def save(self, path: str | Path, *, name: str = "this network", overwrite: bool = False) -> None:
        """Write the examination as one HTML page; requires relucid[studies].

        Args:
            path: File to write.
            name: Name of the network on the page.
            overwrite: Whether to replace an existing file.
        """
        with needed("save()"):
            from relucid.report.examination import Provenance, examination_page
            from relucid.report.page import check, save

        check(Path(path), overwrite)
        save(examination_page(self, Provenance(name, in_python=True)), Path(path))

    def columns(self) -> dict[str, str]:
        """The headings of the table with their meanings, leaving out columns that would be empty."""
        known = {k: v for layer in self.layers for m in layer.measured.values() for k, v in m.columns.items()}
        used = {name for layer in self.layers for m in layer.measured.values() for name in m.row()}
        return COLUMNS | {name: meaning for name, meaning in known.items() if name in used}

    def rows(self) -> list[dict[str, str]]:
        """The table, one row per layer."""
        columns = self.columns()
        rows = []
        for layer in self.layers:
            row = {"layer": layer.name, "kind": layer.rectified.kind, "units": str(layer.rectified.units)}
            for measured in layer.measured.values():
                row |= measured.row()
            rows.append({name: row.get(name, "") for name in columns})
        return rows

    def notes(self) -> list[str]:
        """The findings, then what could not be attributed."""
        lines = [""] * bool(self.findings) + self.sentences() + [""] * bool(self.unattributed)
        lines += [f"{what}: {why}" for what, why in self.unattributed[:LISTED]]
        rest = len(self.unattributed) - LISTED
        return lines + ([f"and {counted(rest, 'more name')}: see `unattributed`"] if rest > 0 else [])

    def sentences(self) -> list[str]:
        """The findings that matter most, how many more there are, and whether too few inputs were seen to judge."""
        rest = len(self.findings) - MOST
        more = [f"and {counted(rest, 'more finding')}"] if rest > 0 else []
        return [*(finding.sentence for finding in self.findings[:MOST]), *more, *self.doubts()]

    def doubts(self) -> list[str]:
        """A note that too few inputs were seen to judge activity, if so."""
        seen = [layer.activity for layer in self.layers if layer.activity is not None]
        return [activity.summary() for activity in seen if not activity.sample.enough][:1]

    def to_dict(self) -> dict[str, Any]:
        """Everything except the weights as plain lists, numbers and strings, ready for JSON."""
        return {
            "layers": [layer.to_dict() for layer in self.layers],
            "findings": [finding.to_dict() for finding in self.findings],
            "suggestions": [suggestion.to_dict() for suggestion in self.suggestions()],
            "unattributed": [{"name": what, "reason": why} for what, why in self.unattributed],
        }

    def figures(self) -> dict[str, Figure]:
        """All figures by title; a title begins with the name of the layer. Requires relucid[studies]."""
        with needed("figures()"):
            return {
                f"{layer.name}: {title}": figure
                for layer in self.layers
                for measured in layer.measured.values()
                for title, figure in measured.figures().items()
            }


def _source_as_dict(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "parameters": list(source.parameters),
        "shape": list(source.weight.shape),
        "groups": source.groups,
        "through": list(source.through),
    }


def _compared(before: Examination, after: Examination) -> Changes:
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
