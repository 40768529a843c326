"""What a network did on one example in one mode, and whether it does the same on another or in the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import fx, nn
from torch.fx.node import Node

from relucid.convert.network import Containers
from relucid.convert.normal import DROPOUTS
from relucid.convert.tracer import Decision, Tracer


@dataclass(frozen=True)
class Trace:
    """What a network did on one example in one mode."""

    graph: fx.Graph
    tracer: Tracer
    reads_mode: bool  #: whether any module that was traced into has read its mode

    def forget(self) -> None:
        """Give up the values of all nodes: they refer to each other, so their memory would not be free for long."""
        for node in self.graph.nodes:
            node.meta.pop("value", None)

    @property
    def decisions(self) -> list[Decision]:
        """The Python values that were computed from sizes."""
        return self.tracer.decisions


class NoGraphError(Exception):
    """A module does not compute one graph."""

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(reason)
        self.module, self.reason = module, reason


def compare(first: Trace, other: Trace, when: str, model: nn.Module) -> None:
    """Raise `NoGraphError` for the module in which two traces begin to differ, if they do."""
    for a, b in zip(first.decisions, other.decisions, strict=False):
        if (a.module, a.line, a.value) != (b.module, b.line, b.value):
            reason = f"decides otherwise {when} at {a.line}: it is not one graph"
            raise NoGraphError(code_of(model, a.module), reason)
    images: dict[Node, Node] = {}
    for node, same in zip(first.graph.nodes, other.graph.nodes, strict=False):
        if signature(node, first) != signature(same, other, images):
            path = code_of(model, _inner(_owner(node), _owner(same)))
            raise NoGraphError(
                path, f"computes something else {when} (from {node.name} on): it is not one graph"
            )
        images[same] = node
    if len(first.graph.nodes) != len(other.graph.nodes):
        raise NoGraphError("", f"computes something else {when} (at the end): it is not one graph")


def code_of(model: nn.Module, name: str, kept: Mapping[nn.Module, str] = {}) -> str:
    """Return the module whose forward runs, or ran, ``name``: the next one outwards that is no container, nor kept."""
    while name and (model.get_submodule(name) in kept or isinstance(model.get_submodule(name), Containers)):
        name = name.rpartition(".")[0]
    return name


def signature(node: Node, trace: Trace, images: Mapping[Node, Node] | None = None) -> tuple[Any, ...]:
    """Return what two nodes must have in common to compute the same; a dropout may depend on the mode.

    Args:
        node: Of the graph of ``trace``.
        trace: What a network did.
        images: By node of this graph, the node of the other graph that stands for it.
    """
    kwargs = dict(node.kwargs)
    if node.target in DROPOUTS:
        kwargs.pop("training", None)
    if node.target is F.scaled_dot_product_attention:
        kwargs.pop("dropout_p", None)
    args, kwargs = (node.args, kwargs)
    if images is not None:
        args, kwargs = fx.node.map_arg((args, kwargs), lambda n: images.get(n, n))
    constant = trace.tracer.constants.get(str(node.target)) if node.op == "get_attr" else None
    target = node.target if constant is None else (constant.shape, str(constant.tolist()))
    return node.op, target, str(args), str(kwargs), node.meta.get("no_grad")


def depending(first: Trace, others: Sequence[Trace]) -> list[Decision]:
    """Return the decisions whose operands were not the same on all examples, though their outcome was."""
    rows = zip(first.decisions, *(t.decisions for t in others), strict=True)
    return [own for own, *rest in rows if any(own.operands != other.operands for other in rest)]


def _owner(node: Node) -> str:
    """Return the module whose code made a node."""
    stack = [name for name, _ in node.meta.get("nn_module_stack", {}).values()]
    if node.op == "call_module":
        stack = stack[:-1]
    return stack[-1] if stack else ""


def _inner(a: str, b: str) -> str:
    """Return the inner one of two modules if one is within the other, else the innermost that both are within."""
    if f"{b}.".startswith(f"{a}.") or not a:
        return b
    return a if f"{a}.".startswith(f"{b}.") or not b else _inner(a.rpartition(".")[0], b)
