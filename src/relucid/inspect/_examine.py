"""Examine all rectified layers of a network in one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import length_hint
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves
from relucid.data import in_batches
from relucid.inspect._pairing import is_too_wide
from relucid.inspect._trace import Rectified, trace
from relucid.inspect.batches import DataBatch, batches_of
from relucid.inspect.blocks import squared_norms
from relucid.inspect.examination import Examination, ExaminedLayer
from relucid.inspect.execution import DATA, Batch, Node, running
from relucid.inspect.findings import ranked
from relucid.inspect.measurement import ExaminedNetwork, Gauge, Measurement, Seen
from relucid.inspect.measures import MEASURES, USUAL
from relucid.nn.tracing import no_autocast

# A layer, with its measurements by name and the gauges of those that need the data.
Begun = tuple[Rectified, dict[str, Measurement | Gauge]]
Progress = Callable[[str, int, int | None], None]


def examine(
    model: nn.Module,
    example: Batch,
    data: Any = None,
    *,
    measures: Collection[str] = USUAL,
    progress: Progress | None = None,
) -> Examination:
    """Examine what each rectified layer of a network has learned, with findings in plain language.

    The network runs in eval mode, in one pass over the data for all measurements, and is left unchanged. Memory does
    not grow with the data.

    Args:
        model: Any network.
        example: An input: a tensor, a tuple of positional arguments or a mapping of keyword arguments.
        data: Data to watch the units on; the example by default. A tensor or array of inputs, a pair of inputs and
            labels, a mapping of arguments, a dataset, a loader or any other iterable of batches, with or without labels
            after the inputs.
        measures: Names in `MEASURES`; by default "pairing", "phase_correlation", "boundary" and "activity".
        progress: A function that is called as ``progress("layers", 3, 49)`` and ``progress("batches", 7, 20)``; the
            total is None if it is unknown.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> _ = net[0].bias.data.fill_(-100.0)
    >>> for finding in examine(net, torch.randn(64, 4)).findings:
    ...     print(finding.sentence)
    0: 6 of 6 units are dead on 64 inputs; to_crelu lets them learn again
    0: 6 of 6 units switch only beyond the longest input
    """
    if unknown := set(measures) - set(MEASURES):
        raise ValueError(f"there is no measure {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    if any(isinstance(x, Tensor) and x.dim() and not len(x) for x in tree_leaves(example)):
        raise ValueError("the example is empty: give at least one input")
    traced = trace(model, example)
    network = ExaminedNetwork(model, example, data)
    # The network may run under autocast; what is computed about it may not.
    exact = no_autocast(model)
    report = progress or (lambda what, done, total: None)
    with exact:
        begun = _begin(network, traced.rectified, measures, report)
    _watch(network, begun, report, exact)
    layers = tuple(ExaminedLayer(layer, _results(found)) for layer, found in begun)
    findings = ranked(
        finding
        for layer in layers
        for measured in layer.measured.values()
        for finding in measured.findings(layer.rectified)
    )
    return Examination(layers, findings, (*traced.unattributed, *_left_out(traced.rectified, measures)))


def _left_out(layers: Sequence[Rectified], measures: Collection[str]) -> Iterator[tuple[str, str]]:
    """What takes too long, and how to have it all the same."""
    wide = {s.name: len(s.weight) for layer in layers for s in layer.sources if is_too_wide(s)}
    for name, filters in wide.items() if "pairing" in measures else ():
        yield name, f"the pairs of {filters:,} filters take long and are left out; pairing(weight) finds them"


def _begin(
    network: ExaminedNetwork, layers: Sequence[Rectified], measures: Collection[str], report: Progress
) -> list[Begun]:
    """Measure the weights of every layer, and create the gauges that will watch it."""
    begun: list[Begun] = []
    for number, layer in enumerate(layers, 1):
        wanted = [name for name in MEASURES if name in measures] if 0 not in layer.shape else []
        found = {name: MEASURES[name].measure(layer, network) for name in wanted}
        begun.append((layer, {name: each for name, each in found.items() if each is not None}))
        report("layers", number, len(layers))
    return begun


def _results(begun: dict[str, Measurement | Gauge]) -> dict[str, Measurement]:
    """The measurements, with what the gauges have found; None is left out."""
    found = {name: each.result() if isinstance(each, Gauge) else each for name, each in begun.items()}
    return {name: measured for name, measured in found.items() if measured is not None}


def _watch(network: ExaminedNetwork, begun: list[Begun], report: Progress, exact: torch.autocast) -> None:
    """Pass the data through the network once, for all gauges, which compute in the ``exact`` context."""
    watched: dict[str, tuple[Rectified, list[Gauge]]] = {}
    for layer, found in begun:
        if gauges := [each for each in found.values() if isinstance(each, Gauge)]:
            watched[layer.name] = layer, gauges
    if not watched:
        return
    batches = [network.example] if network.data is None else in_batches(network.data)
    total = length_hint(batches) or None
    shells = _Shells(watched)
    with running(network.model) as (run, _):
        for number, batch in enumerate(batches_of(batches, network.example), 1):

            def visit(node: Node, value: Tensor, batch: DataBatch = batch) -> None:
                if node.kind and node.name in watched:
                    r, gauges = watched[node.name]
                    shell = shells.found.get(r.sources[0].name) if r.scale is not None else None
                    given = Seen(r.oriented(value), r.channel_dim, batch.inputs, shell)
                    with exact:
                        for gauge in gauges:
                            gauge.see(given)
                elif node.has_weight:
                    with exact:
                        shells.see(node, value)

            run(batch.arguments, visit)
            report("batches", number, total)


class _Shells:
    """Smallest and largest input norms of each weight in a batch, for the gauges that need them."""

    def __init__(self, watched: dict[str, tuple[Rectified, list[Gauge]]]) -> None:
        self.wanted = {
            r.sources[0].name
            for r, gauges in watched.values()
            if r.scale is not None and any(gauge.wants_shell for gauge in gauges)
        }
        self.found: dict[str, tuple[float, float]] = {}

    def see(self, node: Node, x: Tensor) -> None:
        """Record the smallest and largest norm of the inputs that a weight is multiplied with."""
        if node.name in self.wanted and (squares := _squares(node, x)) is not None and squares.numel():
            low, high = squares.aminmax()
            self.found[node.name] = float(low.relu().sqrt()), float(high.relu().sqrt())


def _squares(node: Node, x: Tensor) -> Tensor | None:
    """The squared norms of the inputs (of a convolution: patches) that a weight is multiplied with."""
    function, args, _ = node.call
    if node.op != "convolution":
        return squared_norms(torch.atleast_2d(x.mT if args[-1] is DATA else x), -1)
    if args[6]:  # the outputs of a transposed convolution have inputs of different shapes
        return None
    groups, kernel = args[8], args[1].shape[2:]
    energy = squared_norms(x.unflatten(1, (groups, -1)), 2)
    if kernel.numel() == 1 and set(args[3]) == {1} and not any(args[4]):  # every place is a patch
        return energy
    squares: Tensor = function(energy, energy.new_ones(groups, 1, *kernel), None, *args[3:])
    return squares
