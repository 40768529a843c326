"""Everything that can be said of the rectified layers of a network, in one call."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from relucid.inspect.boundary import Activity, ActivityCounter, Boundary, hyperplanes
from relucid.inspect.complexity import Complexity, complexity
from relucid.inspect.execution import DATA, Batch, Node, execute
from relucid.inspect.findings import Finding, findings_of
from relucid.inspect.invariance import LayerInvariance, invariance
from relucid.inspect.pairing import Pairing, pairing
from relucid.inspect.perturbation import Perturbation, perturbation
from relucid.inspect.phase import PhaseCorrelation, phase_correlation
from relucid.inspect.reconstruction import reconstruct, reconstruction_ratio
from relucid.inspect.trace import Rectified, Source, Trace, trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

USUAL = ("pairing", "phase_correlation", "boundary")
ALL = (*USUAL, "reconstruct", "invariance", "perturbation", "complexity")


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


def examine(
    model: nn.Module, example: Batch, data: Iterable[Any] | None = None, *, measures: Collection[str] = USUAL
) -> Examination:
    """Return what each rectified layer of a network has learned, with findings in plain language.

    The network runs in eval mode and is left as it was. Memory does not grow with the data.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        data: Batches of the same form, alone or, where the example is one tensor, with labels after it. Sides
            of boundaries are counted on it; on the example if there is no data.
        measures: Which: "pairing", "phase_correlation", "boundary" by default; "reconstruct" and "complexity" (on
            the example), "perturbation", and "invariance" (on the data, which must be images) if named.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> _ = net[0].bias.data.fill_(-100.0)
    >>> for finding in examine(net, torch.randn(8, 4)).findings:
    ...     print(finding.sentence)
    0: 6 of 6 units are dead on 8 inputs: to_crelu(mode='expand') would give them their other phase
    0: 6 of 6 boundaries lie outside the data (inputs are at most ... long): to_geometric would let ...
    """
    if unknown := set(measures) - set(ALL):
        raise ValueError(f"there is no measure {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    if "invariance" in measures and data is None:
        raise ValueError("invariance is measured on data: give images")
    traced = trace(model, example)
    sides: dict[str, Activity] = {}
    ratios: dict[str, Tensor] = {}
    complexities: dict[str, Complexity] = {}
    invariances: Mapping[str, LayerInvariance] = {}
    if "boundary" in measures:
        sides = _sides(
            model, traced, [example] if data is None else (_like(batch, example) for batch in data)
        )
    if "reconstruct" in measures:
        ratios = _ratios(model, example)
    if "complexity" in measures:
        complexities = _complexities(model, traced, example)
    if "invariance" in measures and data is not None:
        invariances = invariance(model, data).layers
    layers = tuple(
        Layer(
            *(r, *_of_weights(r, measures), sides.get(r.name)),
            reconstruction=ratios.get(r.sources[0].name) if len(r.sources) == 1 else None,
            complexity=complexities.get(r.name),
            invariance=invariances.get(r.layer),
        )
        for r in traced.rectified
    )
    findings = tuple(finding for layer in layers for finding in findings_of(layer))
    return Examination(layers, findings, traced.unattributed)


def _of_weights(
    r: Rectified, measures: Collection[str]
) -> tuple[dict[str, Pairing], dict[str, PhaseCorrelation], Boundary | None, Perturbation | None]:
    """Return what the weights alone tell."""
    folded = None if r.scale is None else r.folded()
    planes = None if folded is None else hyperplanes(*folded)
    pairs: dict[str, Pairing] = {}
    if "pairing" in measures:  # a norm with a negative scale turns a filter round
        pairs = {s.name: pairing(s.weight if folded is None else folded[0], s.groups) for s in r.sources}
    phases: dict[str, PhaseCorrelation] = {}
    if "phase_correlation" in measures and r.doubled == r.units:
        readers = [s for s in r.readers if s.groups == 1 and s.weight.shape[1] % (2 * r.units) == 0]
        phases = {s.name: phase_correlation(s.weight, 2 * r.units) for s in readers}
    turns = None
    if (
        "perturbation" in measures
        and folded is not None
        and planes is not None
        and bool(planes.defined.all())
    ):
        turns = perturbation(*folded, epsilon=(1e-3, 1e-2, 1e-1))
    return pairs, phases, planes if "boundary" in measures else None, turns


def _sides(model: nn.Module, traced: Trace, batches: Iterable[Batch]) -> dict[str, Activity]:
    """Return on which side of their boundaries the data lie, by rectification."""
    rectified = {
        r.name: r for r in traced.rectified if len(r.shape) > 1
    }  # else units cannot be told from inputs
    counters = {
        name: ActivityCounter(r.units, *(() if r.scale is None else r.folded()))
        for name, r in rectified.items()
    }
    by_source: dict[str, list[ActivityCounter]] = defaultdict(list)
    for r in rectified.values():
        if r.scale is not None:
            by_source[r.sources[0].name].append(counters[r.name])

    def visit(node: Node, value: Tensor) -> None:
        if node.kind and node.name in counters:
            counters[node.name].update(rectified[node.name].by_unit(value))
        elif node.name in by_source and (lengths := _lengths(node, value)) is not None:
            for counter in by_source[node.name]:
                counter.update_shell(lengths)

    for batch in batches:
        execute(model, batch, visit)
    return {name: counter.result() for name, counter in counters.items() if counter.inputs}


def _lengths(node: Node, x: Tensor) -> Tensor | None:
    """Return the lengths of the inputs (patches, of a convolution) that a weight is multiplied with."""
    function, args, _ = node.call
    if node.op != "convolution":
        lengths: Tensor = x.norm(dim=-2 if args[-1] is DATA else -1)
        return lengths
    if args[6]:  # each output of a transposed convolution has an input of its own shape
        return None
    ones = x.new_ones(args[8], *args[1].shape[1:])
    squares: Tensor = function(x.square(), ones, None, *args[3:])
    return squares.relu().sqrt()


def _ratios(model: nn.Module, example: Batch) -> dict[str, Tensor]:
    """Return how much of its input each weighted layer loses, by layer."""
    inputs: list[tuple[Node, Tensor]] = []

    def visit(node: Node, value: Tensor) -> None:
        if node.has_weight:
            inputs.append((node, value.clone()))

    execute(model, example, visit)  # gradients, which reconstruction needs, exist only outside of a visit
    return {node.name: _ratio(node, value) for node, value in inputs}


def _complexities(model: nn.Module, traced: Trace, example: Batch) -> dict[str, Complexity]:
    """Return the complexity of each rectified layer's units on the first inputs of the example."""
    rectified = {r.name: r for r in traced.rectified if len(r.shape) > 1}
    found: dict[str, Complexity] = {}

    def visit(node: Node, value: Tensor) -> None:
        if node.kind and (r := rectified.get(node.name)):
            found[node.name] = complexity(r.by_unit(value)[:, :256], width=r.units)

    execute(model, example, visit)
    return found


def _ratio(node: Node, x: Tensor) -> Tensor:
    """Return the reconstruction ratio of a layer's input from its responses."""
    function, args, kwargs = node.call

    def layer(value: Tensor) -> Tensor:
        out: Tensor = function(*(value if a is DATA else a for a in args), **kwargs)
        return out

    return reconstruction_ratio(x, reconstruct(layer, layer(x), x.shape[1:]).input)


def _like(batch: Any, example: Batch) -> Batch:
    """Return a batch in the form of the example: the first entry of several where that is one tensor."""
    result: Batch = batch[0] if isinstance(example, Tensor) and isinstance(batch, tuple | list) else batch
    return result


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
