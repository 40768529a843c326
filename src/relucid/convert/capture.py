"""A network as one graph, found by running it on an example, and again on others to see what depends on sizes."""

import copy
import keyword
import linecache
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.utils._pytree import tree_map_only

from relucid.convert.examples import other_examples, unchanged_buffers
from relucid.convert.flow import mark_channels
from relucid.convert.graph import Batch, ConversionError
from relucid.convert.network import Containers, Network, assemble, light_copy
from relucid.convert.normal import (
    DROPOUTS,
    detach_regions,
    guard,
    guard_optional,
    mark_in_place,
    modular_attention,
    modular_dropout,
    modular_relus,
    positional,
    say_values,
)
from relucid.convert.tracer import OURS, Decision, Tracer, recorded_sizes

INSTANCES = (
    3  # so many modules of one class are found to be no graph one by one; then all of the class are kept
)


def capture(model: nn.Module, example: Batch, others: Sequence[Batch] | None = None) -> Network:
    """A copy of ``model`` as a graph, in which every ReLU is a module of its own that works out of place.

    The copy keeps the names of parameters and buffers, used or not, and the mode (training or not) of every module. It
    takes the arguments that the example has. A module inside whose computation depends on the size of its input or
    on the mode, or that has hooks, is called as it is; if the network itself does so it is refused. ``meta["shape"]``
    of every node whose value is a tensor is its shape on the example.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        others: Examples of other sizes; by default they are made from the example, as far as the network takes them.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True))
    >>> graph = capture(net, torch.zeros(2, 3, 8, 8))
    >>> [(node.target, tuple(node.meta["shape"])) for node in graph.graph.nodes if node.op == "call_module"]
    [('0', (2, 8, 6, 6)), ('1', (2, 8, 6, 6))]
    """
    copied = copied_network(model)
    if others is None:
        others = other_examples(light_copy(copied).eval(), example)
    return captured(copied, example, others)


def captured(
    copied: nn.Module, example: Batch, others: Sequence[Batch], *, both_modes: bool = True
) -> Network:
    """A network as a graph that has its modules, so that it should be a copy; of both modes or of evaluation."""
    training = copied.training
    modes = {module: module.training for module in copied.modules()}
    kept = _kept_modules(copied)
    first, traces = _agreeing(copied, example, others, kept, both_modes)
    graph, tracer = first.graph, first.tracer
    positional(graph)
    modular_attention(copied, graph, traces[0].graph)
    modular_dropout(copied, graph, traces[0].graph)
    guard_optional(graph, tracer.optional)
    mark_in_place(copied, graph)
    detach_regions(graph)
    decisions = _depending(first, traces[1:]) if others else first.decisions
    for decision in decisions:
        guard(graph, decision)
    say_values(graph)
    leaves = {m for name, m in copied.named_modules() if name and _is_leaf(tracer, m, name)}
    net = assemble(copied, graph, leaves, tracer.constants, tracer.norms)
    for module in net.modules():
        module.training = modes.get(module, training)
    _mark(net, {name: kept[m] for name, m in copied.named_modules() if m in kept})
    net.meta["decisions"] = net.meta.get("decisions", []) + [(d.module, d.line) for d in decisions]
    modular_relus(net)
    net.meta["called"] = {str(n.target) for n in graph.nodes if n.op == "call_module"}
    net.meta["names"] = {name for name, _ in net.named_modules()}
    net.recompile()
    return net


def copied_network(model: nn.Module) -> nn.Module:
    """A deep copy, or an error for networks whose copy would not be the same."""
    name = type(model).__name__
    hooked = [n for n, p in model.named_parameters() if p._backward_hooks or _accumulates(p)]
    if hooked:
        raise ConversionError(
            f"{name}'s parameter {hooked[0]} has a hook, which its converted form would lose"
        )
    if model._forward_pre_hooks or "forward" in vars(model):
        what = "forward pre-hooks" if model._forward_pre_hooks else "a forward set on the object"
        raise ConversionError(f"{name} has {what}, which its graph would not run; put it into the class")
    for path, _ in model.named_modules():
        for part in path.split(".") if path else ():
            if keyword.iskeyword(part) or '"' in part or "\\" in part or "\n" in part:
                raise ConversionError(f"{name}'s module {path!r} has a name that Python code cannot use")
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ConversionError(f"{name} cannot be copied: {error}") from error


def _accumulates(parameter: nn.Parameter) -> bool:
    return bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def _kept_modules(model: nn.Module) -> dict[nn.Module, str]:
    """The modules that are called as they are, and why."""
    kept = {}
    for module in model.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        if module is not model and ("forward" in vars(module) or any(hooks) or module._backward_pre_hooks):
            kept[module] = "its hooks are kept, and so is it"
    return kept


@dataclass(frozen=True)
class Trace:
    """What a network did on one example in one mode."""

    graph: fx.Graph
    tracer: Tracer

    @property
    def decisions(self) -> list[Decision]:
        """The Python values that were made of sizes."""
        return self.tracer.decisions


class _NoGraphError(Exception):
    """A module does not compute one graph."""

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(reason)
        self.module, self.reason = module, reason


def _agreeing(
    model: nn.Module,
    example: Batch,
    others: Sequence[Batch],
    kept: dict[nn.Module, str],
    both_modes: bool,
) -> tuple[Trace, list[Trace]]:
    """The network on the example, and the same in training and on others; modules on which they differ are kept."""
    failed: Counter[type] = Counter()
    while True:
        try:
            first = _trace(model, example, False, kept)
            rest = [_trace(model, example, True, kept) if both_modes else first]
            _compare(first, rest[0], "in training than in evaluation", model)
            for other in others:
                rest.append(_trace(model, other, False, kept))
                _compare(first, rest[-1], "for another size of its input", model)
            return first, rest
        except _NoGraphError as error:
            module = model.get_submodule(error.module)
            if module is model:
                raise ConversionError(f"{type(model).__name__} {error.reason}") from error
            failed[type(module)] += 1
            kept[module] = error.reason
            if failed[type(module)] >= INSTANCES:
                kept.update({m: error.reason for m in model.modules() if type(m) is type(module)})


def _trace(model: nn.Module, example: Batch, training: bool, kept: dict[nn.Module, str]) -> Trace:
    """What a network does on an example; containers are told that they train, layers never."""
    tracer = Tracer(
        tree_map_only(Tensor, torch.clone, example), set(kept)
    )  # a network may change it in place
    model.eval()
    for name, module in model.named_modules():
        if not tracer.is_leaf_module(module, name):
            module.training = training
    try:
        with torch.enable_grad(), recorded_sizes(model, tracer), unchanged_buffers(model):
            return Trace(tracer.trace(model), tracer)
    except Exception as error:
        reason = f"cannot be traced{where(error)}: {error}"
        raise _NoGraphError(_untraced(model, tracer.failed, kept), reason) from error
    finally:
        model.eval()


def _untraced(model: nn.Module, name: str, kept: dict[nn.Module, str]) -> str:
    """The module that failed, or the one around it if it has been kept as it is already, "" for the network."""
    while name and (model.get_submodule(name) in kept or isinstance(model.get_submodule(name), Containers)):
        name = name.rpartition(".")[0]
    return name


def where(error: BaseException) -> str:
    """The last line of the network's own code that an error went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(o in f.filename for o in OURS)]
    if not frames:
        return ""
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {last.filename}:{last.lineno}, `{line}`"


def _compare(first: Trace, other: Trace, when: str, model: nn.Module) -> None:
    """Raise for the module from which on two traces differ, if they do."""
    for a, b in zip(first.decisions, other.decisions, strict=False):
        if (a.module, a.line, a.value) != (b.module, b.line, b.value):
            reason = f"decides otherwise {when} at {a.line}: it is not one graph"
            raise _NoGraphError(_untraced(model, a.module, {}), reason)
    for node, same in zip(first.graph.nodes, other.graph.nodes, strict=False):
        if _signature(node, first) != _signature(same, other):
            path = _untraced(model, _inner(_owner(node), _owner(same)), {})
            raise _NoGraphError(
                path, f"computes something else {when} (from {node.name} on): it is not one graph"
            )
    if len(first.graph.nodes) != len(other.graph.nodes):
        raise _NoGraphError("", f"computes something else {when} (at the end): it is not one graph")


def _owner(node: Node) -> str:
    """The module whose code made a node."""
    stack = [name for name, _ in node.meta.get("nn_module_stack", {}).values()]
    if node.op == "call_module":
        stack = stack[:-1]
    return stack[-1] if stack else ""


def _inner(a: str, b: str) -> str:
    """The inner one of two modules, one of which is within the other, or else the one that both are within."""
    if f"{b}.".startswith(f"{a}.") or not a:
        return b
    return a if f"{a}.".startswith(f"{b}.") or not b else _inner(a.rpartition(".")[0], b)


def _signature(node: Node, trace: Trace) -> tuple[Any, ...]:
    kwargs = dict(node.kwargs)
    if node.target in DROPOUTS:
        kwargs.pop("training", None)
    if node.target is F.scaled_dot_product_attention:
        kwargs.pop("dropout_p", None)
    constant = trace.tracer.constants.get(str(node.target)) if node.op == "get_attr" else None
    said = None if constant is None else (constant.shape, constant.tolist())
    return node.op, node.target, str(node.args), str(kwargs), node.meta.get("no_grad"), str(said)


def _depending(first: Trace, others: Sequence[Trace]) -> list[Decision]:
    """The decisions whose operands were not the same on all examples, though their outcome was."""
    rows = zip(first.decisions, *(t.decisions for t in others), strict=True)
    return [own for own, *rest in rows if any(own.operands != other.operands for other in rest)]


def _is_leaf(tracer: Tracer, module: nn.Module, name: str) -> bool:
    if module in tracer.opaque:
        return True
    return tracer.is_leaf_module(module, name) and not isinstance(module, Containers)


def _mark(net: Network, kept: dict[str, str]) -> None:
    """Say of every call of a module how often it is called, whether its tensors are others' too, and if it is kept."""
    called = [node for node in net.graph.nodes if node.op == "call_module"]
    modules = {node: net.get_submodule(str(node.target)) for node in called}
    times = Counter(modules.values())
    owners: Counter[Tensor] = Counter(p for m in net.modules() for p in set(m.parameters(recurse=False)))
    attributes = [node for node in net.graph.nodes if node.op == "get_attr" and node.users]
    read = {str(node.target).rpartition(".")[0] for node in attributes}
    for node, module in modules.items():
        node.meta["calls"] = times[module]
        node.meta["tied"] = str(node.target) in read or any(owners[p] > 1 for p in module.parameters())
        if str(node.target) in kept:
            node.meta["kept"] = kept[str(node.target)]
        node.meta["impure"] = not node.users
    mark_channels(net)
