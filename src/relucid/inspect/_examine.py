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
from relucid.inspect._pairing import Pairings, is_too_wide
from relucid.inspect._policy import Entropy, Policy, watched
from relucid.inspect._statistics import squared_norms
from relucid.inspect._trace import Rectified, base_name, trace
from relucid.inspect.activity import Activity
from relucid.inspect.batches import batches_of, example_for, inputs_in, is_one_batch
from relucid.inspect.examination import Examination, ExaminedLayer
from relucid.inspect.execution import Arguments, Method, running
from relucid.inspect.findings import Finding, ranked
from relucid.inspect.measurement import LayerBatch, Measurement, StreamingMeasure
from relucid.inspect.phase import PhaseCorrelations
from relucid.inspect.plasticity import Plasticity
from relucid.inspect.recorder import DATA, Node
from relucid.nn.tracing import no_autocast

MEASURES: dict[str, type[Measurement]] = {
    "pairing": Pairings,
    "phase_correlation": PhaseCorrelations,
    "boundary": Boundary,
    "activity": Activity,
    "plasticity": Plasticity,
}
"""Measurements by name; add your own class to make `examine` run it."""

DEFAULT_MEASURES = ("pairing", "phase_correlation", "boundary", "activity")
"""Names of the measurements that `examine` runs by default."""

EXTENDED_MEASURES = (*DEFAULT_MEASURES, "plasticity")
"""Names of those that `relucid examine` runs."""


def examine(
    model: nn.Module,
    example: Any,
    data: Any = None,
    *,
    measures: Collection[str] = DEFAULT_MEASURES,
    call: Method | None = None,
    policy: Policy | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
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
    traced = trace(model, arguments, call=call)
    report = progress or (lambda what, done, total: None)
    exact = no_autocast(model)
    measured: list[dict[str, Measurement | StreamingMeasure]] = []
    with exact:
        for number, layer in enumerate(traced.rectified, 1):
            measured.append(_begun(layer, model, measures))
            report("layers", number, len(traced.rectified))
    streams = _Streams(list(zip(traced.rectified, measured, strict=True)), exact)
    entropy = Entropy()
    if streams.by_call or policy is not None:
        given = [example] if data is None else in_batches(data)
        batches = iter([arguments]) if data is None else batches_of(given, arguments)
        for number in _passed(model, batches, streams, entropy, call, policy):
            report("batches", number, length_hint(given) or None)
    layers = tuple(
        ExaminedLayer(*pair) for pair in zip(traced.rectified, map(_computed, measured), strict=True)
    )
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


def _passed(
    model: nn.Module,
    batches: Iterator[Arguments],
    streams: _Streams,
    entropy: Entropy,
    call: Method | None,
    policy: Policy | None,
) -> Iterator[int]:
    """Pass batches through the network, once for all measures; yield how many have passed."""
    with running(model, call=call) as (run, _), watched(entropy, model, model, policy) as chosen:
        for number, batch in enumerate(batches, 1):
            streams.inputs = inputs_in(batch)
            run(batch, streams.visit, streams.observe)
            chosen(batch)
            yield number


def _begun(
    layer: Rectified, model: nn.Module, measures: Collection[str]
) -> dict[str, Measurement | StreamingMeasure]:
    """What is measured of the weights of a layer, and what will be of the data."""
    wanted = [name for name in MEASURES if name in measures] if 0 not in layer.shape else []
    results = {name: MEASURES[name].measure(layer, model) for name in wanted}
    return {name: result for name, result in results.items() if result is not None}


def _computed(measured: dict[str, Measurement | StreamingMeasure]) -> dict[str, Measurement]:
    """The measurements, with what was computed from the data; None is left out."""
    results = {n: m.compute() if isinstance(m, StreamingMeasure) else m for n, m in measured.items()}
    return {name: result for name, result in results.items() if result is not None}


class _Streams:
    """The measures that need the data, updated while it passes through the network, in one pass for all of them.

    The network may run under autocast; what is computed about it may not, but in the ``exact`` context.
    """

    def __init__(
        self,
        measured: list[tuple[Rectified, dict[str, Measurement | StreamingMeasure]]],
        exact: torch.autocast,
    ) -> None:
        self.exact, self.inputs = exact, 0
        streaming = [(r, [m for m in ms.values() if isinstance(m, StreamingMeasure)]) for r, ms in measured]
        self.by_call = {name: (r, ms) for r, ms in streaming if ms for name in r.calls}
        # Smallest and largest norm of the latest inputs of each weight, for the measures that need them.
        self.shells: dict[str, tuple[float, float] | None] = {
            base_name(r.sources[0].name): None
            for r, ms in streaming
            if r.scale is not None and any(m.wants_shell for m in ms)
        }

    def visit(self, node: Node, x: Tensor) -> None:
        """Note the norms of the inputs that a weight is multiplied with."""
        name = base_name(node.name)
        if name in self.shells:
            with self.exact:
                if (squares := _squares(node, x)) is not None and squares.numel():
                    low, high = squares.aminmax()
                    self.shells[name] = float(low.relu().sqrt()), float(high.relu().sqrt())

    def observe(self, node: Node, value: Tensor, output: Tensor) -> None:
        """Update the measures of a rectification."""
        if not node.kind or node.name not in self.by_call:
            return
        r, measures = self.by_call[node.name]
        inputs = self.inputs if node.name == r.calls[0] else 0  # the same inputs, once more
        shell = None if r.scale is None else self.shells.get(base_name(r.sources[0].name))
        with self.exact:
            both = r.both_phases(value, output)
            batch = LayerBatch(r.oriented(value), r.channel_dim, inputs, both, shell)
            for measure in measures:
                measure.update(batch)


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
