"""Give every unit its other phase: which modules can, and which layers read the new channels."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves
from relucid.convert._steps import Double, Read, Step
from relucid.convert.conversion import Conversion
from relucid.convert.errors import ConversionError
from relucid.convert.flow import Flow, follow, is_within
from relucid.convert.layout import Layout, channel_dims, display_name, propagate
from relucid.convert.network import Layers, Note, RecordedModel, feeding, select, suggestions
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Node, Recording
from relucid.nn import GeometricLayer
from relucid.nn.kinds import Kind, kind_of


def expand(
    model: nn.Module,
    example: Any,
    layers: Layers,
    call: Method | None,
    tolerance: float | None,
    inplace: bool = False,
    optimizer: Any = None,
) -> Conversion:
    """``to_crelu`` with mode="expand"; see there."""
    network = RecordedModel(model, example, call)
    candidates, relus, obstacles = find_candidates(network, layers)
    flows: list[Flow] = []

    def attempt(names: list[str], left_out: Mapping[str, str]) -> Conversion:
        chosen, dropped = {name: candidates[name] for name in names}, dict(left_out)
        flows[:] = _followed(network, chosen, dropped)
        reasons = obstacles | {relu: why for name, why in dropped.items() for relu in relus[name]}
        readers = {name: (layout, name in one.carries) for one in flows for name, layout in one.reads.items()}
        # The input of any other candidate has both phases already.
        begun = {name for one in flows for layout in one.layouts.values() for name in layout.sites}
        steps: list[Step] = [step for name, step in chosen.items() if name in begun]
        steps += [Read(name, *read) for name, read in readers.items()]
        notes: list[Note] = [(relu, "refused", reason) for relu, reason in reasons.items()]
        for name, step in chosen.items():
            if name in begun:
                notes += [(relu, "changed", _done(step)) for relu in relus[name]]
            else:
                notes += [(relu, "kept", "its input has both phases already") for relu in relus[name]]
        for name, (layout, carries) in readers.items():
            kind = "" if layout.is_split else " of zero"
            reason = "a filter for each phase" if carries else f"weights{kind} for the new channels"
            if hasattr(network.modules[name], "weight"):
                notes.append((name, "changed", reason))
        changes = network.changes(notes, "its input has no new channels", "not chosen")
        made = converted(network, steps, changes, tolerance=tolerance, inplace=inplace)
        return replace(made, unchecked=(*made.unchecked, *_overflows(network, chosen.keys() & begun)))

    def reaching(layer: str) -> set[str]:
        """The candidates whose channels a layer reads, or something inside a module."""
        reads = next((one.reads[layer] for one in flows if layer in one.reads), None)
        if reads is not None:
            return set(reads.sites)
        if layer in candidates and not list(network.modules[layer].children()):
            return {layer}
        layouts = (pair for one in flows for pair in one.layouts.items())
        return {site for node, layout in layouts if is_within(node.module, layer) for site in layout.sites}

    return delivered(network, largest_valid_subset(candidates, attempt, reaching), inplace, optimizer)


def _overflows(network: RecordedModel, names: Collection[str]) -> list[str]:
    """What may become of values that float16 cannot hold: relu(-x) is infinite where x is minus infinity."""
    if not names or all(p.dtype != torch.float16 for p in network.model.parameters()):
        return []
    places = ", ".join(name for name in network.modules if name in names)
    return [f"values below -65,504 at {places}: float16 has minus infinity for them, and outputs become NaN"]


def _done(step: Double) -> str:
    if not step.replace:
        return f"CReLU: {step.name} returns both signs"
    if len(step.slopes or ()) > 1:
        slopes = (
            "its slopes become factors in the weights that read it, and are not learned as slopes any more"
        )
        return f"CReLU; {slopes}"
    return "CReLU"


def find_candidates(
    network: RecordedModel, layers: Layers
) -> tuple[dict[str, Double], dict[str, list[str]], dict[str, str]]:
    """Find the modules that can give their units both phases.

    Returns:
        What to do to each; by module, the rectifications that it is for; and by rectification, why others stay.
    """
    candidates: dict[str, Double] = {}
    relus: dict[str, list[str]] = {}
    obstacles: dict[str, str] = {}
    in_evaluation = {name for recording in network.evaluated for name in recording.calls_of}
    for recording in network.recordings:
        dims, makers = channel_dims(recording.nodes), dict[Node, str]()
        for call in recording.calls:
            if len(call.outputs) == 1:
                makers.setdefault(call.outputs[0], call.module)  # the innermost module comes first
        for node in (node for node in recording.nodes if _is_single(node)):
            try:
                step = _candidate(network, node, makers, dims)
            except ConversionError as error:
                obstacles.setdefault(node.name, str(error))
                continue
            if recording in network.evaluated or step.name not in in_evaluation:
                candidates.setdefault(step.name, step)
                relus.setdefault(step.name, []).append(node.name)
    names = {
        node.name: (node.name, node.name.partition(":")[0], *feeding(node))
        for recording in network.recordings
        for node in recording.nodes
        if _is_single(node)
    }
    chosen = select(names, layers, partial(suggestions, network))
    candidates = {name: step for name, step in candidates.items() if not chosen.isdisjoint(relus[name])}
    return candidates, relus, {relu: reason for relu, reason in obstacles.items() if relu in chosen}


def _is_single(node: Node) -> bool:
    return node.kind is not None and not node.kind.doubled


def _candidate(
    network: RecordedModel, node: Node, makers: Mapping[Node, str], dims: Mapping[Node, int]
) -> Double:
    """The module to change for one rectification, and how; an error that says why there is none."""
    kind = node.kind
    assert kind is not None
    if not kind.homogeneous:
        places = " and ".join(f"{boundary:g}" for boundary in kind.boundaries)
        raise ConversionError(
            f"its units switch at {places}: CReLU keeps the two phases of one boundary, at 0"
        )
    if _is_masked(node):
        raise ConversionError("minus infinity comes before it, of which weights of zero would make NaN")
    dim = dims.get(node.rectified)
    if dim is None:
        raise ConversionError("it is not clear which dimension holds its channels")
    modules, name = network.modules, makers.get(node)
    activation = modules.get(name or "")
    place = -1 if dim == len(node.shape) - 1 else dim
    if name and activation is not None and kind_of(activation) is not None and network.counts[name] == 1:
        return Double(name, place, slopes=_slopes(activation, kind, dim))
    if isinstance(modules.get(node.module), GeometricLayer):
        raise ConversionError(f"it is inside {node.module}: apply fuse first, and to_geometric afterwards")
    if kind.below != 0:
        raise ConversionError(
            "it is a function or is called more than once: only a module of its own can be replaced"
        )
    value = node.rectified
    while value not in makers and len(value.upstream) == 1 and is_per_channel(value, dims):
        value = value.upstream[0]
    maker = makers.get(value)
    if not maker or isinstance(modules[maker], torch.jit.ScriptModule):
        what = "an input" if value.order < 0 else f"the value of {display_name(value)}"
        what = "a sum" if value.op == "add" else what
        raise ConversionError(f"it rectifies {what}, which no module returns")
    dim = dims.get(value, dim)
    return Double(maker, -1 if dim == len(value.shape) - 1 else dim, replace=False)


def _followed(network: RecordedModel, candidates: dict[str, Double], dropped: dict[str, str]) -> list[Flow]:
    """Follow the new channels; candidates whose channels reach something that cannot take them are dropped."""
    dims = {recording: channel_dims(recording.nodes) for recording in network.recordings}

    def starts(recording: Recording) -> dict[Node, Layout]:
        layouts = {}
        for call in recording.calls:
            step = candidates.get(call.module)
            if step is not None and call.outputs:
                node = call.outputs[0]
                dim = dims[recording].get(node, step.dim % max(len(node.shape), 1))
                layouts[node] = step.layout(node.shape[dim], dim)
        return layouts

    def drop(name: str, reason: str) -> None:
        del candidates[name]
        dropped[name] = reason

    def regroup(name: str, groups: set[int]) -> bool:
        step = candidates[name]
        together = math.lcm(step.groups, *groups)
        if step.slopes is not None or together == step.groups:
            return False
        candidates[name] = replace(step, groups=together)
        return True

    return follow(network, starts, drop, regroup=regroup)


def _is_masked(relu: Node) -> bool:
    """Whether an operation between a layer and a rectification puts minus infinity into the value, as masks do."""
    stack, seen = relu.upstream, set[Node]()
    while stack:
        node = stack.pop()
        if node in seen or node.has_weight or node.kind is not None:
            continue
        seen.add(node)
        if any(_is_infinite(x) for x in tree_leaves(node.call[1:])):
            return True
        stack += node.upstream
    return False


def _is_infinite(x: object) -> bool:
    if isinstance(x, Tensor):
        return x.is_floating_point() and x.numel() > 0 and bool(x.isneginf().any())
    return x == -math.inf


def is_per_channel(node: Node, dims: Mapping[Node, int]) -> bool:
    """Whether an operation treats all channels alike, so that both signs may come before it."""
    before = node.upstream[0]
    if before not in dims or node.has_weight:
        return False
    try:
        propagate(node, {before: Layout.same(before.shape[dims[before]], dims[before])})
    except ConversionError:
        return False
    return True


def _slopes(module: nn.Module, kind: Kind, dim: int) -> tuple[float, ...] | None:
    """The slope of each unit below its boundary, or one for all; None if it is 0."""
    if isinstance(module, nn.RReLU):
        raise ConversionError(
            "in training, it draws a random slope for every entry, which weights cannot reproduce"
        )
    if kind.below is not None:
        return (kind.below,) if kind.below else None
    assert isinstance(module, nn.PReLU)
    if module.weight.numel() > 1 and dim != 1:
        raise ConversionError(f"its slopes belong to dimension 1, its units are in dimension {dim}")
    return tuple(module.weight.detach().double().tolist())
