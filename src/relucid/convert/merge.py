"""Opposite units share one filter: relu(w.x) and relu(-s w.x) are the two phases of one CReLU (crelu)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import ConvNd, ConvTransposeNd
from relucid.convert._edits import Edits
from relucid.convert._fuse import Fold
from relucid.convert._steps import Double, Read, Step
from relucid.convert.conversion import Conversion
from relucid.convert.difference import tolerance_of
from relucid.convert.errors import ConversionError
from relucid.convert.flow import follow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.network import Layers, RecordedModel, feeding, select
from relucid.convert.norms import is_plain, norm_after, readers_of
from relucid.convert.search import converted
from relucid.inspect.execution import Node, Recording
from relucid.nn.affine import affine_after, affine_of
from relucid.nn.kinds import KINDS

OPPOSITE = 2**0.5  # the distance of orthogonal units; farther ones are not opposite
ROUNDING = 1e-5  # the distance of units that are opposite but for rounding
COSINES = 1 << 24  # at a time: all pairs of a wide layer take its square in memory


@dataclass(frozen=True, eq=False)
class Share(Step):
    """A layer in which some pairs of opposite filters are one; a CReLU after it gives both."""

    pairs: tuple[tuple[int, int], ...]

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        layer: Any = edits.model.get_submodule(self.name)
        weight, bias, *_ = shared(layer.weight.detach().double(), bias_of(layer), self.pairs)
        edits.parameter(f"{self.name}.weight", weight)
        if layer.bias is not None:
            edits.parameter(f"{self.name}.bias", bias)
        edits.set(layer, "out_features" if isinstance(layer, nn.Linear) else "out_channels", len(weight))


@dataclass(frozen=True)
class Rectifier:
    """A ReLU, the layer that it rectifies, and the norm between them."""

    relu: str  #: the rectification, by the name of its operation
    layer: str
    norm: str | None
    #: the ReLU's own module, called once; None if the module before it must return both signs
    module: str | None

    def folded(self, modules: Mapping[str, nn.Module]) -> tuple[Tensor, Tensor]:
        """The weight and bias of the layer with the norm folded in."""
        layer: Any = modules[self.layer]
        if self.norm is not None:
            return affine_after(layer, *affine_of(modules[self.norm]))
        return layer.weight.detach().double(), bias_of(layer)


def merge(
    network: RecordedModel,
    layers: Layers,
    tolerance: float | None = None,
    *,
    limit: int | None = None,
    inplace: bool = False,
) -> Conversion:
    """A copy of the network with as many pairs merged as the tolerance allows, the most opposite first.

    Args:
        network: The original.
        layers: Those whose units may be merged.
        tolerance: The largest relative difference of outputs. Pairs may be 100 times as far from opposite: that is
            the length of the sum of both units, each of length 1 with its bias. By default outputs may differ by
            rounding, and pairs by 1e-5: in half precision, rounding would excuse any pair.
        limit: The largest number of pairs.
        inplace: Whether the network itself is going to be changed.
    """
    network.report.weighted, network.report.rectified = "its input has no merged channels", "not chosen"
    rectifiers, obstacles = _rectifiers(network, layers)
    distance = ROUNDING if tolerance is None else min(100 * tolerance, OPPOSITE)
    if tolerance is None:
        tolerance = max(tolerance_of(tape.outputs) for tape in network.outputs)
    pairs = sorted(
        (far, name, pair)
        for name, rectifier in rectifiers.items()
        for *pair, far in opposite_pairs(*rectifier.folded(network.modules), distance)
    )[:limit]

    def attempt(count: int) -> Conversion | None:
        chosen = {name: [pair for _, layer, pair in pairs[:count] if layer == name] for name in rectifiers}
        try:
            return _merged(network, rectifiers, chosen, dict(obstacles), tolerance, inplace)
        except ConversionError:
            if count == 0:
                raise
            return None

    conversion = attempt(len(pairs))
    if conversion is None:
        most = bisect_left(range(1, len(pairs)), True, key=lambda count: attempt(count) is None)
        conversion = attempt(most)
    assert conversion is not None
    return conversion


def _merged(
    network: RecordedModel,
    rectifiers: Mapping[str, Rectifier],
    pairs: Mapping[str, Sequence[Sequence[int]]],
    obstacles: dict[str, str],
    tolerance: float,
    inplace: bool,
) -> Conversion:
    """The network with these pairs of each layer merged, where whatever reads them can take it."""
    modules = network.modules
    layouts = {n: shared(*rectifiers[n].folded(modules), some)[2:4] for n, some in pairs.items() if some}

    def drop(name: str, reason: str) -> None:
        del layouts[name]
        obstacles[rectifiers[name].relu] = reason

    flows = follow(
        network.recordings, lambda recording: _starts(recording, rectifiers, layouts), modules, drop
    )
    steps: list[Step] = []
    for name in layouts:
        rectifier, dim = rectifiers[name], -1 if isinstance(modules[name], nn.Linear) else 1
        if rectifier.norm is not None:
            steps.append(Fold(rectifier.norm, name))
        doubled = rectifier.module or rectifier.norm or name
        steps.append(Share(name, tuple((i, j) for i, j in pairs[name])))
        steps.append(Double(doubled, dim, paired=len(pairs[name]), replace=rectifier.module is not None))
    readers = {name: layout for one in flows for name, layout in one.reads.items()}
    steps += [Read(name, layout) for name, layout in readers.items()]

    report = network.report
    report.forget()
    for relu, reason in obstacles.items():
        report.note(relu, "refused", reason)
    for name, rectifier in rectifiers.items():
        if name in layouts:
            report.note(rectifier.relu, "changed", f"CReLU: {len(pairs[name])} pairs share a filter")
            report.note(name, "changed", f"{len(pairs[name])} filters fewer")
        elif rectifier.relu not in obstacles:
            report.note(
                rectifier.relu, "kept", f"no pair is opposite enough for a tolerance of {tolerance:g}"
            )
    for name in readers:
        report.note(name, "changed", "reads merged channels", type(modules[name]).__name__)
    # Merged units are equal up to the tolerance only: outputs decide.
    folded = any(rectifiers[name].norm is not None for name in layouts)
    return converted(
        network, steps, layers=False, probe=False, training=not folded, tolerance=tolerance, inplace=inplace
    )


def _starts(
    recording: Recording, rectifiers: Mapping[str, Rectifier], layouts: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[Node, Layout]:
    dims, starts = channel_dims(recording.nodes), {}
    for name, (origin, scale) in layouts.items():
        for call in recording.calls_of.get(rectifiers[name].norm or name, []):
            for node in (node for value in call.outputs for node in recording.readers.get(value, [])):
                starts[node] = Layout(dims.get(node, 1), origin, scale, frozenset([name]))
    return starts


def _rectifiers(network: RecordedModel, layers: Layers) -> tuple[dict[str, Rectifier], dict[str, str]]:
    """By layer, the ReLUs whose units can be merged; by ReLU, why those of others cannot."""
    relus = {n.name: n for n in network.nodes if n.kind == KINDS["relu"]}
    chosen = select({name: (name, *feeding(node)) for name, node in relus.items()}, layers)
    rectifiers, obstacles = dict[str, Rectifier](), dict[str, str]()
    for name in (name for name in relus if name in chosen):
        rectifier = _rectifier(network, relus[name])
        if isinstance(rectifier, str):
            obstacles[name] = rectifier
        else:
            rectifiers[rectifier.layer] = rectifier
    return rectifiers, obstacles


def _rectifier(network: RecordedModel, relu: Node) -> Rectifier | str:
    """The layer that a ReLU rectifies, directly or after a norm; or why it cannot be merged."""
    fed = feeding(relu)
    layer = network.modules.get(fed[0]) if len(fed) == 1 else None
    if not is_plain(layer) or isinstance(layer, ConvTransposeNd):
        return "it does not rectify a linear or convolution layer, directly or after a norm"
    name, counts, norm = fed[0], network.counts, norm_after(network, fed[0])
    last = norm or name
    for recording in network.recordings:
        values = {node for call in recording.calls_of.get(last, []) for node in call.outputs}
        readers = [node for node in recording.nodes if values & set(node.upstream)]
        only = bool(readers) and all(n.kind == KINDS["relu"] for n in readers)
        if not only or values & set(recording.outputs):
            return "something else reads the same filters, or comes between them and the ReLU"
    if counts[name] > 1 or network.shared(name):
        return "its layer is used more than once"
    if norm is not None and _trains_apart(layer, network.modules[norm]):
        return "its norm is trained and its weights are frozen, or the other way round"
    if isinstance(layer, ConvNd) and layer.groups > 1:
        return "its filters are grouped, and groups must stay equal"
    module, *others = readers_of(network, last) or {""}
    is_module = not others and isinstance(network.modules.get(module), nn.ReLU) and counts[module] == 1
    return Rectifier(relu.name, name, norm, module if is_module else None)


def _trains_apart(layer: Any, norm: nn.Module) -> bool:
    weight = getattr(norm, "weight", None)
    return isinstance(weight, Tensor) and weight.requires_grad != layer.weight.requires_grad


def opposite_pairs(weight: Tensor, bias: Tensor, tolerance: float) -> list[tuple[int, int, float]]:
    """Disjoint pairs (i, j, distance) of units with w_i = -s w_j and b_i = -s b_j up to ``tolerance``.

    They are a matching of maximum weight, where a pair weighs 1 minus half its distance.

    Args:
        weight: (units, ...).
        bias: (units,).
        tolerance: The largest distance.

    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]])
    >>> opposite_pairs(weight, torch.tensor([1.0, 0.0, -2.0]), 1e-6)
    [(0, 2, 0.0)]
    """
    networkx: Any = import_module("networkx")  # torch requires it; it has no types
    rows = torch.cat((weight.detach().flatten(1), bias.detach().unsqueeze(1)), 1).double()
    lengths = rows.norm(dim=1, keepdim=True)
    unit = rows / torch.where(lengths == 0, 1, lengths)
    graph: Any = networkx.Graph()
    size = max(1, COSINES // len(unit))
    for start in range(0, len(unit), size):
        cosine = unit[start : start + size] @ unit[start:].T
        near = (cosine < 0) & (1 - cosine.square() <= max(tolerance, 1e-7) ** 2 + 1e-12)
        for i, j in (near.triu(1).nonzero() + start).tolist():
            # Near opposite units, the length of the sum is accurate and the cosine is not.
            distance = float((unit[i] + unit[j]).norm())
            if distance <= tolerance:
                graph.add_edge(i, j, weight=1 - distance / 2, distance=distance)
    matching = networkx.max_weight_matching(graph)
    pairs = [(min(p), max(p), float(graph.edges[p]["distance"])) for p in matching]
    return sorted(pairs, key=lambda pair: (pair[2], pair[0]))


def bias_of(layer: Any) -> Tensor:
    """The bias of a layer in float64; zeros if it has none."""
    weight: Tensor = layer.weight.detach()
    zeros = weight.new_zeros(len(weight), dtype=torch.float64)
    return zeros if layer.bias is None else layer.bias.detach().double()


def shared(
    weight: Tensor, bias: Tensor, pairs: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Replace each pair of units by one that is nearest to both.

    For units that computed y and z and are now (c, -r c), the nearest c is (y - r z) / (1 + r^2).

    Args:
        weight: (units, ...).
        bias: (units,).
        pairs: The two units of each pair.

    Returns:
        (filters, ...), the weight, the shared ones first; (filters,), the bias; which unit each channel after CReLU
        is, and the factor for it, (filters + pairs,); and (filters, units), the combination of old values that each
        filter comes nearest to.
    """
    rows = torch.cat((weight.flatten(1), bias.unsqueeze(1)), 1)
    first, second, ratios = [], [], []
    for pair in pairs:
        # The larger one first: it is divided by.
        i, j = sorted(pair, key=lambda k: -float(rows[k].norm()))
        rows[i], ratio = rank_one(rows[i], rows[j])
        first.append(i)
        second.append(j)
        ratios.append(ratio)
    rest = [k for k in range(len(rows)) if k not in {*first, *second}]
    kept, r = rows[first + rest], torch.tensor(ratios, dtype=torch.float64)
    mix = torch.eye(len(rows), dtype=torch.float64)[first + rest]
    mix[range(len(first)), first] = 1 / (1 + r.square())
    mix[range(len(first)), second] = -r / (1 + r.square())
    scale = torch.cat((torch.ones(len(kept), dtype=torch.float64), r))
    filters = kept[:, :-1].unflatten(1, weight.shape[1:])
    return filters, kept[:, -1], torch.tensor(first + rest + second), scale, mix


def rank_one(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """The c and the ratio r for which (c, -r c) is nearest to (a, b).

    >>> c, r = rank_one(torch.tensor([2.0, 4.0]), torch.tensor([-1.0, -2.0]))
    >>> [round(x, 4) for x in (*c.tolist(), r)]
    [2.0, 4.0, 0.5]
    """
    gram = torch.stack((a, b)) @ torch.stack((a, b)).T
    p, q = torch.linalg.eigh(gram)[1][:, 1].tolist()  # the eigenvector of the larger eigenvalue
    return p * (p * a + q * b), -q / p
