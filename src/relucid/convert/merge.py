"""Opposite units share one filter: relu(w.x) and relu(-s w.x) are the two phases of one CReLU (crelu)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, ConvTransposeNd
from relucid.convert._steps import Double, Fold, Read, Share, Step, bias_of, shared
from relucid.convert.conversion import Conversion
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Given
from relucid.convert.flow import Flow, flow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.network import Layers, RecordedModel, feeding, select
from relucid.convert.norms import is_plain, norm_after, readers_of
from relucid.convert.search import converted, delivered
from relucid.inspect.execution import Method, Node, Recording
from relucid.nn.affine import affine_after, affine_of
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
    example: Given,
    layers: Layers,
    call: Method | None,
    tolerance: float,
    budget: float | None,
    limit: int | None,
    inplace: bool,
    optimizer: Optimizer | Sequence[Optimizer] | None,
) -> Conversion:
    """The network with as many pairs merged as budget and limit allow, the most opposite first."""
    network = RecordedModel(model, example, call)
    network.report.weighted, network.report.rectified = "its input has no merged channels", "not chosen"
    merger = Merger(network, layers, tolerance)
    pairs = merger.pairs()[:limit]

    def attempt(count: int) -> Conversion | None:
        try:
            return merger.merged(pairs[:count], budget, inplace)
        except ConversionError:
            if count == 0:
                raise
            return None

    found = attempt(len(pairs))
    if found is None:
        most = bisect_left(range(1, len(pairs)), True, key=lambda count: attempt(count) is None)
        found = attempt(most)
    assert found is not None
    return delivered(network, found, inplace, optimizer)


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

    def __init__(self, network: RecordedModel, layers: Layers, tolerance: float) -> None:
        self.network, self.tolerance = network, tolerance
        self.obstacles: dict[str, str] = {}
        relus = {n.name: n for n in network.nodes if n.kind == KINDS["relu"]}
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
        network, found = self.network, feeding(relu)
        layer = network.modules.get(found[0]) if len(found) == 1 else None
        if (
            not isinstance(layer, nn.Linear | ConvNd)
            or isinstance(layer, ConvTransposeNd)
            or not is_plain(layer)
        ):
            return "it does not rectify a linear or convolution layer, directly or after a norm"
        name, counts = found[0], network.counts
        norm = norm_after(network, name)
        last = norm or name
        for recording in network.recordings:
            values = {node for call in recording.calls if call.module == last for node in call.outputs}
            readers = [node for node in recording.nodes if values & set(node.upstream)]
            if (
                values & set(recording.outputs)
                or not readers
                or any(n.kind != KINDS["relu"] for n in readers)
            ):
                return "something else reads the same filters, or comes between them and the ReLU"
        if counts[name] > 1 or network.shared(name):
            return "its layer is used more than once"
        if norm is not None and _trains_apart(layer, network.modules[norm]):
            return "its norm is trained and its weights are frozen, or the other way round"
        if isinstance(layer, ConvNd) and layer.groups > 1:
            return "its filters are grouped, and groups must stay equal"
        own = readers_of(network, last) or set()
        module = next(iter(own)) if len(own) == 1 else None
        is_own = module is not None and isinstance(network.modules[module], nn.ReLU) and counts[module] == 1
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
        layer: Any = self.network.modules[each.layer]
        if each.norm is not None:
            return affine_after(layer, *affine_of(self.network.modules[each.norm]))
        return layer.weight.detach().double(), bias_of(layer)

    def merged(self, pairs: Sequence[Pair], budget: float | None, inplace: bool) -> Conversion:
        """The network with these pairs merged; raise an error if it exceeds the budget."""
        shares = {
            name: Share(name, tuple((pair.first, pair.second) for pair in own))
            for name in self.rectifiers
            if (own := [pair for pair in pairs if pair.layer == name])
        }
        layouts = {
            name: shared(*self._folded(self.rectifiers[name]), s.pairs)[2:4] for name, s in shares.items()
        }
        obstacles = dict(self.obstacles)
        while True:
            flows = [flow(r, self._starts(r, layouts), self.network.modules) for r in self.network.recordings]
            stuck = {
                n: str(error)
                for f in flows
                for layout, error in f.stuck
                for n in layout.sites & layouts.keys()
            }
            if not stuck:
                break
            for name, reason in stuck.items():
                del shares[name], layouts[name]
                obstacles[self.rectifiers[name].relu] = reason
        self._note(shares, flows, obstacles)
        folded = any(self.rectifiers[name].norm is not None for name in shares)
        # Merged units are equal up to the budget only: outputs decide.
        return converted(
            *(self.network, self._steps(shares, flows)),
            layers=False,
            probe=False,
            training=not folded,
            tolerance=budget,
            inplace=inplace,
        )

    def _starts(
        self, recording: Recording, layouts: Mapping[str, tuple[Tensor, Tensor]]
    ) -> dict[Node, Layout]:
        dims, starts = channel_dims(recording.nodes), {}
        for name, (origin, scale) in layouts.items():
            each = self.rectifiers[name]
            last = each.norm or each.layer
            for value in (node for call in recording.calls_of.get(last, []) for node in call.outputs):
                for node in recording.readers.get(value, []):
                    starts[node] = Layout(dims.get(node, 1), origin, scale, frozenset([name]))
        return starts

    def _steps(self, shares: dict[str, Share], flows: Sequence[Flow]) -> list[Step]:
        steps: list[Step] = []
        for name, share in shares.items():
            each = self.rectifiers[name]
            dim = -1 if isinstance(self.network.modules[name], nn.Linear) else 1
            if each.norm is not None:
                steps.append(Fold(each.norm, name))
            changed = each.module or each.norm or name
            steps += [share, Double(changed, dim, paired=len(share.pairs), replace=each.module is not None)]
        readers = {name: layout for found in flows for name, layout in found.reads.items()}
        return steps + [Read(name, layout) for name, layout in readers.items()]

    def _note(self, shares: dict[str, Share], flows: Sequence[Flow], obstacles: dict[str, str]) -> None:
        report = self.network.report
        report.forget()
        for relu, reason in obstacles.items():
            report.note(relu, "refused", reason)
        for name, each in self.rectifiers.items():
            if name in shares:
                report.note(each.relu, "changed", f"CReLU: {len(shares[name].pairs)} pairs share a filter")
                report.note(name, "changed", f"{len(shares[name].pairs)} filters fewer")
            elif each.relu not in obstacles:
                report.note(each.relu, "kept", f"no opposite pair within {self.tolerance:g} and the budget")
        for name in (name for found in flows for name in found.reads):
            report.note(name, "changed", "reads merged channels", type(self.network.modules[name]).__name__)


def _trains_apart(layer: nn.Linear | ConvNd, norm: nn.Module) -> bool:
    weight = getattr(norm, "weight", None)
    return isinstance(weight, Tensor) and weight.requires_grad != layer.weight.requires_grad
