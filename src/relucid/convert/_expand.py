"""Give every unit its other phase: which modules can, and which layers read the new channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import tree_leaves
from relucid.convert._steps import Double, Read, Step
from relucid.convert.conversion import Conversion
from relucid.convert.flow import Flow, flow, is_within
from relucid.convert.layout import Layout, UnsupportedOpError, channel_dims, display_name, propagate
from relucid.convert.network import Layers, RecordedModel, feeding, select, suggestions
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Node, Recording
from relucid.nn import GeometricLayer
from relucid.nn.kinds import Kind, kind_of


def expand(
    model: nn.Module,
    example: Any,
    layers: Layers,
    call: Method | None,
    tolerance: float | None,
    inplace: bool = False,
    optimizer: Any = None,
) -> Conversion:
    """``to_crelu`` with mode="expand"; see there."""
    network = RecordedModel(model, example, call)
    network.report.weighted, network.report.rectified = "its input has no new channels", "not chosen"
    conversion = Expansion(network, layers).converted(tolerance, inplace)
    return delivered(network, conversion, inplace, optimizer)


@dataclass(frozen=True)
class Candidate:
    """A module that is to give its units both phases."""

    module: str
    is_activation: bool  #: whether it is the activation; otherwise a ReLU follows, and it returns both signs
    dim: int  #: the dimension of the channels
    relus: tuple[str, ...]  #: the rectifications, by the names of their operations
    slopes: Tensor | None = None  #: (units,), below 0; None for ReLU
    groups: int = 1

    def layout(self, node: Node, dim: int) -> Layout:
        """The layout of the value of ``node``, which has its channels in ``dim``."""
        size = node.shape[dim]
        groups = self.groups if size % self.groups == 0 else 1
        origin = torch.arange(size).view(groups, -1)
        below = torch.zeros(size) if self.slopes is None else self.slopes.expand(size)
        scale = torch.cat((torch.ones_like(origin, dtype=torch.float64), -below.double().view(groups, -1)), 1)
        return Layout(
            dim, torch.cat((origin, origin), 1).flatten(), scale.flatten() + 0.0, frozenset([self.module])
        )


class Expansion:
    """The search for the modules that can give their units both phases."""

    def __init__(self, network: RecordedModel, layers: Layers) -> None:
        self.network, self.report = network, network.report
        self.dims = {recording: channel_dims(recording.nodes) for recording in network.recordings}
        self.sites: dict[str, Candidate] = {}
        self.obstacles: dict[str, str] = {}  # by rectification
        for recording in network.evaluated:
            self._find(recording)
        for recording in network.trained:
            self._find(recording, only_new=True)
        self._choose(layers)
        self.flows: list[Flow] = []

    # Candidates

    def _find(self, recording: Recording, *, only_new: bool = False) -> None:
        """Find the module to change for every rectification."""
        counts = self.network.counts
        makers: dict[Node, str] = {}
        for call in recording.calls:
            if len(call.outputs) == 1:
                makers.setdefault(call.outputs[0], call.module)  # the innermost module comes first
        known = {name for r in self.network.evaluated for name in r.calls_of} if only_new else set()
        for node in recording.nodes:
            if node.kind is None or node.kind.doubled:
                continue
            site = self._site(node, makers, counts, self.dims[recording])
            if isinstance(site, str):
                self.obstacles.setdefault(node.name, site)
            elif site.module not in known:
                before = self.sites.get(site.module, site)
                names = tuple(dict.fromkeys((*before.relus, *site.relus)))
                self.sites[site.module] = replace(before, relus=names)

    def _site(
        self, node: Node, makers: Mapping[Node, str], counts: Mapping[str, int], dims: Mapping[Node, int]
    ) -> Candidate | str:
        """The module to change for one rectification, or why there is none."""
        kind = node.kind
        assert kind is not None
        if not kind.homogeneous:
            places = " and ".join(f"{boundary:g}" for boundary in kind.boundaries)
            return f"its units switch at {places}: CReLU keeps the two phases of one boundary, at 0"
        if _is_masked(node):
            return "minus infinity comes before it, of which weights of zero would make NaN"
        dim = dims.get(node.rectified)
        if dim is None:
            return "it is not clear which dimension holds its channels"
        modules, name = self.network.modules, makers.get(node)
        activation = modules.get(name or "")
        place = -1 if dim == len(node.shape) - 1 else dim
        if name and activation is not None and kind_of(activation) is not None and counts[name] == 1:
            slopes = _slopes(activation, kind, dim)
            return slopes if isinstance(slopes, str) else Candidate(name, True, place, (node.name,), slopes)
        if isinstance(modules.get(node.module), GeometricLayer):
            return f"it is inside {node.module}: apply fuse first, and to_geometric afterwards"
        if kind.below != 0:
            return "it is a function or is called more than once: only a module of its own can be replaced"
        value = node.rectified
        while value not in makers and len(value.upstream) == 1 and _is_per_channel(value, dims):
            value = value.upstream[0]
        maker = makers.get(value)
        if not maker or isinstance(modules[maker], torch.jit.ScriptModule):
            what = "an input" if value.order < 0 else f"the value of {display_name(value)}"
            what = "a sum" if value.op == "add" else what
            return f"it rectifies {what}, which no module returns"
        dim = dims.get(value, dim)
        return Candidate(maker, False, -1 if dim == len(value.shape) - 1 else dim, (node.name,))

    def _choose(self, layers: Layers) -> None:
        """Keep the sites that ``layers`` names, by the rectification or by the layers that feed it."""
        names = {
            node.name: (node.name, node.name.partition(":")[0], *feeding(node))
            for recording in self.network.recordings
            for node in recording.nodes
            if node.kind is not None and not node.kind.doubled
        }
        chosen = select(names, layers, partial(suggestions, self.network))
        self.sites = {name: site for name, site in self.sites.items() if chosen & set(site.relus)}
        self.obstacles = {relu: reason for relu, reason in self.obstacles.items() if relu in chosen}

    # Channels

    def follow(self) -> None:
        """Follow the new channels, and drop every site whose channels reach something that cannot take them."""
        while True:
            self.flows = [flow(r, self._starts(r), self.network.modules) for r in self.network.recordings]
            dropped = self._stuck()
            if not dropped:
                return
            for name, reason in dropped.items():
                self._drop(name, reason)

    def _starts(self, recording: Recording) -> dict[Node, Layout]:
        """Where new channels begin in a recording."""
        dims, starts = self.dims[recording], {}
        for call in recording.calls:
            site = self.sites.get(call.module)
            if site is not None and call.outputs:
                node = call.outputs[0]
                starts[node] = site.layout(node, dims.get(node, site.dim % max(len(node.shape), 1)))
        return starts

    def _stuck(self) -> dict[str, str]:
        """The sites whose channels cannot be read everywhere, with the reasons."""
        reasons: dict[str, str] = {}
        before = dict(self.sites)
        for layout, error in (stuck for flowed in self.flows for stuck in flowed.stuck):
            for name in layout.sites & before.keys():
                if error.groups and self._regroup(before[name], error.groups):
                    reasons.setdefault("", "")  # nothing is dropped, but the channels have moved
                else:
                    reasons[name] = str(error)
        reads: dict[str, Layout] = {}
        for flowed in self.flows:
            for name, layout in flowed.reads.items():
                shared = self.network.shared(name)
                apart = name in reads and not reads[name].equals(layout)
                plain = any(name in other.unchanged for other in self.flows)
                if shared or apart or plain:
                    reason = f"the weights of {name} are also used elsewhere"
                    reasons.update(dict.fromkeys(layout.sites & self.sites.keys(), reason))
                reads[name] = layout
        return reasons

    def _regroup(self, site: Candidate, groups: int) -> bool:
        """Let a site arrange its channels for a reader with groups; False if that does not help."""
        if site.slopes is not None or site.groups % groups == 0:
            return False
        self.sites[site.module] = replace(site, groups=math.lcm(self.sites[site.module].groups, groups))
        return True

    def _drop(self, name: str, reason: str) -> None:
        site = self.sites.pop(name, None)
        for relu in () if site is None else site.relus:
            self.obstacles[relu] = reason

    # Steps

    def converted(self, tolerance: float | None, inplace: bool) -> Conversion:
        """The conversion at all sites that work."""
        sites, obstacles = dict(self.sites), dict(self.obstacles)

        def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
            self.sites, self.obstacles = {name: sites[name] for name in names}, dict(obstacles)
            for name, reason in dropped.items():
                self.obstacles.update(dict.fromkeys(sites[name].relus, reason))
            self.follow()
            self._note()
            return converted(self.network, self.steps(), tolerance=tolerance, inplace=inplace)

        return largest_valid_subset(sites, attempt, self._reaching)

    def _reaching(self, layer: str) -> set[str]:
        """The sites whose channels a layer reads, or something inside a module."""
        read, _ = self._readers().get(layer, (None, False))
        if read is not None:
            return set(read.sites)
        if layer in self.sites and not list(self.network.modules[layer].children()):
            return {layer}
        return {
            site
            for flowed in self.flows
            for node, layout in flowed.layouts.items()
            if is_within(node.module, layer)
            for site in layout.sites
        }

    def steps(self) -> list[Step]:
        """Change the sites, and the layers that read their channels."""
        steps: list[Step] = [
            Double(
                *(site.module, site.dim, site.groups),
                slopes=None if site.slopes is None else tuple(site.slopes.tolist()),
                replace=site.is_activation,
            )
            for site in self._doubled()
        ]
        return steps + [Read(name, layout, carries) for name, (layout, carries) in self._readers().items()]

    def _readers(self) -> dict[str, tuple[Layout, bool]]:
        return {name: (layout, name in f.carries) for f in self.flows for name, layout in f.reads.items()}

    def _doubled(self) -> list[Candidate]:
        """The sites whose channels begin there; the input of any other has both phases already."""
        begun = {name for f in self.flows for layout in f.layouts.values() for name in layout.sites}
        return [site for site in self.sites.values() if site.module in begun]

    def _note(self) -> None:
        self.report.forget()
        for relu, reason in self.obstacles.items():
            self.report.note(relu, "refused", reason)
        begun = self._doubled()
        for site in self.sites.values():
            for relu in site.relus:
                if site not in begun:
                    self.report.note(relu, "kept", "its input has both phases already")
                elif site.is_activation:
                    self.report.note(relu, "changed", _done(site))
                else:
                    self.report.note(relu, "changed", f"CReLU: {site.module} returns both signs")
        for name, (layout, carries) in self._readers().items():
            kind = "" if layout.is_split else " of zero"
            reason = "a filter for each phase" if carries else f"weights{kind} for the new channels"
            module = self.network.modules[name]
            if hasattr(module, "weight"):
                self.report.note(name, "changed", reason, type(module).__name__)


def _done(site: Candidate) -> str:
    text = "CReLU"
    if site.slopes is not None and len(site.slopes) > 1:
        text += (
            "; its slopes become factors in the weights that read it, and are not learned as slopes any more"
        )
    return text


def _is_masked(relu: Node) -> bool:
    """Whether an operation between a layer and a rectification puts minus infinity into the value, as masks do."""
    stack, seen = relu.upstream, set[Node]()
    while stack:
        node = stack.pop()
        if node in seen or node.has_weight or node.kind is not None:
            continue
        seen.add(node)
        if any(_is_infinite(x) for x in tree_leaves(node.call[1:])):
            return True
        stack += node.upstream
    return False


def _is_infinite(x: object) -> bool:
    if isinstance(x, Tensor):
        return x.is_floating_point() and x.numel() > 0 and bool(x.isneginf().any())
    return x == -math.inf


def _is_per_channel(node: Node, dims: Mapping[Node, int]) -> bool:
    """Whether an operation treats all channels alike, so that both signs may come before it."""
    before = node.upstream[0]
    if before not in dims or node.has_weight:
        return False
    try:
        propagate(node, {before: Layout.same(before.shape[dims[before]], dims[before])})
    except UnsupportedOpError:
        return False
    return True


def _slopes(module: nn.Module, kind: Kind, dim: int) -> Tensor | str | None:
    """The slope of each unit below its boundary, (units,) or (1,); None if it is 0; or why it is not known."""
    if isinstance(module, nn.RReLU):
        return "in training, it draws a random slope for every entry, which weights cannot reproduce"
    if kind.below == 0:
        return None
    if kind.below is not None:
        return torch.tensor([kind.below], dtype=torch.float64)
    assert isinstance(module, nn.PReLU)
    learned = module.weight.detach().double().cpu().flatten()
    if len(learned) > 1 and dim != 1:
        return f"its slopes belong to dimension 1, its units are in dimension {dim}"
    return learned
