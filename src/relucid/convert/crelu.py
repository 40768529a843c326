"""ReLU and its relatives to CReLU: give every unit its other phase, or let opposite units share a filter (crelu)."""

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node

from relucid.convert.conversion import (
    ArgumentError,
    Conversion,
    Layers,
    Ledger,
    Original,
    chosen_activations,
    conversion,
    kind_of,
    suggestions,
)
from relucid.convert.flow import MIXING, Flow, channel_dim, flow, key
from relucid.convert.graph import (
    Batch,
    add_module,
    fresh_name,
    is_rectified,
    kind_at,
    left_alone,
    module_of,
    scope,
)
from relucid.convert.layout import Layout
from relucid.convert.merge import merge
from relucid.convert.rewrite import apply
from relucid.nn import CReLU
from relucid.nn.geometric import _Geometric
from relucid.nn.kinds import Kind


@conversion
def to_crelu(
    model: nn.Module,
    example: Batch,
    layers: Layers = None,
    mode: Literal["expand", "merge"] = "expand",
    *,
    tolerance: float | None = None,
    budget: float | None = None,
    pairs: int | None = None,
    data: Iterable[Any] | None = None,
) -> Conversion:
    """Return the same function with CReLU, which keeps both phases of a unit, in place of ReLU.

    "expand": every chosen ReLU becomes CReLU. Whatever reads its channels, through batch norms, pooling or flatten,
    gets weights of zero for the new half; batch norms between leave that half as it is. What cannot read new
    channels, such as an addition, reads the first half. Training goes on from there.

    LeakyReLU, PReLU and the absolute value become CReLU too: each is f(x) = relu(x) - a relu(-x), where a is the
    slope below 0 (-1 for the absolute value), so the new weights are -a times the old ones. PReLU's learned slopes
    become part of those weights, or constants where something else reads the value. Where x is exactly 0, CReLU has a
    gradient of 0, LeakyReLU and PReLU have a.

    "merge": two units of one layer with w_i = -s w_j and b_i = -s b_j, batch norm folded, become the two phases of
    one filter, the one nearest to both. The weights that read them are rearranged. For ReLU only.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        layers: Names or globs of activations, or of the layers that feed them; "auto" for those that
            `relucid.inspect.examine` suggests. By default all.
        mode: "expand" or "merge".
        tolerance: "expand": the largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by
            default. "merge": how far a pair may be from opposite, as the length of the sum of the two units'
            weights and biases, each of length 1; 1e-5 by default.
        budget: "merge": the largest relative difference of outputs, by default as in "expand". As many pairs are
            merged as it allows, the most opposite first.
        pairs: "merge": the largest number of pairs to merge, the most opposite first.
        data: "merge": batches in the form of the example; the layers that read merged channels are fitted on them,
            by least squares, to what they computed before.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> list(to_crelu(net, torch.randn(5, 4)).model.children())[1:]
    [CReLU(dim=1), Linear(in_features=16, out_features=2, bias=True)]
    """
    if mode == "merge":
        return merge(model, example, layers, 1e-5 if tolerance is None else tolerance, budget, pairs, data)
    if mode != "expand":
        raise ArgumentError(f"mode is 'expand' or 'merge', not {mode!r}")
    if budget is not None or pairs is not None or data is not None:
        raise ArgumentError("budget, pairs and data are for mode='merge'; 'expand' changes no output")
    return _expand(model, example, layers, tolerance)


def _expand(model: nn.Module, example: Batch, layers: Layers, tolerance: float | None) -> Conversion:
    """Replace every chosen activation by CReLU, and rewrite the weights that read it."""
    original = Original(model, example)
    net = original.capture()
    ledger = Ledger(net, model, weighted="reads no new channels", relu="not chosen")
    starts: dict[Node, Layout] = {}
    suggested = partial(suggestions, model, example, "to_crelu", "expand")
    chosen = set(chosen_activations(net, layers, suggested))
    for node in net.graph.nodes:
        if node in chosen:
            layout = _doubled(net, node)
            if isinstance(layout, str):
                ledger.note(node, "refused", layout)
            else:
                starts[node] = layout
        elif is_rectified(net, node):
            ledger.note(node, "kept", "not chosen")
        elif isinstance(layer := module_of(net, node), _Geometric) and layer.activation is not None:
            reason = "its activation is inside it: apply fuse first, and to_geometric afterwards"
            ledger.note(node, "refused", reason)
    found = _read_flow(net, starts, ledger)
    for node, layout in starts.items():
        if found.layouts[node] is not layout:
            ledger.note(node, "kept", "its input has been doubled already")
            continue
        ledger.note(node, "changed", _said(net, node, layout))
        _place(net, node, CReLU(layout.dim))
    for node in found.weights(net):
        split = found.layouts[node.all_input_nodes[0]].is_split
        ledger.note(node, "changed", f"weights {'' if split else 'of zero '}for the new channels")
    apply(net, found)
    slopes = any(layout.is_split for layout in starts.values())  # multiply weights, which rounds them
    return original.finish(net, ledger, tolerance, rounded=slopes)


def _doubled(net: fx.GraphModule, node: Node) -> Layout | str:
    """Return how an activation's value follows from CReLU's: relu(x) - below * relu(-x); or why it does not."""
    dim, kind = channel_dim(net, node), kind_at(net, node)
    assert kind is not None
    if not kind.homogeneous:
        places = " and at ".join(f"{boundary:g}" for boundary in kind.boundaries)
        return f"its units switch at {places}: CReLU keeps the two phases of one boundary, at 0"
    if isinstance(module_of(net, node), nn.RReLU):
        return "in training, it draws a random slope for every entry, which weights cannot reproduce"
    if node.meta.get("fixed"):
        return "it works in place on a view of another value"
    if dim is None:
        return "it is not clear which dimension holds its channels"
    if node.meta.get("aliased"):
        return "its value is changed in place later"
    dtype = node.all_input_nodes[0].meta.get("dtype", node.meta["dtype"])
    if not dtype.is_floating_point:
        return f"it rectifies {dtype}, not floating-point numbers"
    below = _slopes(net, node, kind, dim)
    if isinstance(below, str):
        return below
    size = len(below)
    return Layout(dim, torch.arange(2 * size) % size, torch.cat((torch.ones_like(below), 0 - below)))


def _slopes(net: fx.GraphModule, node: Node, kind: Kind, dim: int) -> Tensor | str:
    """Return the slope of each unit below its boundary, (units,) in float64; or why it is not known."""
    size = node.meta["shape"][dim]
    if kind.below is not None:
        return torch.full((size,), kind.below, dtype=torch.float64)
    holder = node.args[1] if len(node.args) > 1 else None  # of F.prelu
    if isinstance(module := module_of(net, node), nn.PReLU):
        learned: Tensor = module.weight
    elif isinstance(holder, Node) and holder.op == "get_attr":
        learned = attrgetter(str(holder.target))(net)
    else:
        return "its slopes are computed in forward"
    learned = learned.detach().double().cpu().flatten()
    if len(learned) == 1:
        return learned.expand(size)
    return learned if dim == 1 else f"its slopes belong to dimension 1, its units are in dimension {dim}"


def _said(net: fx.GraphModule, node: Node, layout: Layout) -> str:
    """Return what becomes of an activation, in words."""
    kind = kind_at(net, node)
    text = f"CReLU: {node.meta['shape'][layout.dim]} channels become {len(layout.origin)}"
    if kind is not None and kind.below is None:
        text += (
            "; its slopes become factors in the weights that read it, and are not learned as slopes any more"
        )
    return text


def _place(net: fx.GraphModule, node: Node, crelu: CReLU) -> None:
    """Make a node call ``crelu``, which takes the name of the module called there unless that is called elsewhere."""
    name = str(node.target)
    if node.op == "call_module" and node.meta["calls"] == 1:
        net.set_submodule(name, crelu.train(net.training))
        return
    name = fresh_name(net, name if node.op == "call_module" else f"{scope(node)}crelu")
    add_module(net, name, crelu)
    value, *slopes = node.all_input_nodes
    node.op, node.target, node.args, node.kwargs = "call_module", name, (value,), {}
    for holder in slopes:
        _delete_unread(net, holder)


def _delete_unread(net: fx.GraphModule, holder: Node) -> None:
    """Delete a parameter that a node fetched, if nothing reads it any more."""
    same = [node for node in net.graph.nodes if node.op == "get_attr" and node.target == holder.target]
    if not any(node.users for node in same):
        for node in same:
            net.graph.erase_node(node)
        path, _, name = str(holder.target).rpartition(".")
        delattr(net.get_submodule(path), name)


def _read_flow(net: fx.GraphModule, starts: dict[Node, Layout], ledger: Ledger) -> Flow:
    """Return what happens to the doubled channels; remove the starts that no layer with weights of its own reads."""
    while True:
        found = flow(net, starts)
        read = found.read(net)
        unread = [
            node for node, layout in starts.items() if found.layouts[node] is layout and node not in read
        ]
        if not unread:
            return found
        for node in unread:
            between = "flatten and averaging" if starts[node].is_split else "batch norms and pooling"
            del starts[node]
            reason = f"no layer with weights of its own reads it, through {between} at most"
            ledger.note(node, "refused", "; ".join([reason, *_obstacles(net, found, node)]))


def _obstacles(net: fx.GraphModule, found: Flow, start: Node) -> list[str]:
    """Return what is known of the operations that cannot read the doubled channels of an activation."""
    said: dict[str, None] = {}
    for reader in found.stopped(start):
        called = key(net, reader)
        if called in MIXING:
            said[f"{kind_of(net, reader)}, which reads it, mixes channels"] = None
        elif (reason := left_alone(called)) is not None:
            said[f"{kind_of(net, reader)} reads it, and {reason}"] = None
    return list(said)
