"""ReLU and its relatives to CReLU: give every unit its other phase, or let opposite units share a filter (crelu)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid.convert._steps import Double, Read, Step
from relucid.convert.conversion import Conversion, conversion
from relucid.convert.errors import ArgumentError
from relucid.convert.examples import Given
from relucid.convert.flow import Flow, flow
from relucid.convert.layout import Layout, UnsupportedOpError, channel_dims, display_name, propagate
from relucid.convert.merge import merge
from relucid.convert.network import Layers, RecordedModel, feeding, select, suggestions
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Node, Recording
from relucid.nn import GeometricLayer
from relucid.nn.kinds import Kind, kind_of


@conversion
def to_crelu(
    model: nn.Module,
    example: Given,
    layers: Layers = None,
    mode: Literal["expand", "merge", "halve"] = "expand",
    *,
    revive: bool = False,
    data: Any = None,
    inplace: bool = False,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    call: Method | None = None,
    tolerance: float | None = None,
    budget: float | None = None,
    pairs: int | None = None,
) -> Conversion:
    """The same network with CReLU, which keeps both phases of a unit, in place of ReLU.

    "expand": a ReLU that is a module of its own, called once, becomes CReLU. For any other, the module before it
    returns both signs of its value: relu([y, -y]) is CReLU. The layers that read the result, through batch norms,
    pooling or flatten, get weights of zero for the new half. A ReLU whose value is also added, multiplied, returned or
    read by something that mixes channels stays as it is. Training goes on from there.

    LeakyReLU, PReLU and the absolute value, as modules of their own, become CReLU too: each is f(x) = relu(x) -
    a relu(-x), where a is the slope below 0 (-1 for the absolute value), so the new weights are -a times the old
    ones. Where x is exactly 0, CReLU has a gradient of 0, LeakyReLU and PReLU have a.

    "merge": two units of one layer with w_i = -s w_j and b_i = -s b_j, batch norm folded, become the two phases of
    one filter, the one nearest to both. The weights that read them are rearranged. For ReLU only.

    Args:
        model: Any network.
        example: Its input: a tensor or array, a tuple of positional or a mapping of keyword arguments, a loader or
            data set, of which the first batch is taken, or a list of several examples.
            What a network executes on none of them stays as it is.
        layers: Names or globs of activations, or of the layers that feed them; "auto", in mode "expand", for those
            that `relucid.inspect.examine` suggests. By default all.
        mode: "expand", "merge" or "halve".
        revive: "expand": first give dead units a boundary that passes through the data, as `relucid.convert.revive`.
        data: With ``revive``, inputs that show which units are dead; by default the example.
        inplace: Convert the network itself; by default a copy.
        optimizer: With ``inplace``, an optimizer to take along: its groups refer to the new parameters, and its state
            is kept for every weight that stays, and zero for new ones.
        call: How the network is used, if not through its forward: a method's name, or a function of the network and
            the example.
        tolerance: "expand": the largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by
            default. "merge": how far a pair may be from opposite, as the length of the sum of the two units'
            weights and biases, each of length 1; 1e-5 by default.
        budget: "merge": the largest relative difference of outputs, by default as in "expand". As many pairs are
            merged as it allows, the most opposite first.
        pairs: "merge": the largest number of pairs to merge, the most opposite first.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> to_crelu(net, torch.randn(5, 4)).model
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): CReLU(dim=-1)
      (2): Linear(in_features=16, out_features=2, bias=True)
    )
    """
    if (revive or data is not None) and (mode != "expand" or not revive):
        raise ArgumentError("revive is for mode='expand', and data for revive")
    if mode == "merge":
        return merge(
            model,
            example,
            layers,
            call,
            1e-5 if tolerance is None else tolerance,
            budget,
            pairs,
            inplace,
            optimizer,
        )
    if mode == "halve":
        from relucid.convert._halve import halve

        if any(value is not None for value in (tolerance, budget, pairs)):
            raise ArgumentError("mode='halve' keeps no outputs: it takes no tolerance, budget or pairs")
        return halve(model, example, layers, call, inplace, optimizer)
    if mode != "expand":
        raise ArgumentError(f"mode is 'expand', 'merge' or 'halve', not {mode!r}")
    if budget is not None or pairs is not None:
        raise ArgumentError("budget and pairs are for mode='merge'; 'expand' changes no output")
    if revive:
        from relucid.convert._revive import revived_first

        return revived_first(
            model,
            partial(_expand, example=example, layers=layers, call=call, tolerance=tolerance),
            example=example,
            data=data,
            call=call,
            inplace=inplace,
            optimizer=optimizer,
        )
    return _expand(model, example, layers, call, tolerance, inplace, optimizer)


def _expand(
    model: nn.Module,
    example: Given,
    layers: Layers,
    call: Method | None,
    tolerance: float | None,
    inplace: bool = False,
    optimizer: Any = None,
) -> Conversion:
    """Give every unit its other phase."""
    network = RecordedModel(model, example, call)
    network.report.weighted, network.report.rectified = "its input has no new channels", "not chosen"
    found = Expansion(network, layers).converted(tolerance, inplace)
    return delivered(network, found, inplace, optimizer)


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
            found = self._site(node, makers, counts, self.dims[recording])
            if isinstance(found, str):
                self.obstacles.setdefault(node.name, found)
            elif found.module not in known:
                before = self.sites.get(found.module, found)
                names = tuple(dict.fromkeys((*before.relus, *found.relus)))
                self.sites[found.module] = replace(before, relus=names)

    def _site(
        self, node: Node, makers: Mapping[Node, str], counts: Mapping[str, int], dims: Mapping[Node, int]
    ) -> Candidate | str:
        """The module to change for one rectification, or why there is none."""
        kind = node.kind
        assert kind is not None
        if not kind.homogeneous:
            places = " and ".join(f"{boundary:g}" for boundary in kind.boundaries)
            return f"its units switch at {places}: CReLU keeps the two phases of one boundary, at 0"
        dim = dims.get(node.rectified)
        if dim is None:
            return "it is not clear which dimension holds its channels"
        modules, own = self.network.modules, makers.get(node)
        activation = modules.get(own or "")
        place = -1 if dim == len(node.shape) - 1 else dim
        if own and activation is not None and kind_of(activation) is not None and counts[own] == 1:
            slopes = _slopes(activation, kind, dim)
            return slopes if isinstance(slopes, str) else Candidate(own, True, place, (node.name,), slopes)
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
        found: dict[str, str] = {}
        before = dict(self.sites)
        for layout, error in (each for one in self.flows for each in one.stuck):
            for name in layout.sites & before.keys():
                if error.groups and self._regroup(before[name], error.groups):
                    found.setdefault("", "")  # nothing is dropped, but the channels have moved
                else:
                    found[name] = str(error)
        reads: dict[str, Layout] = {}
        for one in self.flows:
            for name, layout in one.reads.items():
                shared = self.network.shared(name)
                apart = name in reads and not reads[name].equals(layout)
                plain = any(name in other.unchanged for other in self.flows)
                if shared or apart or plain:
                    reason = f"the weights of {name} are also used elsewhere"
                    found.update(dict.fromkeys(layout.sites & self.sites.keys(), reason))
                reads[name] = layout
        return found

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
        if layer in self.sites:
            return {layer}
        return {
            site
            for found in self.flows
            for node, layout in found.layouts.items()
            if node.module == layer or node.module.startswith(f"{layer}.")
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
