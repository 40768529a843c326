"""What an examination found: a table, findings, figures, JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from relucid.inspect.boundary import Activity, Boundary
from relucid.inspect.complexity import Complexity
from relucid.inspect.findings import Finding
from relucid.inspect.invariance import LayerInvariance
from relucid.inspect.pairing import Pairing
from relucid.inspect.perturbation import Perturbation
from relucid.inspect.phase import PhaseCorrelation
from relucid.inspect.trace import Rectified, Source

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Layer:
    """What was measured of one rectification and the weights that feed it; None or empty where nothing was."""

    rectified: Rectified
    pairing: dict[str, Pairing]  #: by source
    phase_correlation: dict[str, PhaseCorrelation]  #: by the layer that reads
    boundary: Boundary | None
    perturbation: Perturbation | None
    activity: Activity | None
    reconstruction: Tensor | None  #: ratios of the example's inputs
    complexity: Complexity | None
    invariance: LayerInvariance | None

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.rectified.layer


@dataclass(frozen=True)
class Examination:
    """The layers of a network, what is conspicuous in them, and what could not be attributed."""

    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]
    unattributed: tuple[tuple[str, str], ...]  #: (what, why)

    def __getitem__(self, name: str) -> Layer:
        """Return the layer or rectification with this name."""
        for layer in self.layers:
            if name in (layer.name, layer.rectified.name):
                return layer
        raise KeyError(
            f"no layer is named {name!r}; there are {', '.join(layer.name for layer in self.layers)}"
        )

    def rows(self) -> list[dict[str, str]]:
        """Return the table, one row a layer."""
        return [_row(layer) for layer in self.layers]

    def summary(self) -> str:
        """Return the table, the findings and what is not attributed, as plain text."""
        rows = self.rows()
        lines = []
        if rows:
            widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
            lines.append("  ".join(key.ljust(width) for key, width in widths.items()).rstrip())
            lines += [
                "  ".join(row[key].ljust(width) for key, width in widths.items()).rstrip() for row in rows
            ]
        lines += [""] * bool(self.findings) + [finding.sentence for finding in self.findings]
        lines += [""] * bool(self.unattributed) + [f"{what}: {why}" for what, why in self.unattributed]
        return "\n".join(lines)

    def show(self) -> None:
        """Print the summary: a coloured table on a terminal if rich is installed, else plain text."""
        try:
            from rich.console import Console
            from rich.markup import escape
            from rich.table import Table
        except ImportError:
            print(self.summary())
            return
        console, rows = Console(), self.rows()
        if not console.is_terminal:
            print(self.summary())
            return
        table = Table(*(rows[0] if rows else ()))
        for row in rows:
            table.add_row(*(escape(cell) for cell in row.values()))
        console.print(table)
        for finding in self.findings:
            console.print(escape(finding.sentence), style="yellow")
        for what, why in self.unattributed:
            console.print(escape(f"{what}: {why}"), style="dim")

    def to_dict(self) -> dict[str, Any]:
        """Return everything but weights as plain lists, numbers and strings, ready for JSON."""
        return {
            "layers": [_layer_as_dict(layer) for layer in self.layers],
            "findings": [finding.to_dict() for finding in self.findings],
            "unattributed": [{"name": what, "reason": why} for what, why in self.unattributed],
        }

    def figures(self) -> dict[str, Figure]:
        """Return the figures that apply, by title."""
        figures: dict[str, Figure] = {}
        for layer in self.layers:
            for source, found in layer.pairing.items():
                if found.others:
                    figures[f"{source}: pairs"] = found.figure(source)
            if layer.boundary is not None and layer.boundary.direction.shape[1] <= 2:
                figures[f"{layer.name}: boundaries"] = layer.boundary.figure()
            if layer.perturbation is not None:
                figures[f"{layer.name}: perturbation"] = layer.perturbation.figure()
        return figures


def _row(layer: Layer) -> dict[str, str]:
    """Return one row of the table."""
    r, a = layer.rectified, layer.activity
    found = [p for p in layer.pairing.values() if p.others]
    kinds = {} if a is None else {name: str(int(mask.sum())) for name, mask in a.kinds().items()}
    return {
        "layer": layer.name,
        "kind": r.kind,
        "units": str(r.units),
        "through": ", ".join(dict.fromkeys(t for s in r.sources for t in s.through)),
        "paired": ", ".join(f"{p.share:.0%}" for p in found),
        "random": ", ".join(f"{p.random_share:.1%}" for p in found),
        **{name: kinds.get(name, "") for name in ("dead", "always on", "nearly linear", "outside the data")},
    }


def _layer_as_dict(layer: Layer) -> dict[str, Any]:
    r = layer.rectified
    return {
        "name": layer.name,
        "rectification": r.name,
        "kind": r.kind,
        "units": r.units,
        "doubled": r.doubled,
        "sources": [_source_as_dict(source) for source in r.sources],
        "adds": list(r.adds),
        "obstacle": r.obstacle,
        "pairing": {
            name: _plain(p) | {"share": p.share, "random_share": p.random_share}
            for name, p in layer.pairing.items()
        },
        "phase_correlation": {
            name: {"pair": _plain(p.pair), "non_pair": _plain(p.non_pair)}
            for name, p in layer.phase_correlation.items()
        },
        "boundary": layer.boundary and {"radius": _plain(layer.boundary.radius)},
        "activity": _plain(layer.activity),
        "reconstruction": _plain(layer.reconstruction),
        "invariance": layer.invariance
        and _plain(layer.invariance) | {"score": _plain(layer.invariance.score)},
        "perturbation": layer.perturbation
        and {
            "epsilon": list(layer.perturbation.epsilon),
            "turned": _plain({k: v.amax(1) for k, v in layer.perturbation.turned.items()}),
        },
        "complexity": _plain(layer.complexity),
    }


def _source_as_dict(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "parameters": list(source.parameters),
        "shape": list(source.weight.shape),
        "groups": source.groups,
        "through": list(source.through),
    }


def _plain(value: Any) -> Any:
    """Return tensors as lists, dataclasses as dictionaries, and nan or infinity, which JSON lacks, as None."""
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
