"""Opposite units share one filter: relu(w.x) and relu(-s w.x) are the two phases of one CReLU (crelu)."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd

from relucid.convert.conversion import Conversion, Layers, Ledger, Original, chosen_activations, suggestions
from relucid.convert.flow import channel_dim, flow
from relucid.convert.graph import (
    Batch,
    ConversionError,
    is_alone,
    is_plain,
    is_relu_call,
    is_transposed,
    module_of,
)
from relucid.convert.layout import Layout
from relucid.convert.network import Network
from relucid.convert.norms import fold_back, is_fixed
from relucid.convert.refit import Target, refit
from relucid.convert.rewrite import apply
from relucid.nn import CReLU
from relucid.nn.affine import affine_of


@dataclass(frozen=True)
class Pair:
    """Two units of one rectification that are nearly opposite."""

    relu: str
    first: int
    second: int
    distance: float  #: the length of the sum of the two units, weights and bias together, each of length 1


def merge(
    model: nn.Module,
    example: Batch,
    layers: Layers,
    tolerance: float,
    budget: float | None,
    limit: int | None,
    data: Iterable[Any] | None,
) -> Conversion:
    """Return the network with as many pairs merged as budget and limit allow, the most opposite first."""
    original = Original(model, example)
    net = original.capture()
    suggested = partial(suggestions, model, example, "to_crelu", "merge")
    chosen = chosen_activations(net, layers, suggested, is_relu_call)
    names = [str(node.target) for node in chosen]
    pairs = _all_pairs(net, names, tolerance)[:limit]
    batches = None if data is None else list(data)

    def attempt(count: int) -> Conversion | None:
        try:
            return _merged(original, net, names, pairs[:count], tolerance, budget, batches)
        except ConversionError:
            if count == 0:
                raise
            return None

    if (whole := attempt(len(pairs))) is not None:
        return whole
    fewest, most, best = 0, len(pairs), attempt(0)
    while most - fewest > 1:
        middle = (fewest + most) // 2
        if (found := attempt(middle)) is not None:
            fewest, best = middle, found
        else:
            most = middle
    assert best is not None
    return best


def opposite_pairs(weight: Tensor, bias: Tensor, tolerance: float) -> list[tuple[int, int, float]]:
    """Return disjoint pairs (i, j, distance) of units with w_i = -s w_j and b_i = -s b_j up to ``tolerance``.

    They are a matching of maximum weight, where a pair weighs 1 minus half its distance.

    Args:
        weight: (units, ...).
        bias: (units,).
        tolerance: The largest distance.

    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]])
    >>> opposite_pairs(weight, torch.tensor([1.0, 0.0, -2.0]), 1e-6)
    [(0, 2, 0.0)]
    """
    networkx: Any = import_module("networkx")  # a dependency of torch, without types

    rows = torch.cat((weight.detach().flatten(1), bias.detach().unsqueeze(1)), 1).double()
    lengths = rows.norm(dim=1, keepdim=True)
    unit = rows / torch.where(lengths == 0, 1, lengths)
    cosine = unit @ unit.T
    near = (cosine < 0) & (1 - cosine.square() <= max(tolerance, 1e-7) ** 2 + 1e-12)
    graph: Any = networkx.Graph()
    for i, j in near.triu(1).nonzero().tolist():
        # Near opposite units, the length of the sum is accurate and the cosine is not.
        distance = float((unit[i] + unit[j]).norm())
        if distance <= tolerance:
            graph.add_edge(i, j, weight=1 - distance / 2, distance=distance)
    matching = networkx.max_weight_matching(graph)
    found = [(min(p), max(p), float(graph.edges[p]["distance"])) for p in matching]
    return sorted(found, key=lambda pair: (pair[2], pair[0]))


def _named(net: fx.GraphModule, names: Sequence[str]) -> list[Node]:
    return [node for node in net.graph.nodes if is_relu_call(net, node) and node.target in names]


def _all_pairs(net: fx.GraphModule, names: Sequence[str], tolerance: float) -> list[Pair]:
    """Return the pairs of all chosen ReLUs, the most opposite first."""
    pairs = []
    for relu in _named(net, names):
        layer = _layer(net, relu)
        if isinstance(layer, str):
            continue
        found = opposite_pairs(*_folded(net, relu, layer), tolerance)
        pairs += [Pair(str(relu.target), i, j, distance) for i, j, distance in found]
    return sorted(pairs, key=lambda pair: pair.distance)


def _layer(net: fx.GraphModule, relu: Node) -> Node | str:
    """Return the node of the layer that a ReLU rectifies, directly or after a norm; or why it cannot be merged."""
    node = before = relu.all_input_nodes[0]
    norm = None
    if is_fixed(module_of(net, node)) and len(node.users) == 1:
        norm, node = module_of(net, node), node.all_input_nodes[0]
    layer = module_of(net, node)
    if not is_plain(layer) or is_transposed(layer):
        return "it does not rectify a linear or convolution layer, directly or after a norm"
    if len(node.users) > 1 or not is_alone(node) or not is_alone(before):
        return "something else reads the same filters"
    if any(n.meta.get("aliased") for n in (node, before, relu)):
        return "its value is changed in place later"
    assert layer is not None
    if (
        norm is not None
        and norm.weight is not None
        and norm.weight.requires_grad != layer.weight.requires_grad
    ):
        return "its norm is trained and its weights are frozen, or the other way round"
    if isinstance(layer, _ConvNd) and layer.groups > 1:
        return "its filters are grouped, and groups must stay equal"
    return node


def _folded(net: fx.GraphModule, relu: Node, node: Node) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of a layer with the norm that follows it folded in."""
    layer, norm = module_of(net, node), module_of(net, relu.all_input_nodes[0])
    assert isinstance(layer, nn.Linear | _ConvNd)
    weight = layer.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()
    if norm is layer or norm is None:
        return weight, bias
    scale, shift = affine_of(norm)
    return weight * scale.view(-1, *[1] * (weight.dim() - 1)), bias * scale + shift


def _merged(
    original: Original,
    captured: Network,
    names: Sequence[str],
    pairs: Sequence[Pair],
    tolerance: float,
    budget: float | None,
    data: list[Any] | None,
) -> Conversion:
    """Return the network with these pairs merged; raise an error if it exceeds the budget."""
    net = copy.deepcopy(captured)
    ledger = Ledger(net, original.model, weighted="reads no merged channels", relu="not chosen")
    starts: dict[Node, Layout] = {}
    targets: dict[str, Target] = {}
    folded = False
    for relu in _named(net, names):
        node = _layer(net, relu)
        own = [pair for pair in pairs if pair.relu == relu.target]
        if isinstance(node, str):
            ledger.note(relu, "refused", node)
        elif not own:
            ledger.note(relu, "kept", f"no opposite pair within {tolerance:g} and the budget")
        else:
            folded = folded or node is not relu.all_input_nodes[0]
            starts[relu], targets[str(node.target)] = _share(net, relu, node, own)
            ledger.note(relu, "changed", f"CReLU: {len(own)} pairs share a filter")
            ledger.note(node, "changed", f"{len(own)} filters less")
    found = flow(net, starts)
    for node in found.weights(net):
        ledger.note(node, "changed", "reads merged channels")
    apply(net, found)
    net.recompile()
    if data is not None and starts:
        refit(captured, net, found.weights(net), data, targets)
    return original.finish(net, ledger, budget, training=not folded)


def _share(net: fx.GraphModule, relu: Node, node: Node, pairs: Sequence[Pair]) -> tuple[Layout, Target]:
    """Replace each pair of filters by one, doubled by CReLU; return the layout, and what the layer is fitted to.

    For units that computed y and z and are now (c, -r c), the nearest c is (y - r z) / (1 + r^2).
    """
    rectified = str(relu.all_input_nodes[0].target)
    if (norm := relu.all_input_nodes[0]) is not node:
        fold_back(net, norm)
    layer, dim = module_of(net, node), channel_dim(net, relu)
    assert isinstance(layer, nn.Linear | _ConvNd)
    assert dim is not None
    with torch.no_grad():
        weight = layer.weight.double().flatten(1)
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.double()
        rows = torch.cat((weight, bias.unsqueeze(1)), 1)
        indices, ratios = [], []
        for pair in pairs:
            # The larger one first: it is divided by.
            i, j = sorted((pair.first, pair.second), key=lambda k: -float(rows[k].norm()))
            shared, ratio = rank_one(rows[i], rows[j])
            rows[i] = shared
            indices.append((i, j))
            ratios.append(ratio)
        first, second = [i for i, _ in indices], [j for _, j in indices]
        rest = [k for k in range(len(rows)) if k not in {*first, *second}]
        kept = rows[first + rest]
        shape = layer.weight.shape[1:]
        trained = layer.weight.requires_grad
        layer.weight = nn.Parameter(kept[:, :-1].unflatten(1, shape).to(layer.weight.dtype), trained)
        if layer.bias is not None:
            layer.bias = nn.Parameter(kept[:, -1].to(layer.weight.dtype), layer.bias.requires_grad)
    setattr(layer, "out_features" if isinstance(layer, nn.Linear) else "out_channels", len(kept))
    net.set_submodule(str(relu.target), CReLU(dim, paired=len(pairs)).train(net.training))
    scale = torch.tensor([1.0] * len(kept) + ratios, dtype=torch.float64)
    r = scale[len(kept) :]
    mix = torch.eye(len(rows), dtype=torch.float64)[first + rest]
    mix[range(len(pairs)), first] = 1 / (1 + r.square())
    mix[range(len(pairs)), second] = -r / (1 + r.square())
    return Layout(dim, torch.tensor(first + rest + second), scale), Target(rectified, mix)


def rank_one(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """Return the c and the ratio r for which (c, -r c) is nearest to (a, b).

    >>> c, r = rank_one(torch.tensor([2.0, 4.0]), torch.tensor([-1.0, -2.0]))
    >>> [round(x, 4) for x in (*c.tolist(), r)]
    [2.0, 4.0, 0.5]
    """
    gram = torch.stack((a, b)) @ torch.stack((a, b)).T
    p, q = torch.linalg.eigh(gram)[1][:, 1].tolist()  # the eigenvector of the larger eigenvalue
    return p * (p * a + q * b), -q / p
