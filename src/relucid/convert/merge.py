"""Opposite units share one filter: relu(w.x) and relu(-s w.x) are the two phases of one CReLU (crelu)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, ConvTransposeNd
from relucid.convert.conversion import Conversion
from relucid.convert.copies import copied
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Batch, batches
from relucid.convert.flow import Flow, flow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.norms import absorbed, fold, is_plain, norm_after, readers_of
from relucid.convert.reading import read
from relucid.convert.refit import Target, refit
from relucid.convert.subject import Layers, Subject, feeding, select
from relucid.convert.surgery import Surgery
from relucid.inspect.execution import Node, Recording
from relucid.nn.kinds import KINDS


@dataclass(frozen=True)
class Pair:
    """Two units of one layer that are nearly opposite."""

    layer: str
    first: int
    second: int
    distance: float  #: the length of the sum of the two units, weights and bias together, each of length 1


@dataclass(frozen=True)
class Rectifier:
    """A ReLU, the layer that it rectifies, and the norm between them."""

    relu: str  #: the rectification, by the name of its operation
    layer: str
    norm: str | None
    #: the ReLU's own module, called once; None if the module before it must return both signs
    module: str | None


def merge(
    model: nn.Module,
    example: Batch | list[Batch],
    layers: Layers,
    tolerance: float,
    budget: float | None,
    limit: int | None,
    data: Any,
    inplace: bool,
    optimizer: Optimizer | None,
) -> Conversion:
    """The network with as many pairs merged as budget and limit allow, the most opposite first."""
    subject = Subject(model, example)
    subject.report.weighted, subject.report.rectified = "its input has no merged channels", "not chosen"
    given = None if data is None else batches(data, subject.references.examples[0])
    merger = Merger(subject, layers, tolerance, given)
    pairs = merger.pairs()[:limit]

    def attempt(count: int, inplace: bool = False, optimizer: Optimizer | None = None) -> Conversion | None:
        try:
            return merger.merged(pairs[:count], budget, inplace, optimizer)
        except ConversionError:
            if count == 0:
                raise
            return None

    # The network itself changes only once a copy has passed the check, so what fails leaves it alone.
    found = attempt(len(pairs), inplace, optimizer)
    if found is None:
        most = bisect_left(range(1, len(pairs)), True, key=lambda count: attempt(count) is None)
        found = attempt(most, inplace, optimizer)
    assert found is not None
    return found


COSINES = 1 << 24  # at a time: all pairs of a wide layer take its square in memory


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
    found = [(min(p), max(p), float(graph.edges[p]["distance"])) for p in matching]
    return sorted(found, key=lambda pair: (pair[2], pair[0]))


class Merger:
    """The layers of a network whose opposite filters can be merged."""

    def __init__(self, subject: Subject, layers: Layers, tolerance: float, data: list[Batch] | None) -> None:
        self.subject, self.tolerance, self.data = subject, tolerance, data
        # In place, the network has changed by the time that layers are fitted to what they computed before.
        self.original = subject.model if data is None else copied(subject.model)
        self.obstacles: dict[str, str] = {}
        relus = {n.name: n for n in subject.nodes if n.kind == KINDS["relu"]}
        chosen = select({name: (name, *feeding(node)) for name, node in relus.items()}, layers)
        self.rectifiers: dict[str, Rectifier] = {}  # by layer
        for name in (name for name in relus if name in chosen):
            found = self._rectifier(relus[name])
            if isinstance(found, str):
                self.obstacles[name] = found
            else:
                self.rectifiers[found.layer] = found

    def _rectifier(self, relu: Node) -> Rectifier | str:
        """The layer that a ReLU rectifies, directly or after a norm; or why it cannot be merged."""
        subject, found = self.subject, feeding(relu)
        layer = subject.modules.get(found[0]) if len(found) == 1 else None
        if (
            not isinstance(layer, nn.Linear | ConvNd)
            or isinstance(layer, ConvTransposeNd)
            or not is_plain(layer)
        ):
            return "it does not rectify a linear or convolution layer, directly or after a norm"
        name, counts = found[0], subject.counts
        norm = norm_after(subject, name)
        last = norm or name
        for recording in subject.recordings:
            values = {node for call in recording.calls if call.module == last for node in call.outputs}
            readers = [node for node in recording.nodes if values & set(node.upstream)]
            if (
                values & set(recording.outputs)
                or not readers
                or any(n.kind != KINDS["relu"] for n in readers)
            ):
                return "something else reads the same filters, or comes between them and the ReLU"
        if counts[name] > 1 or subject.shared(name):
            return "its layer is used more than once"
        if norm is not None and _trains_apart(layer, subject.modules[norm]):
            return "its norm is trained and its weights are frozen, or the other way round"
        if isinstance(layer, ConvNd) and layer.groups > 1:
            return "its filters are grouped, and groups must stay equal"
        own = readers_of(subject, last) or set()
        module = next(iter(own)) if len(own) == 1 else None
        is_own = module is not None and isinstance(subject.modules[module], nn.ReLU) and counts[module] == 1
        return Rectifier(relu.name, name, norm, module if is_own else None)

    def pairs(self) -> list[Pair]:
        """The pairs of all layers, the most opposite first."""
        found = []
        for each in self.rectifiers.values():
            near = opposite_pairs(*self._folded(each), self.tolerance)
            found += [Pair(each.layer, i, j, distance) for i, j, distance in near]
        return sorted(found, key=lambda pair: pair.distance)

    def _folded(self, each: Rectifier) -> tuple[Tensor, Tensor]:
        """The weight and bias of a layer with the norm that follows it folded in."""
        layer: Any = self.subject.modules[each.layer]
        if each.norm is not None:
            return absorbed(layer, self.subject.modules[each.norm])
        weight = layer.weight.detach().double()
        return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()

    def merged(
        self, pairs: Sequence[Pair], budget: float | None, inplace: bool, optimizer: Optimizer | None
    ) -> Conversion:
        """The network with these pairs merged; raise an error if it exceeds the budget."""
        shares = {
            name: Share.of(*self._folded(each), own)
            for name, each in self.rectifiers.items()
            if (own := [pair for pair in pairs if pair.layer == name])
        }
        obstacles = dict(self.obstacles)
        while True:
            flows = [flow(r, self._starts(r, shares), self.subject.modules) for r in self.subject.recordings]
            stuck = {
                n: str(error)
                for f in flows
                for layout, error in f.stuck
                for n in layout.sites & shares.keys()
            }
            if not stuck:
                break
            for name, reason in stuck.items():
                del shares[name]
                obstacles[self.rectifiers[name].relu] = reason
        self._note(shares, flows, obstacles)
        folded = any(self.rectifiers[name].norm is not None for name in shares)
        perform = partial(self._perform, shares, flows)
        return self.subject.finish(
            perform, tolerance=budget, inplace=inplace, optimizer=optimizer, training=not folded
        )

    def _starts(self, recording: Recording, shares: dict[str, Share]) -> dict[Node, Layout]:
        dims, starts = channel_dims(recording.nodes), {}
        for name, share in shares.items():
            each = self.rectifiers[name]
            last = each.norm or each.layer
            for value in (node for call in recording.calls_of.get(last, []) for node in call.outputs):
                for node in recording.readers.get(value, []):
                    starts[node] = Layout(dims.get(node, 1), share.origin, share.scale, frozenset([name]))
        return starts

    def _perform(self, shares: dict[str, Share], flows: Sequence[Flow], surgery: Surgery) -> None:
        for name, share in shares.items():
            each, layer = self.rectifiers[name], surgery.model.get_submodule(name)
            dim = -1 if isinstance(layer, nn.Linear) else 1
            if each.norm is not None:
                fold(surgery, each.norm, name)
            surgery.resize(f"{name}.weight", shape=list(share.weight.shape), value=share.weight)
            if surgery.model.get_submodule(name).bias is not None:
                surgery.resize(f"{name}.bias", shape=list(share.bias.shape), value=share.bias)
            size = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
            surgery.attribute(name, key=size, value=len(share.weight))
            if each.module is not None:
                surgery.crelu(each.module, dim=dim, paired=share.pairs)
            else:
                surgery.signs(each.norm or name, dim=dim, paired=share.pairs)
        readers = {name: layout for found in flows for name, layout in found.reads.items()}
        for name, layout in readers.items():
            read(surgery, name, layout)
        if self.data is not None and shares:
            targets = {
                name: Target(self.rectifiers[name].norm or name, share.mix) for name, share in shares.items()
            }
            refit(self.original, surgery.model, list(readers), self.data, targets)

    def _note(self, shares: dict[str, Share], flows: Sequence[Flow], obstacles: dict[str, str]) -> None:
        report = self.subject.report
        report.forget()
        for relu, reason in obstacles.items():
            report.note(relu, "refused", reason)
        for name, each in self.rectifiers.items():
            if name in shares:
                report.note(each.relu, "changed", f"CReLU: {shares[name].pairs} pairs share a filter")
                report.note(name, "changed", f"{shares[name].pairs} filters fewer")
            elif each.relu not in obstacles:
                report.note(each.relu, "kept", f"no opposite pair within {self.tolerance:g} and the budget")
        for name in (name for found in flows for name in found.reads):
            report.note(name, "changed", "reads merged channels", type(self.subject.modules[name]).__name__)


def _trains_apart(layer: nn.Linear | ConvNd, norm: nn.Module) -> bool:
    weight = getattr(norm, "weight", None)
    return isinstance(weight, Tensor) and weight.requires_grad != layer.weight.requires_grad


@dataclass(frozen=True, eq=False)
class Share:
    """A layer in which some pairs of filters are one, doubled by CReLU."""

    weight: Tensor  #: (filters, ...): the shared ones first
    bias: Tensor  #: (filters,)
    pairs: int
    origin: Tensor  #: (filters + pairs,): which unit each new channel is
    scale: Tensor  #: (filters + pairs,)
    mix: Tensor  #: (filters, units): the combination of the old values that each filter comes nearest to

    @staticmethod
    def of(weight: Tensor, bias: Tensor, pairs: Sequence[Pair]) -> Share:
        """Replace each pair of filters by one.

        For units that computed y and z and are now (c, -r c), the nearest c is (y - r z) / (1 + r^2).
        """
        rows = torch.cat((weight.flatten(1), bias.unsqueeze(1)), 1)
        indices, ratios = [], []
        for pair in pairs:
            # The larger one first: it is divided by.
            i, j = sorted((pair.first, pair.second), key=lambda k: -float(rows[k].norm()))
            rows[i], ratio = rank_one(rows[i], rows[j])
            indices.append((i, j))
            ratios.append(ratio)
        first, second = [i for i, _ in indices], [j for _, j in indices]
        rest = [k for k in range(len(rows)) if k not in {*first, *second}]
        kept = rows[first + rest]
        r = torch.tensor(ratios, dtype=torch.float64)
        mix = torch.eye(len(rows), dtype=torch.float64)[first + rest]
        mix[range(len(pairs)), first] = 1 / (1 + r.square())
        mix[range(len(pairs)), second] = -r / (1 + r.square())
        scale = torch.cat((torch.ones(len(kept), dtype=torch.float64), r))
        shared = kept[:, :-1].unflatten(1, weight.shape[1:])
        return Share(shared, kept[:, -1], len(pairs), torch.tensor(first + rest + second), scale, mix)


def rank_one(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """The c and the ratio r for which (c, -r c) is nearest to (a, b).

    >>> c, r = rank_one(torch.tensor([2.0, 4.0]), torch.tensor([-1.0, -2.0]))
    >>> [round(x, 4) for x in (*c.tolist(), r)]
    [2.0, 4.0, 0.5]
    """
    gram = torch.stack((a, b)) @ torch.stack((a, b)).T
    p, q = torch.linalg.eigh(gram)[1][:, 1].tolist()  # the eigenvector of the larger eigenvalue
    return p * (p * a + q * b), -q / p
