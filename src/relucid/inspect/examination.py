"""The result of an examination: as a table, findings, figures and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relucid.extras import needed
from relucid.inspect._boundary import Boundary
from relucid.inspect._pairing import Pairing, Pairings
from relucid.inspect._trace import Rectified, Source
from relucid.inspect.activity import Activity
from relucid.inspect.findings import Finding, Suggestion, merged
from relucid.inspect.measurement import Measurement, indices
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
        return Changes(other, self)

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


@dataclass(frozen=True)
class Changes(Tabular):
    """Differences between two examinations, layer by layer; layers are matched by name."""

    before: Examination
    after: Examination

    @property
    def shared(self) -> dict[str, tuple[ExaminedLayer, ExaminedLayer]]:
        """The layers that both have, before and after, by name."""
        first = {layer.name: layer for layer in self.before.layers}
        return {layer.name: (first[layer.name], layer) for layer in self.after.layers if layer.name in first}

    @property
    def gone(self) -> tuple[str, ...]:
        """Layers that only the first has."""
        return tuple(layer.name for layer in self.before.layers if layer.name not in self.shared)

    @property
    def new(self) -> tuple[str, ...]:
        """Layers that only the second has."""
        return tuple(layer.name for layer in self.after.layers if layer.name not in self.shared)

    def died(self, name: str) -> list[int]:
        """Units of a layer that are dead now and were not before, if both examinations saw enough inputs to tell."""
        return _died(*self.shared[name])

    def revived(self, name: str) -> list[int]:
        """Units that were dead and no longer are."""
        return _died(*reversed(self.shared[name]))

    def moved(self, name: str) -> float | None:
        """Mean absolute change of a unit's share of activity, if the layer has as many units as before."""
        one, other = (layer.activity for layer in self.shared[name])
        if one is None or other is None or len(one.active) != len(other.active):
            return None
        return float((one.active - other.active).abs().mean())

    @cached_property
    def _tables(self) -> list[dict[str, dict[str, str]]]:
        """The rows of both tables by layer, with the same columns."""
        columns = self.before.columns() | self.after.columns()
        return [
            {row["layer"]: {name: row.get(name, "") for name in columns} for row in examination.rows()}
            for examination in (self.before, self.after)
        ]

    def rows(self) -> list[dict[str, str]]:
        """The table, one row per layer, with differing cells as "before -> after"."""
        rows = []
        for name in self.shared:
            before, after = (table[name] for table in self._tables)
            row = {n: now if now == before[n] else f"{before[n]} -> {now}" for n, now in after.items()}
            moved = self.moved(name)
            rows.append(row | {"activity moved by": "" if moved is None else f"{moved:.1%}"})
        return rows

    def notes(self) -> list[str]:
        """Which units died or were revived, then the layers that only one network has."""
        counts = {name: (len(self.died(name)), len(self.revived(name))) for name in self.shared}
        return [
            *(f"{name}: {a} units died, {b} were revived" for name, (a, b) in counts.items() if a or b),
            *(f"{name}: only in the first network" for name in self.gone),
            *(f"{name}: only in the second network" for name in self.new),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        layers = [
            {"layer": name, "died": self.died(name), "revived": self.revived(name), "moved": self.moved(name)}
            | {"before": self._tables[0][name], "after": self._tables[1][name]}
            for name in self.shared
        ]
        return {"layers": layers, "gone": list(self.gone), "new": list(self.new)}


def _died(before: ExaminedLayer, after: ExaminedLayer) -> list[int]:
    one, other = before.activity, after.activity
    if one is None or other is None or one.dead.shape != other.dead.shape or one.phases != other.phases:
        return []
    return indices(other.dead & ~one.dead) if one.sample.enough and other.sample.enough else []
