"""Questions about the nodes of a captured network, and functions that find, add and name its modules."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Argument, Node
from torch.nn.modules.conv import _ConvTransposeNd

from relucid.nn.geometric import _Geometric
from relucid.nn.kinds import KINDS, Kind, kind_of, kind_of_call
from relucid.nn.propagation import Propagation

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]

ADDS: set[Any] = {operator.add, operator.iadd, torch.add, "add", "add_"}
FILTERS: set[Any] = {F.linear, F.conv1d, F.conv2d, F.conv3d}
TRANSPOSED: set[Any] = {F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d}
RECURRENT: set[Any] = {nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell}
RECURRENT_CALLS: set[Any] = {torch.rnn_tanh, torch.rnn_relu, torch.lstm, torch.gru}
RECURRENT_CALLS |= {torch.rnn_tanh_cell, torch.rnn_relu_cell, torch.lstm_cell, torch.gru_cell}
PRODUCTS: set[Any] = FILTERS | TRANSPOSED | RECURRENT_CALLS
PRODUCTS |= {torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, operator.matmul, torch.einsum}
PRODUCTS |= {"matmul", "mm", "bmm", F.bilinear, F.embedding}


PLAIN: set[type] = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d}
PLAIN |= {nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d}
NORMS: set[type] = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm}


class ConversionError(Exception):
    """A network cannot be converted, or its converted form would differ; the message says why."""


def arguments(example: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments that an example stands for.

    >>> arguments((1, 2)), arguments({"x": 1})
    (((1, 2), {}), ((), {'x': 1}))
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def kind_at(net: fx.GraphModule, node: Node) -> Kind | None:
    """Return what a node computes, if it is an activation with a boundary, however it is written."""
    if node.op == "call_module":
        return kind_of(module_of(net, node))
    if node.op not in ("call_function", "call_method") or not node.args:
        return None
    value = node.args[0]
    if not isinstance(value, Node) or value.op == "get_attr":  # a weight's absolute value is no unit
        return None
    kwargs = {name: given for name, given in node.kwargs.items() if name != "input"}
    return kind_of_call(node.target, *node.args[1:], **kwargs)


def is_relu_call(net: fx.GraphModule, node: Node) -> bool:
    """Return whether a node computes max(x, 0), and could do so out of place without anyone noticing."""
    return not node.meta.get("fixed") and kind_at(net, node) == KINDS["relu"]


def is_rectified(net: fx.GraphModule, node: Node) -> bool:
    """Return whether a node is an activation with a boundary that has one value per unit."""
    kind = kind_at(net, node)
    return kind is not None and not kind.doubled


def scope(node: Node) -> str:
    """Return the name of the module whose code made a node, with a dot after it; "" for the network itself."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return f"{stack[-1][0]}." if stack and stack[-1][0] else ""


def fresh_name(model: nn.Module, wanted: str) -> str:
    """Return ``wanted``, with a number added if ``model`` has a module, parameter or method of that name."""
    name, number = wanted, 1
    while _taken(model, name):
        name, number = f"{wanted}_{number}", number + 1
    return name


def _taken(model: nn.Module, name: str) -> bool:
    parent, _, leaf = name.rpartition(".")
    try:
        return hasattr(model.get_submodule(parent), leaf)
    except AttributeError:
        return False


def add_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Add a module under its full name, in the mode of its parent; create parents that are missing."""
    *parents, leaf = name.split(".")
    parent = model
    for part in parents:
        if not hasattr(parent, part):
            parent.add_module(part, nn.Module())
        parent = parent.get_submodule(part)
    parent.add_module(leaf, module.train(parent.training))


def add_buffer(net: fx.GraphModule, name: str, value: Tensor) -> str:
    """Register a buffer on the network's device under ``name`` or one like it, and return that name."""
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    name = fresh_name(net, name.replace(".", "_"))
    net.register_buffer(name, value.to(device))
    return name


def module_of(net: fx.GraphModule, node: Argument) -> nn.Module | None:
    """Return the module that a node calls; None if it calls none, or one that must stay as it is."""
    if isinstance(node, Node) and node.op == "call_module" and "kept" not in node.meta:
        return net.get_submodule(str(node.target))
    return None


def is_alone(node: Node) -> bool:
    """Return whether a module is called only here and its parameters are used nowhere else."""
    return node.meta.get("calls", 1) == 1 and not node.meta.get("tied", False)


def is_plain(module: nn.Module | None) -> bool:
    """Return whether a module is torch's own linear or convolution layer, with its weight as a parameter."""
    if module is None or type(module) not in PLAIN:
        return False
    return isinstance(module._parameters.get("weight"), nn.Parameter)


def is_transposed(module: nn.Module | None) -> bool:
    """Return whether a module is a transposed convolution, whose weight has its inputs first."""
    return isinstance(module, _ConvTransposeNd)


def is_norm(module: nn.Module | None) -> bool:
    """Return whether a module is a batch norm with running statistics: in evaluation, a fixed affine map."""
    return module is not None and type(module) in NORMS and module.running_mean is not None


def has_weight(net: fx.GraphModule, node: Node) -> bool:
    """Return whether a node multiplies its input by a weight."""
    if node.op != "call_module":
        return node.op != "get_attr" and node.target in PRODUCTS
    module = net.get_submodule(str(node.target))
    return isinstance(module, _Geometric | Propagation) or any(p.dim() > 1 for p in module.parameters())


def left_alone(called: Any) -> str | None:
    """Return why no conversion changes what has weights: a class of modules or a function; None if some do.

    >>> left_alone(nn.LSTM)
    'recurrent layers are not converted'
    """
    if called in RECURRENT or called in RECURRENT_CALLS:
        return "recurrent layers are not converted"
    return "attention is not converted" if called is nn.MultiheadAttention else None


def reached(starts: Iterable[Node]) -> set[Node]:
    """Return all nodes that depend on one of ``starts``; a start only if it depends on another."""
    found: set[Node] = set()
    stack = list(starts)
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def reaching(ends: Iterable[Node]) -> set[Node]:
    """Return all nodes that one of ``ends`` depends on; an end only if another depends on it."""
    found: set[Node] = set()
    stack = list(ends)
    while stack:
        for before in stack.pop().all_input_nodes:
            if before not in found:
                found.add(before)
                stack.append(before)
    return found


def is_reachable(start: Node, end: Node) -> bool:
    """Return whether ``end`` depends on ``start``; nodes before ``start`` are not visited."""
    stack, seen = [end], {end}
    while stack:
        for before in stack.pop().all_input_nodes:
            if before is start:
                return True
            if before not in seen and start < before:
                seen.add(before)
                stack.append(before)
    return False
