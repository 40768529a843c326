"""Bring a traced graph into the form that conversions expect: modules for dropouts and ReLUs, no in-place effects."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Argument, Node
from torch.utils._pytree import tree_leaves

from relucid.convert.graph import ConversionError, add_module, fresh_name, is_relu_call, scope
from relucid.convert.tracer import Decision

DROPOUTS: dict[Any, type[nn.Module]] = {
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
}


def modular_dropout(model: nn.Module, training: Mapping[Node, Node]) -> None:
    """Turn functional dropouts that depend on the mode into modules, which know when to drop.

    Args:
        model: The network that the modules are added to.
        training: By node of the graph in evaluation, the node in training.
    """
    for node, other in training.items():
        if node.target not in DROPOUTS:
            continue
        own, others = (_bound(n, ("input", "p", "training", "inplace")) for n in (node, other))
        if own.get("training", True) != others.get("training", True):
            name = fresh_name(model, f"{scope(node)}dropout")
            layer = DROPOUTS[node.target](own.get("p", 0.5), bool(own.get("inplace", False)))
            add_module(model, name, layer)
            node.op, node.target, node.args, node.kwargs = "call_module", name, (own["input"],), {}


class Attention(nn.Module):
    """Scaled dot product attention with one dropout in training and another in evaluation.

    >>> x = torch.randn(2, 3, 4)
    >>> Attention(training=0.5, evaluation=0.0).eval()(x, x, x).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, training: float, evaluation: float) -> None:
        super().__init__()
        self.dropouts = (evaluation, training)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """Return the attended values, (..., queries, features)."""
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropouts[self.training], **options
        )


def modular_attention(model: nn.Module, training: Mapping[Node, Node]) -> None:
    """Turn attentions whose dropout depends on the mode into modules; the arguments are those of `modular_dropout`."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    for node, other in training.items():
        if node.target is not F.scaled_dot_product_attention:
            continue
        own, others = _bound(node, names), _bound(other, names)
        p, q = (given.pop("dropout_p", 0.0) for given in (own, others))
        if p != q:
            name = fresh_name(model, f"{scope(node)}attention")
            add_module(model, name, Attention(training=q, evaluation=p))
            inputs = tuple(own.pop(key) for key in names[:3])
            node.op, node.target, node.args, node.kwargs = "call_module", name, inputs, own


def _bound(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def mark_in_place(model: nn.Module, graph: fx.Graph) -> None:
    """Redirect the readers of a value that was changed in place to the result of the change.

    That does not suffice where another view of the same memory is read later. There the change stays in place
    (``fixed``), and all values that share the memory are marked as ``aliased``.
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    sharing: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for memory in memory_of(node):
            sharing.setdefault(memory, []).append(node)
    for node in list(graph.nodes):
        changed = _changed(model, node)
        node.meta["mutates"] = bool(changed)
        for x in changed:
            group = {n for memory in memory_of(x) for n in sharing[memory]}
            later = [n for n in group - {x, node} if place[n] < place[node] and _last(n, place) > place[node]]
            if later or len(changed) > 1 or x.op == "get_attr" or not _is_same(x, node):
                node.meta["fixed"] = True
                for n in group:
                    n.meta["aliased"] = True
            else:
                for user in [user for user in x.users if place[user] > place[node]]:
                    user.replace_input_with(x, node)


def _changed(model: nn.Module, node: Node) -> list[Node]:
    """Return the values that a node changes in place, on the example or in another mode."""
    changed = list(node.meta.get("mutates", ()))
    declared = bool(node.kwargs.get("inplace"))
    if node.op == "call_module":
        declared = bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    return changed or (node.all_input_nodes[:1] if declared else [])


def memory_of(node: Node) -> set[int]:
    """Return where in memory the value of a node lies on the example."""
    leaves = tree_leaves(node.meta.get("value"))
    return {x.untyped_storage()._cdata for x in leaves if isinstance(x, Tensor) and _is_strided(x)}


def _is_strided(x: Tensor) -> bool:
    return x.layout is torch.strided and not x.is_quantized


def _last(node: Node, place: dict[Node, int]) -> int:
    return max((place[user] for user in node.users), default=-1)


def _is_same(x: Node, node: Node) -> bool:
    a, b = x.meta.get("value"), node.meta.get("value")
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def _detach_given(graph: fx.Graph, node: Node) -> None:
    """Detach what a buffer is changed by in place, or it would be part of every graph from then on."""
    changed, *given = node.all_input_nodes
    for value in given:
        if value is not changed and isinstance(value.meta.get("value"), Tensor) and value.op != "get_attr":
            with graph.inserting_before(node):
                detached = graph.call_method("detach", (value,))
            detached.meta = {key: value.meta[key] for key in ("value", "aliased") if key in value.meta}
            detached.meta["no_grad"] = True
            node.replace_input_with(value, detached)


def detach_regions(graph: fx.Graph) -> None:
    """Detach the values that leave a ``no_grad`` region, so that the region itself is not needed."""
    for node in list(graph.nodes):
        if not node.meta.get("no_grad") or node.op == "get_attr":
            continue
        if node.meta.get("mutates") and any(not n.meta.get("no_grad") for n in node.all_input_nodes[:1]):
            raise ConversionError(
                f"{node.name} changes a value in place under no_grad, which a graph cannot do"
            )
        if node.meta.get("mutates"):
            _detach_given(graph, node)
        outside = [user for user in node.users if not user.meta.get("no_grad")]
        value = node.meta["value"]
        if not outside or not any(isinstance(x, Tensor) for x in tree_leaves(value)):
            continue
        if not isinstance(value, Tensor):
            raise ConversionError(
                f"{node.name} is computed under no_grad and returns more than one tensor, which is not supported"
            )
        with graph.inserting_after(node):
            detached = graph.call_method("detach", (node,))
        detached.meta = {key: node.meta[key] for key in ("value", "aliased") if key in node.meta}
        for user in outside:
            user.replace_input_with(node, detached)


def guard(graph: fx.Graph, decision: Decision) -> None:
    """Make the graph raise an error on inputs for which the network would decide otherwise."""
    node = decision.node
    text = f"the network was converted for sizes on which {decision.line} decides otherwise"
    with graph.inserting_after(node):
        made = graph.call_function(decision.kind, (node,))
    with graph.inserting_after(made):
        same = graph.call_function(operator.eq, (made, decision.value))
    with graph.inserting_after(same):
        graph.call_function(torch._assert, (same, text))


def guard_optional(graph: fx.Graph, optional: Mapping[Node, Any]) -> None:
    """Make the graph raise an error for arguments that the example did not have, unless they are the defaults."""
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    for node, default in optional.items():
        text = f"the network was converted for an example without {node.target}; convert it with an example that has it"
        with graph.inserting_after(last[0]):
            same = graph.call_function(operator.is_ if default is None else operator.eq, (node, default))
        with graph.inserting_after(same):
            graph.call_function(torch._assert, (same, text))


def positional(graph: fx.Graph) -> None:
    """Pass the input of a module by position where it was passed as ``input=``."""
    for node in graph.nodes:
        if node.op == "call_module" and not node.args and list(node.kwargs) == ["input"]:
            node.args, node.kwargs = (node.kwargs["input"],), {}


def say_values(graph: fx.Graph) -> None:
    """Replace the recorded value of every node by its shape, dtype and device."""
    for node in graph.nodes:
        value = node.meta.pop("value", None)
        if isinstance(value, Tensor):
            node.meta.update(shape=value.shape, dtype=value.dtype, device=value.device)


def modular_relus(net: fx.GraphModule) -> None:
    """Replace every ReLU by a module of its own that works out of place."""
    seen: set[str] = set()
    for node in list(net.graph.nodes):
        if not is_relu_call(net, node):
            continue
        name = str(node.target) if node.op == "call_module" else f"{scope(node)}relu"
        if node.op != "call_module" or name in seen:
            name = fresh_name(net, name)
        seen.add(name)
        add_module(net, name, nn.ReLU())
        replace(node, name, node.all_input_nodes[0])


def replace(node: Node, module: str, *args: Argument) -> Node:
    """Replace a node by a call of a module, and return the new node."""
    with node.graph.inserting_before(node):
        new = node.graph.call_module(module, args)
    new.meta = {**node.meta, "calls": 1, "tied": False, "mutates": False}
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return new
