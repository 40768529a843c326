"""Opposite units share one filter: relu(w.x) and relu(-s w.x) are the two phases of one CReLU (crelu)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from relucid.convert.network import Layers, Note, RecordedModel, feeding, select
from relucid.convert.norms import is_plain, norm_after, relu_after
from relucid.convert.search import converted
from relucid.inspect._pairing import WIDEST
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
    doubles, relus, obstacles = _rectified(network, layers)
    distance = ROUNDING if tolerance is None else min(100 * tolerance, OPPOSITE)
    if tolerance is None:
        tolerance = max(tolerance_of(tape.outputs) for tape in network.outputs)
    pairs = sorted(
        (far, name, pair)
        for name in doubles
        for *pair, far in opposite_pairs(*_folded(network, name), distance)
    )[:limit]

    def attempt(count: int) -> Conversion | None:
        notes: list[Note] = [(relu, "refused", reason) for relu, reason in obstacles.items()]
        chosen = {name: [(i, j) for _, layer, (i, j) in pairs[:count] if layer == name] for name in doubles}
        for name in (name for name, some in chosen.items() if not some):
            notes.append(
                (relus[name], "kept", f"no pair is opposite enough for a tolerance of {tolerance:g}")
            )
        chosen = {name: some for name, some in chosen.items() if some}

        def drop(name: str, reason: str) -> None:
            del chosen[name]
            notes.append((relus[name], "refused", reason))

        reads = _reads(network, chosen, drop)
        steps: list[Step] = []
        for name, some in chosen.items():
            steps += [Fold(norm, name)] if (norm := norm_after(network, name)) else []
            steps += [Share(name, tuple(some)), replace(doubles[name], paired=len(some))]
            notes.append((relus[name], "changed", f"CReLU: {len(some)} pairs share a filter"))
            notes.append((name, "changed", f"{len(some)} filters fewer"))
        notes += [(read.name, "changed", "reads merged channels") for read in reads]
        changes = network.changes(notes, "its input has no merged channels", "not chosen")
        # Merged units are equal up to the tolerance only: outputs decide.
        training = not any(isinstance(step, Fold) for step in steps)
        options: Any = {"layers": False, "probe": False, "training": training, "inplace": inplace}
        try:
            return converted(network, [*steps, *reads], changes, tolerance=tolerance, **options)
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


def _folded(network: RecordedModel, name: str) -> tuple[Tensor, Tensor]:
    """The weight and bias of a layer with the norm after it folded in."""
    layer: Any = network.modules[name]
    if (norm := norm_after(network, name)) is not None:
        return affine_after(layer, *affine_of(network.modules[norm]))
    return layer.weight.detach().double(), bias_of(layer)


def _reads(
    network: RecordedModel,
    chosen: Mapping[str, Sequence[tuple[int, int]]],
    drop: Callable[[str, str], None],
) -> list[Read]:
    """The changes of what reads merged channels; layers whose channels something cannot take are dropped."""
    layouts = {name: shared(*_folded(network, name), some)[2:4] for name, some in chosen.items()}

    def starts(recording: Recording) -> dict[Node, Layout]:
        dims, starts = channel_dims(recording.nodes), {}
        for name in chosen:
            for call in recording.calls_of.get(norm_after(network, name) or name, []):
                for node in (node for value in call.outputs for node in recording.readers.get(value, [])):
                    starts[node] = Layout(dims.get(node, 1), *layouts[name], frozenset([name]))
        return starts

    flows = follow(network, starts, drop)
    return [
        Read(name, layout) for name, layout in {n: x for one in flows for n, x in one.reads.items()}.items()
    ]


def _rectified(
    network: RecordedModel, layers: Layers
) -> tuple[dict[str, Double], dict[str, str], dict[str, str]]:
    """The layers whose units can be merged.

    Returns:
        By layer, how both phases come about; its ReLU; and by ReLU, why the units of others cannot be merged.
    """
    nodes = {n.name: n for n in network.nodes if n.kind == KINDS["relu"]}
    chosen = select({name: (name, *feeding(node)) for name, node in nodes.items()}, layers)
    doubles: dict[str, Double] = {}
    relus: dict[str, str] = {}
    obstacles: dict[str, str] = {}
    for relu, node in ((relu, node) for relu, node in nodes.items() if relu in chosen):
        name, *others = feeding(node) or ("",)
        layer = network.modules.get(name)
        try:
            if others or not is_plain(layer) or isinstance(layer, ConvTransposeNd):
                raise ConversionError(
                    "it does not rectify a linear or convolution layer, directly or after a norm"
                )
            doubles[name] = _double(network, name, layer)
        except ConversionError as error:
            obstacles[relu] = str(error)
        else:
            relus[name] = relu
    return doubles, relus, obstacles


def _double(network: RecordedModel, name: str, layer: Any) -> Double:
    """How the units of a layer get both phases; an error that says why they cannot be merged."""
    counts, norm = network.counts, norm_after(network, name)
    last = norm or name
    for recording in network.recordings:
        values = {node for call in recording.calls_of.get(last, []) for node in call.outputs}
        readers = [node for node in recording.nodes if values & set(node.upstream)]
        only = bool(readers) and all(n.kind == KINDS["relu"] for n in readers)
        if not only or values & set(recording.outputs):
            raise ConversionError("something else reads the same filters, or comes between them and the ReLU")
    if counts[name] > 1 or network.shared(name):
        raise ConversionError("its layer is used more than once")
    if norm is not None and _trains_apart(layer, network.modules[norm]):
        raise ConversionError("its norm is trained and its weights are frozen, or the other way round")
    if len(layer.weight) > WIDEST:
        raise ConversionError(
            f"it has {len(layer.weight):,} filters, and pairs are sought among {WIDEST:,} at most"
        )
    if isinstance(layer, ConvNd) and layer.groups > 1:
        raise ConversionError("its filters are grouped, and groups must stay equal")
    dim = -1 if isinstance(layer, nn.Linear) else 1
    relu = relu_after(network, last)
    return Double(last, dim, replace=False) if relu is None else Double(relu, dim)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Replace each pair of units by one that is nearest to both.

    For units that computed y and z and are now (c, -r c), the nearest c is (y - r z) / (1 + r^2).

    Args:
        weight: (units, ...).
        bias: (units,).
        pairs: The two units of each pair.

    Returns:
        (filters, ...), the weight, the shared ones first; (filters,), the bias; which unit each channel after CReLU
        is, and the factor for it, (filters + pairs,).
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
    scale = torch.cat((torch.ones(len(kept), dtype=torch.float64), r))
    filters = kept[:, :-1].unflatten(1, weight.shape[1:])
    return filters, kept[:, -1], torch.tensor(first + rest + second), scale


def rank_one(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """The c and the ratio r for which (c, -r c) is nearest to (a, b).

    >>> c, r = rank_one(torch.tensor([2.0, 4.0]), torch.tensor([-1.0, -2.0]))
    >>> [round(x, 4) for x in (*c.tolist(), r)]
    [2.0, 4.0, 0.5]
    """
    gram = torch.stack((a, b)) @ torch.stack((a, b)).T
    p, q = torch.linalg.eigh(gram)[1][:, 1].tolist()  # the eigenvector of the larger eigenvalue
    return p * (p * a + q * b), -q / p
