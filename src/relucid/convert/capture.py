"""Capture a network as one graph by running it on an example, and on other sizes to see what depends on them."""

import copy
import keyword
import linecache
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import RLock

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.utils._pytree import tree_map_only

from relucid.convert.draws import drawn, refuse_draws
from relucid.convert.examples import other_examples, unchanged_buffers
from relucid.convert.flow import mark_channels
from relucid.convert.graph import Batch, ConversionError
from relucid.convert.mode_use import noted_reads, own_method
from relucid.convert.modes import join
from relucid.convert.network import ByMode, Containers, Network, assemble, light_copy
from relucid.convert.normal import (
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
from relucid.convert.tracer import OURS, Decision, Tracer, recorded_sizes, unchanged_classes
from relucid.convert.traces import NoGraphError, Trace, code_of, compare, depending

ONE_AT_A_TIME = RLock()  # tracing changes torch's own functions and classes, and checks its random state
INSTANCES = 3  # when so many modules of one class turn out to be no graph, all of the class are kept


def capture(model: nn.Module, example: Batch, others: Sequence[Batch] | None = None) -> Network:
    """Return a copy of ``model`` as a graph, in which every ReLU is a module of its own that works out of place.

    The copy keeps all parameters and buffers under their names, used or not, and the mode of every module. It takes
    the arguments that the example has. Where the computation of an inner module depends on the size of its input, or
    in a way that one graph cannot express on the mode, or where it has hooks, the module is called as it is; if the
    network itself is like that, it is refused. ``meta["shape"]`` of a node is the shape of its value on the example.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        others: Examples of other sizes; by default made from the example, as far as the network takes them.

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
    """Return ``copied`` as a graph that uses its modules, for both modes or for evaluation only."""
    training = copied.training
    modes = {module: module.training for module in copied.modules()}
    kept = _kept_modules(copied)
    agreed = _agreeing(copied, example, others, kept, both_modes)
    graph, tracer, decisions = agreed.trace.graph, agreed.trace.tracer, agreed.decisions
    positional(graph)
    modular_attention(copied, agreed.shared)
    modular_dropout(copied, agreed.shared)
    guard_optional(graph, tracer.optional)
    mark_in_place(copied, graph)
    detach_regions(graph)
    for decision in decisions:
        guard(graph, decision)
    say_values(graph)
    called = {node.target for node in graph.nodes if node.op == "call_module"}
    leaves = {m for name, m in copied.named_modules() if name and _is_leaf(tracer, m, name)}
    leaves |= {m for name, m in copied.named_modules() if isinstance(m, ByMode) and name in called}
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
    """Return a deep copy; raise an error for networks whose copy would not be the same."""
    name = type(model).__name__
    for path, module in model.named_modules():
        if "_orig_mod" in module._modules:  # torch.compile has wrapped it
            what = f"{name}'s module {path}" if path else name
            raise ConversionError(
                f"{what} is compiled; convert the network before compiling it (`_orig_mod` is the network itself)"
            )
    hooked = [n for n, p in model.named_parameters() if p._backward_hooks or _accumulates(p)]
    if hooked:
        raise ConversionError(
            f"{name}'s parameter {hooked[0]} has a hook, which a converted network would lose"
        )
    if model._forward_pre_hooks or "forward" in vars(model):
        what = "forward pre-hooks" if model._forward_pre_hooks else "a forward set on the object"
        raise ConversionError(f"{name} has {what}, which its graph would not run; put it into the class")
    if method := own_method(model):
        raise ConversionError(
            f"{name} has {method} of its own, which its graph would not have; convert the network inside it, or "
            "put the method into a module around it"
        )
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
    """Return the modules that must be called as they are because of hooks, and why."""
    kept = {}
    for module in model.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        if module is not model and ("forward" in vars(module) or any(hooks) or module._backward_pre_hooks):
            kept[module] = "it has hooks, so it is called as it is"
        elif module is not model and (method := own_method(module)):
            kept[module] = f"it has {method} of its own, so it is called as it is"
    return kept


@dataclass(frozen=True)
class Agreement:
    """What a network computes whatever the size of its input, in both modes."""

    trace: Trace
    shared: dict[Node, Node]  #: by node of ``trace``: the node that computes the same in training, if any
    decisions: list[Decision]  #: those that depend on sizes


def _agreeing(
    model: nn.Module,
    example: Batch,
    others: Sequence[Batch],
    kept: dict[nn.Module, str],
    both_modes: bool,
) -> Agreement:
    """Trace a network until all traces agree; modules on which they do not are kept as they are."""
    failed: Counter[type] = Counter()
    while True:
        try:
            return _agreement(model, example, others, kept, both_modes)
        except NoGraphError as error:
            module = model.get_submodule(error.module)
            if module is model:
                raise ConversionError(f"{type(model).__name__} {error.reason}") from error
            failed[type(module)] += 1
            kept[module] = error.reason
            if failed[type(module)] >= INSTANCES:
                kept.update({m: error.reason for m in model.modules() if type(m) is type(module)})


def _agreement(
    model: nn.Module,
    example: Batch,
    others: Sequence[Batch],
    kept: dict[nn.Module, str],
    both_modes: bool,
) -> Agreement:
    """Trace a network on the example in both modes, and on the others in evaluation."""
    first = _trace(model, example, False, kept)
    rest = []
    for other in others:
        rest.append(_trace(model, other, False, kept))
        compare(first, rest[-1], "for another size of its input", model)
        rest[-1].forget()
    # A network that never reads its mode does the same in both. One that changes by itself may read it later.
    both_modes = both_modes and (not rest or any(trace.reads_mode for trace in (first, *rest)))
    training = _trace(model, example, True, kept) if both_modes else None
    decisions = depending(first, rest) if others else first.decisions
    if training is None:
        _erase(first.graph, first.tracer.dropped)
        return Agreement(first, {}, decisions)
    try:
        shared, more = join(model, first, training)
    except NoGraphError:
        compare(first, training, "in training than in evaluation", model)
        raise
    return Agreement(first, shared, [*decisions, *more])


def _erase(graph: fx.Graph, dropped: Iterable[Node]) -> None:
    """Delete nodes that nobody reads, and what is computed for them only."""
    stack = list(dropped)
    while stack:
        node = stack.pop()
        if node.op != "placeholder" and not node.users and not node._erased:
            stack.extend(node.all_input_nodes)
            graph.erase_node(node)


def _trace(model: nn.Module, example: Batch, training: bool, kept: dict[nn.Module, str]) -> Trace:
    """Trace a network on an example; ``training`` is the mode of containers, layers are in evaluation."""
    tracer = Tracer(
        tree_map_only(Tensor, torch.clone, example), set(kept)
    )  # a network may change it in place
    model.eval()
    for name, module in model.named_modules():
        if not tracer.is_leaf_module(module, name):
            module.training = training
    try:
        with (
            ONE_AT_A_TIME,
            torch.enable_grad(),
            recorded_sizes(model, tracer),
            unchanged_buffers(model),
            unchanged_classes(),
            noted_reads(model, tracer, training) as reads,
        ):
            before = drawn()
            graph, assigned = tracer.trace(model), _assigned(model)
            refuse_draws(before)
    except Exception as error:
        reason = f"cannot be traced{where(error)}: {error}"
        raise NoGraphError(code_of(model, tracer.failed, kept), reason) from error
    finally:
        model.eval()
    if assigned:
        path, _, name = assigned.rpartition(".")
        raise NoGraphError(
            code_of(model, path), f"assigns to its buffer {name} in forward, which no graph does"
        )
    return Trace(graph, tracer, bool(reads))


def _assigned(model: nn.Module) -> str:
    """Return the name of a buffer to which a trace has assigned what it computed, or ""."""
    buffers = model.named_buffers(remove_duplicate=False)
    return next((name for name, buffer in buffers if isinstance(buffer, fx.Proxy)), "")


def where(error: BaseException) -> str:
    """Return the last line of the network's own code in the traceback of an error, as " at FILE:LINE, `CODE`"."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(o in f.filename for o in OURS)]
    if not frames:
        return ""
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {last.filename}:{last.lineno}, `{line}`"


def _is_leaf(tracer: Tracer, module: nn.Module, name: str) -> bool:
    if module in tracer.opaque:
        return True
    return tracer.is_leaf_module(module, name) and not isinstance(module, Containers)


def _mark(net: Network, kept: dict[str, str]) -> None:
    """Note on every call of a module how often it is called, whether its parameters are shared, and if it is kept."""
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
