"""ReLU to CReLU: give every unit its other phase, or let opposite units share one filter (crelu)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import fx, nn
from torch.fx.node import Node

from relucid.convert.conversion import (
    ArgumentError,
    Conversion,
    Layers,
    Ledger,
    Original,
    chosen_relus,
    conversion,
    suggestions,
)
from relucid.convert.flow import Flow, Layout, apply, channel_dim, flow
from relucid.convert.graph import Batch, module_of
from relucid.convert.merge import merge
from relucid.nn import CReLU


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
    """The same function with CReLU, which keeps both phases of a unit, in the place of ReLU.

    "expand": every chosen ReLU becomes CReLU, and whatever reads its channels, through norms, pooling or flatten,
    has weights of zero for the new half; batch norms between leave it as it is. What cannot read new channels, such
    as an addition, reads the first half. Training goes on from there.

    "merge": units i, j of one layer with w_i = -s w_j and b_i = -s b_j, batch norm folded, share one filter, whose
    two phases they are. What reads them is rearranged. The shared filter is the best one for both.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        layers: Names or globs, of ReLUs or of the layers that feed them; "auto" for those of which
            `relucid.inspect.examine` suggests it. By default all.
        mode: "expand" or "merge".
        tolerance: "expand": the largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by
            default. "merge": how far a pair may be from opposite, as the length of the sum of the two units'
            weights and biases, each of length 1; 1e-5 by default.
        budget: "merge": the largest relative difference of outputs, by default as in "expand". The most opposite
            pairs are merged, as many as keep to it.
        pairs: "merge": at most so many pairs, the most opposite ones.
        data: "merge": batches in the form of the example, on which readers of merged channels are fitted, by
            least squares, to what they computed before.

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
    """Every chosen ReLU becomes CReLU; whoever reads the new channels has weights of zero for them."""
    original = Original(model, example)
    net = original.capture()
    ledger = Ledger(net, model, weighted="reads no new channels", relu="not chosen")
    starts: dict[Node, Layout] = {}
    for node in chosen_relus(net, layers, partial(suggestions, model, example, "to_crelu", "expand")):
        layout = _doubled(net, node)
        if isinstance(layout, str):
            ledger.note(node, "refused", layout)
        else:
            starts[node] = layout
    for node in net.graph.nodes:
        if (layer := module_of(net, node)) is not None and getattr(layer, "activation", None) is not None:
            ledger.note(
                node, "refused", "its activation is inside: fuse it first, and make it geometric afterwards"
            )
    found = _read_flow(net, starts, ledger)
    for node, layout in starts.items():
        if found.layouts[node] is not layout:
            ledger.note(node, "kept", "its input has been doubled already")
            continue
        net.set_submodule(str(node.target), CReLU(layout.dim).train(net.training))
        ledger.note(
            node, "changed", f"CReLU: {node.meta['shape'][layout.dim]} channels become {len(layout.origin)}"
        )
    for node in found.weights(net):
        ledger.note(node, "changed", "weights of zero for the new channels")
    apply(net, found)
    return original.finish(net, ledger, tolerance)


def _doubled(net: fx.GraphModule, node: Node) -> Layout | str:
    """The layout of a rectification with both phases, or why it cannot have them."""
    dim = channel_dim(net, node)
    if dim is None:
        return "it is not clear which dimension holds its channels"
    if node.meta.get("aliased"):
        return "its value is changed in place later"
    if not node.meta["dtype"].is_floating_point:
        return f"it rectifies {node.meta['dtype']}, not floating-point numbers"
    size = node.meta["shape"][dim]
    fresh = torch.arange(2 * size) >= size
    return Layout(dim, torch.arange(2 * size) % size, (~fresh).double())


def _read_flow(net: fx.GraphModule, starts: dict[Node, Layout], ledger: Ledger) -> Flow:
    """What the doubled channels meet; those that no layer with weights of its own reads are not doubled."""
    while True:
        found = flow(net, starts)
        read = found.read(net)
        unread = [
            node for node, layout in starts.items() if found.layouts[node] is layout and node not in read
        ]
        if not unread:
            return found
        for node in unread:
            del starts[node]
            ledger.note(
                node,
                "refused",
                "no layer with weights of its own reads it, through norms and pooling at most",
            )
