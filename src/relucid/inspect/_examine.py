"""Examine all rectified layers of a network in one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import length_hint
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves
from relucid.data import in_batches
from relucid.inspect._boundary import Boundary
from relucid.inspect._invariance import LayerInvariance
from relucid.inspect._pairing import Pairings, is_too_wide
from relucid.inspect._policy import Entropy, Policy, watched
from relucid.inspect._trace import Rectified, base_name, trace
from relucid.inspect.activity import Activity
from relucid.inspect.batches import DataBatch, batches_of, example_for, inputs_in, is_one_batch
from relucid.inspect.blocks import squared_norms
from relucid.inspect.examination import Examination, ExaminedLayer
from relucid.inspect.execution import DATA, Method, Node, running
from relucid.inspect.findings import Finding, ranked
from relucid.inspect.measurement import ExaminedNetwork, LayerBatch, Measurement, StreamingMeasure
from relucid.inspect.phase import PhaseCorrelations
from relucid.inspect.plasticity import Plasticity
from relucid.inspect.reconstruction import ReconstructionLoss
from relucid.nn.tracing import no_autocast

MEASURES: dict[str, type[Measurement]] = {
    "pairing": Pairings,
    "phase_correlation": PhaseCorrelations,
    "boundary": Boundary,
    "activity": Activity,
    "plasticity": Plasticity,
    "reconstruct": ReconstructionLoss,
    "invariance": LayerInvariance,
}
"""Measurements by name; add your own class to make `examine` run it."""

DEFAULT_MEASURES = ("pairing", "phase_correlation", "boundary", "activity")
"""Names of the measurements that `examine` runs by default."""

EXTENDED_MEASURES = (*DEFAULT_MEASURES, "plasticity")
"""Names of those that `relucid examine` runs."""

# A layer, with its measurements by name and those that need the data.
Begun = tuple[Rectified, dict[str, Measurement | StreamingMeasure]]
Progress = Callable[[str, int, int | None], None]


def examine(
    model: nn.Module,
    example: Any,
    data: Any = None,
    *,
    measures: Collection[str] = DEFAULT_MEASURES,
    call: Method | None = None,
    policy: Policy | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Examine what each rectified layer of a network has learned, with findings in plain language.

    The network runs in eval mode, in one pass over the data for all measurements, and is left unchanged. Memory does
    not grow with the data.

    Args:
        model: Any network.
        example: An input in any form that ``data`` may have: of a loader or a dataset, the first batch; labels after
            what the network takes are left out.
        data: Data to watch the units on; the example by default. A tensor or array of inputs, a pair of inputs and
            labels, a mapping of arguments, a dataset, a loader or any other iterable of batches, with or without labels
            after the inputs.
        measures: Names in `MEASURES`; by default "pairing", "phase_correlation", "boundary" and "activity".
        call: How the network is used, if not through its forward: a method's name, or a function of both.
        policy: Which part returns the logits of a policy, by name, or a function of the network and the inputs: its
            entropy is measured, too.
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
    arguments = example_for(model, example, call)
    if data is None and not is_one_batch(example) and not isinstance(example, Iterator):
        data = example
    network = ExaminedNetwork(model, arguments, data, call)
    traced = trace(model, arguments, call=call)
    # The network may run under autocast; what is computed about it may not.
    exact = no_autocast(model)
    report = progress or (lambda what, done, total: None)
    with exact:
        begun = _begin(network, traced.rectified, measures, report)
    entropy = Entropy()
    _watch(network, begun, report, exact, policy, entropy)
    layers = tuple(ExaminedLayer(layer, _computed(measured)) for layer, measured in begun)
    findings = [
        finding
        for layer in layers
        for measured in layer.measured.values()
        for finding in measured.findings(layer.rectified)
    ]
    findings += [_certain(entropy, policy)] if entropy.is_certain else []
    unattributed = (*traced.unattributed, *_left_out(traced.rectified, measures))
    return Examination(layers, ranked(findings), unattributed, None if policy is None else entropy.mean)


def _certain(entropy: Entropy, policy: Policy | None) -> Finding:
    evidence = {"entropy": entropy.mean, "greatest": entropy.greatest, "choices": entropy.choices}
    name = policy if isinstance(policy, str) else "policy"
    return Finding(name, "certain policy", entropy.sentence(policy), evidence, severity="warning")


def _left_out(layers: Sequence[Rectified], measures: Collection[str]) -> Iterator[tuple[str, str]]:
    """What takes too long, and how to have it all the same."""
    wide = {s.name: len(s.weight) for layer in layers for s in layer.sources if is_too_wide(s)}
    for name, filters in wide.items() if "pairing" in measures else ():
        yield name, f"the pairs of {filters:,} filters take long and are left out; pairing(weight) finds them"


def _begin(
    network: ExaminedNetwork, layers: Sequence[Rectified], measures: Collection[str], report: Progress
) -> list[Begun]:
    """Measure the weights of every layer, and create what will watch it."""
    begun: list[Begun] = []
    for number, layer in enumerate(layers, 1):
        wanted = [name for name in MEASURES if name in measures] if 0 not in layer.shape else []
        measured = {name: MEASURES[name].measure(layer, network) for name in wanted}
        begun.append((layer, {name: result for name, result in measured.items() if result is not None}))
        report("layers", number, len(layers))
    return begun


def _computed(begun: dict[str, Measurement | StreamingMeasure]) -> dict[str, Measurement]:
    """The measurements, with what was computed from the data; None is left out."""
    results = {n: m.compute() if isinstance(m, StreamingMeasure) else m for n, m in begun.items()}
    return {name: result for name, result in results.items() if result is not None}


def _watch(
    network: ExaminedNetwork,
    begun: list[Begun],
    report: Progress,
    exact: torch.autocast,
    policy: Policy | None,
    entropy: Entropy,
) -> None:
    """Pass the data through the network once, for all measures, which compute in the ``exact`` context."""
    streaming = [(r, [m for m in ms.values() if isinstance(m, StreamingMeasure)]) for r, ms in begun]
    watchers = {name: (r, ms) for r, ms in streaming if ms for name in r.calls}
    if not watchers and policy is None:
        return
    norms = _InputNormRanges(watchers)
    alone = [DataBatch(network.example, inputs_in(network.example))]
    given = alone if network.data is None else in_batches(network.data)
    batches = alone if network.data is None else batches_of(given, network.example)
    with (
        running(network.model, call=network.call) as (run, _),
        watched(entropy, network.model, network.model, policy) as chosen,
    ):
        for number, batch in enumerate(batches, 1):

            def visit(node: Node, value: Tensor) -> None:
                with exact:
                    norms.update(node, value)

            def observe(node: Node, value: Tensor, output: Tensor, inputs: int = batch.inputs) -> None:
                if node.kind and node.name in watchers:
                    r, measures = watchers[node.name]
                    inputs = inputs if node.name == r.calls[0] else 0  # the same inputs, once more
                    with exact:
                        passing = LayerBatch(
                            r.oriented(value),
                            r.channel_dim,
                            inputs,
                            r.both_phases(value, output),
                            norms.of(r),
                        )
                        for measure in measures:
                            measure.update(passing)

            run(batch.arguments, visit, observe)
            chosen(batch.arguments)
            report("batches", number, length_hint(given) or None)


class _InputNormRanges:
    """Smallest and largest norm of the inputs of each weight in a batch, for the measures that need them."""

    def __init__(self, watchers: dict[str, tuple[Rectified, list[StreamingMeasure]]]) -> None:
        self.wanted = {
            base_name(r.sources[0].name)
            for r, measures in watchers.values()
            if r.scale is not None and any(measure.wants_shell for measure in measures)
        }
        self.latest: dict[str, tuple[float, float]] = {}

    def of(self, layer: Rectified) -> tuple[float, float] | None:
        """The range of the inputs that the layer has just seen."""
        return None if layer.scale is None else self.latest.get(base_name(layer.sources[0].name))

    def update(self, node: Node, x: Tensor) -> None:
        """Record the smallest and largest norm of the inputs that a weight is multiplied with."""
        name = base_name(node.name)
        if name in self.wanted and (squares := _squares(node, x)) is not None and squares.numel():
            low, high = squares.aminmax()
            self.latest[name] = float(low.relu().sqrt()), float(high.relu().sqrt())


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
