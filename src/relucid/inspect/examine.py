"""Everything that can be said of the rectified layers of a network, in one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from relucid.inspect.boundary import Activity, ActivityCounter, Boundary, hyperplanes
from relucid.inspect.complexity import Complexity, complexity
from relucid.inspect.examination import Examination, Layer
from relucid.inspect.execution import DATA, Batch, Node, execute
from relucid.inspect.findings import findings_of
from relucid.inspect.invariance import LayerInvariance, invariance
from relucid.inspect.pairing import Pairing, pairing
from relucid.inspect.perturbation import Perturbation, perturbation
from relucid.inspect.phase import PhaseCorrelation, phase_correlation
from relucid.inspect.reconstruction import reconstruct, reconstruction_ratio
from relucid.inspect.trace import Rectified, Trace, trace

USUAL = ("pairing", "phase_correlation", "boundary")
ALL = (*USUAL, "reconstruct", "invariance", "perturbation", "complexity")


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
        measures: By default "pairing", "phase_correlation" and "boundary". There are also "perturbation",
            "reconstruct" and "complexity" (on the example) and "invariance" (on the data, which must be images).

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
        batches = [example] if data is None else (_like(batch, example) for batch in data)
        sides = _sides(model, traced, batches)
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
    pairs: dict[str, Pairing] = {}
    phases: dict[str, PhaseCorrelation] = {}
    planes = turns = None
    if "pairing" in measures:  # a norm with a negative scale turns a filter round
        pairs = {s.name: pairing(s.weight if folded is None else folded[0], s.groups) for s in r.sources}
    if "phase_correlation" in measures and r.doubled == r.units:
        readers = [s for s in r.readers if s.groups == 1 and s.weight.shape[1] % (2 * r.units) == 0]
        phases = {s.name: phase_correlation(s.weight, 2 * r.units) for s in readers}
    if "boundary" in measures and folded is not None:
        planes = hyperplanes(*folded)
    if "perturbation" in measures and folded is not None and bool(folded[0].flatten(1).any(1).all()):
        turns = perturbation(*folded, epsilon=(1e-3, 1e-2, 1e-1))
    return pairs, phases, planes, turns


def _sides(model: nn.Module, traced: Trace, batches: Iterable[Batch]) -> dict[str, Activity]:
    """Return on which side of their boundaries the data lie, by rectification."""
    rectified = {r.name: r for r in traced.rectified if len(r.shape) > 1}  # else no units can be told
    counters: dict[str, ActivityCounter] = {}
    by_source: dict[str, list[ActivityCounter]] = defaultdict(list)
    for name, r in rectified.items():
        counters[name] = ActivityCounter(r.units, *(() if r.scale is None else r.folded()))
        if r.scale is not None:
            by_source[r.sources[0].name].append(counters[name])

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
