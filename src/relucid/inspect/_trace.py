"""Find which weights feed which rectification, and through which norms, by running a network once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from relucid._torch import ConvNd
from relucid.inspect._statistics import squared_norms
from relucid.inspect.execution import Given, Method, Recording, record
from relucid.inspect.folding import AFFINE, FOLDED, VIEWS, Folded, fold, label
from relucid.inspect.operations import AVERAGES, PADS, SLICES, UPSAMPLINGS
from relucid.inspect.recorder import DATA, Node
from relucid.nn.kinds import WITHOUT_BOUNDARY, Kind
from relucid.nn.pairwise import Pairwise
from relucid.nn.propagation import Propagation
from relucid.printing import Summarized

# Operations, by ATen name, that a walk from a rectification back to its weights passes through.
PASSED = {
    *(FOLDED | SLICES | PADS | AVERAGES | UPSAMPLINGS),
    *("native_layer_norm", "native_group_norm", "_native_batch_norm_legit", "adaptive_max_pool2d"),
    *("narrow", "index", "cat", "stack", "repeat", "as_strided", "overwritten"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"),
}


@dataclass(frozen=True)
class Source:
    """Weight that feeds a rectification, as it was when the network ran."""

    name: str  #: the layer, or the parameter if a function uses it directly
    parameters: tuple[str, ...]  #: the weight's own name, or those of the parameters that it is computed from
    weight: Tensor  #: (filters, inputs per filter, ...)
    bias: Tensor | None  #: (filters,)
    groups: int
    is_convolution: bool
    through: tuple[str, ...]  #: operations between, in order of execution: norms, "add", pooling
    module: str = ""  #: the linear or convolution layer to name to `relucid.convert`, or ""


@dataclass(frozen=True)
class Rectified:
    """Rectification with the weights that feed it."""

    name: str
    layer: str  #: display name: that of the weights, or of the rectification if it has many or none
    activation: Kind  #: the activation, which tells where its units switch
    shape: tuple[int, ...]  #: shape of the rectified value on the example
    channel_dim: int  #: the dimension of ``shape`` that holds the units
    doubled: int  #: number of leading units that keep both phases (CReLU)
    sources: tuple[Source, ...]
    adds: tuple[str, ...]  #: other terms of the rectified sum: earlier rectifications, the input
    readers: tuple[Source, ...]  #: weights that the rectified value is multiplied with next
    #: (units,): -1 for units that keep negative values (r max(s, 0) with r < 0); None if no unit does
    sign: Tensor | None
    #: (units,), if there is one source: sign * value - first boundary = scale * (weight . x + bias) + shift
    scale: Tensor | None
    shift: Tensor | None  #: (units,)
    obstacle: str  #: why ``scale`` and ``shift`` are None, or ""
    read_by_layers: bool  #: whether layers read its value, and nothing else does: no sum, no output
    calls: tuple[str, ...]  #: names of all its rectifications, if the same weights feed several

    @property
    def kind(self) -> str:
        """Name of the activation in `relucid.nn.kinds.KINDS`."""
        return self.activation.name

    @property
    def units(self) -> int:
        """Number of rectified units."""
        return self.shape[self.channel_dim] if self.shape else 1

    @property
    def modules(self) -> tuple[str, ...]:
        """Layers that feed it, by the names that `relucid.convert` takes; empty if any of them has no such name."""
        names = tuple(dict.fromkeys(source.module for source in self.sources))
        return names if all(names) else ()

    @property
    def noun(self) -> str:
        """What an input is called: a map of two dimensions comes from an image."""
        return "images" if len(self.shape) == 4 and self.channel_dim == 1 else "inputs"

    def oriented(self, value: Tensor) -> Tensor:
        """Normalize a ``value`` of a run, so that its units switch at 0 and are active above it."""
        if value.dim() != len(self.shape):
            raise ValueError(
                f"{self.name} receives {value.dim()} dimensions on the data, but {len(self.shape)} on the example: "
                "give an example with the data's shape"
            )
        units = value.narrow(self.channel_dim, 0, self.units)  # a CReLU may show both x and -x
        if self.sign is not None:
            units = units * self.sign.to(units).view(-1, *[1] * (units.dim() - self.channel_dim - 1))
        first = self.activation.boundaries[0]
        return units if first == 0 else units - first

    def both_phases(self, value: Tensor, output: Tensor) -> Tensor:
        """The ``output`` of a run; of a CReLU of two operations, of which the first was seen, with the second's."""
        dim = self.channel_dim
        if not self.doubled or output.shape[dim] > self.units:
            return output
        return torch.cat([output, (-value.narrow(dim, 0, self.doubled)).relu()], dim)

    def by_unit(self, value: Tensor) -> Tensor:
        """The `oriented` value as (units, places)."""
        return self.oriented(value).movedim(self.channel_dim, 0).flatten(1)

    @cached_property
    def planes(self) -> tuple[Tensor, Tensor]:
        """(lambda, |w|) of every unit with norms folded in, in float64: (units,) each."""
        if self.scale is None or self.shift is None:
            raise ValueError(f"{self.name} does not rectify a single affine map: {self.obstacle}")
        source = self.sources[0]
        norms = (
            squared_norms(source.weight.flatten(1), 1).cpu().double().sqrt()
        )  # not every device has float64
        scale, shift = self.scale.to(norms), self.shift.to(norms)
        lengths = scale.abs() * norms
        offset = shift if source.bias is None else shift + scale * source.bias.cpu().double()
        return (offset / lengths).masked_fill(lengths == 0, torch.nan), lengths

    def folded(self) -> tuple[Tensor, Tensor]:
        """(weight, bias) with norms folded in: units switch exactly where weight . x + bias = 0."""
        if self.scale is None or self.shift is None:
            raise ValueError(f"{self.name} does not rectify a single affine map: {self.obstacle}")
        source = self.sources[0]
        scale, shift = self.scale.to(source.weight.device), self.shift.to(source.weight.device)
        weight = source.weight.double() * scale.view(-1, *[1] * (source.weight.dim() - 1))
        bias = shift if source.bias is None else shift + scale * source.bias.double()
        return weight.to(source.weight.dtype), bias.to(source.weight.dtype)


@dataclass(frozen=True)
class Trace(Summarized):
    """Rectifications of a network in order of execution, and what could not be attributed to any of them."""

    rectified: tuple[Rectified, ...]
    unattributed: tuple[tuple[str, str], ...]  #: (weight, activation or rectification; reason)

    def summary(self) -> str:
        """One line per rectification, then one per name that could not be attributed."""
        lines = []
        for r in self.rectified:
            fed = ", ".join(" -> ".join((s.name, *s.through)) for s in r.sources) or "no weight"
            lines.append(f"{r.name} ({r.kind}) <- {fed}" + (f" [{r.obstacle}]" if r.obstacle else ""))
        return "\n".join(lines + [f"{name}: {reason}" for name, reason in self.unattributed])


def trace(model: nn.Module, example: Given, *, call: Method | None = None) -> Trace:
    """Find every rectification that ``model`` executes on ``example``, with the weights that feed it.

    The network runs once in eval mode and is left unchanged.

    Args:
        model: Any network.
        example: An input: a tensor, a tuple of positional arguments or a mapping of keyword arguments.
        call: How the network is used, if not through its forward: a method's name, or a function of both.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    >>> print(trace(net, torch.zeros(1, 3, 8, 8)).summary())
    2 (relu) <- 0 -> 1
    4: feeds the output
    """
    if any(map(is_lazy, model.parameters())):
        raise ValueError(
            "the network has lazy layers, whose weights have no shape yet: run it on an input first"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError("the network has weights without values, on the meta device: load them first")
    recording = record(model, example, call=call)
    nodes = recording.nodes
    readers = _readers(nodes)
    by_call = [_attribute(node, node.kind, readers[node], recording) for node in nodes if node.kind]
    rectified = _with_modules(_distinct(_joined(by_call)), model)
    fed = {source.name for r in by_call for source in r.sources}
    unattributed = [(r.name, r.obstacle) for r in rectified if not r.sources]
    unattributed += _unrectified(recording, fed)
    unattributed += _activations(nodes)
    unattributed += _elsewhere(nodes, [name for name, p in model.named_parameters() if p.dim() > 1])
    once = {(base_name(name), reason): (name, reason) for name, reason in reversed(unattributed)}
    return Trace(rectified, tuple(reversed(once.values())))


def base_name(name: str) -> str:
    """A name without the number of the call, by which a layer that is used again is told from its first use."""
    return name.partition("#")[0]


def _joined(by_call: list[Rectified]) -> list[Rectified]:
    """The rectifications, with those of the same weights through the same operations as one."""
    groups: dict[object, list[Rectified]] = {}
    for r in by_call:
        sources = tuple((base_name(s.name), tuple(map(base_name, s.through))) for s in r.sources)
        affine = tuple(None if x is None else tuple(x.tolist()) for x in (r.scale, r.shift))
        form = r.activation, r.channel_dim, len(r.shape), r.units, r.doubled
        groups.setdefault(
            (base_name(r.name), sources, tuple(map(base_name, r.adds)), affine, form), []
        ).append(r)
    return [
        replace(
            group[0],
            calls=tuple(r.name for r in group),
            readers=tuple({s.name: s for r in group for s in r.readers}.values()),
            read_by_layers=all(r.read_by_layers for r in group),
        )
        for group in groups.values()
    ]


def _with_modules(rectified: tuple[Rectified, ...], model: nn.Module) -> tuple[Rectified, ...]:
    """Fill in `Source.module`, the names by which conversions know weights."""
    modules = dict(model.named_modules())
    closed = tuple(f"{name}." if name else "" for name, m in modules.items() if _is_closed(m))
    plain = {n for n, m in modules.items() if isinstance(m, nn.Linear | ConvNd) and not n.startswith(closed)}

    def named(source: Source) -> Source:
        name = base_name(source.name)
        return replace(source, module=name) if name in plain else source

    return tuple(
        r if r.name.startswith(closed) else replace(r, sources=tuple(map(named, r.sources)))
        for r in rectified
    )


def _is_closed(module: nn.Module) -> bool:
    """Whether conversions treat a module as a whole, so that its layers cannot be named."""
    return isinstance(module, Pairwise) or (isinstance(module, Propagation) and module.reversible)


def _distinct(rectified: list[Rectified]) -> tuple[Rectified, ...]:
    """Make display names unique: if a layer is rectified more than once, add the name of the rectification."""
    times = Counter(r.layer for r in rectified)
    return tuple(replace(r, layer=f"{r.layer} ({r.name})") if times[r.layer] > 1 else r for r in rectified)


def _readers(nodes: list[Node]) -> dict[Node, list[Source]]:
    """The weights that the value of every rectification is multiplied with next."""
    readers: dict[Node, list[Source]] = defaultdict(list)
    for node in (node for node in nodes if node.has_weight):
        for end in _walk(node.upstream[0])[1]:
            readers[end].append(_source(node, ()))
    return readers


def _attribute(node: Node, kind: Kind, readers: list[Source], recording: Recording) -> Rectified:
    """A rectification with the weights that feed it."""
    paths, ends = _walk(node.rectified)
    sources = tuple(_source(origin, path) for origin, path in paths)
    adds = tuple(end.name or f"{end.op} in {end.module or 'the network'}" for end in ends)
    folded: Folded | str = f"a sum of {len(sources) + len(ends)} branches"
    if len(paths) == 1 and not ends:
        folded = fold(*paths[0])
    elif not sources:
        folded = f"no weight feeds it, only {', '.join(adds)}"
    shape, sign = node.rectified.shape, node.sign
    names = [source.name for source in sources]
    affine = folded if isinstance(folded, Folded) else None
    dim = affine.dim if affine else _likely_dim(shape, sources)
    return Rectified(
        name=node.name,
        layer=" + ".join(names) if 0 < len(names) < 4 else node.name,
        activation=kind,
        shape=shape,
        channel_dim=dim,
        doubled=node.phases[dim] if kind.doubled else 0,
        sources=sources,
        adds=adds,
        readers=tuple(readers),
        sign=sign,
        scale=affine and affine.scale * (1 if sign is None else sign),
        shift=affine and affine.shift * (1 if sign is None else sign) - kind.boundaries[0],
        obstacle="" if isinstance(folded, Folded) else folded,
        read_by_layers=_is_read_by_layers(node, recording),
        calls=(node.name,),
    )


def _is_read_by_layers(node: Node, recording: Recording) -> bool:
    """Whether products with weights read a value, and no sum, other product or output does."""
    for value, reader in _reached(node, recording.readers):
        if reader is None or value in recording.outputs:
            return False
        is_sum = reader.op in AFFINE and len(reader.upstream) > 1
        if not reader.has_weight and (is_sum or not _passes(reader)):
            return False
    return True


def _reached(start: Node, readers: dict[Node, list[Node]]) -> Iterator[tuple[Node, Node | None]]:
    """Yield a value and what reads it, None if nothing does, and so on through norms, pooling and sums."""
    stack, seen = [start], {start}
    while stack:
        value = stack.pop()
        following = readers.get(value, [])
        if not following:
            yield value, None
        yield from ((value, reader) for reader in following)
        passed = [reader for reader in following if reader not in seen and _passes(reader)]
        seen.update(passed)
        stack += passed


def _likely_dim(shape: tuple[int, ...], sources: tuple[Source, ...]) -> int:
    """Guess the dimension of the units: 1 for a map, otherwise the last."""
    is_map = sources[0].is_convolution if sources else len(shape) > 2
    return 1 if is_map and len(shape) > 1 else len(shape) - 1


def _walk(start: Node) -> tuple[list[tuple[Node, tuple[Node, ...]]], list[Node]]:
    """Walk back from ``start``; return ([(product with a weight, operations after it)], [other origins])."""
    paths: list[tuple[Node, tuple[Node, ...]]] = []
    ends: list[Node] = []
    stack: list[tuple[Node, tuple[Node, ...]]] = [(start, ())]
    seen: set[Node] = set()
    while stack:
        node, path = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.has_weight:
            paths.append((node, path))
        elif _passes(node):
            stack.extend((n, (node, *path)) for n in reversed(node.upstream))
        elif (node.twin or node) not in ends:
            ends.append(node.twin or node)
    return paths, ends


def origins(node: Node) -> tuple[tuple[str, ...], bool]:
    """The names of the weights that feed an activation, and whether their products are maps of channels."""
    paths, _ = _walk(node.rectified if node.kind else node.upstream[0])
    return tuple(origin.name for origin, _ in paths), bool(paths) and paths[0][0].op == "convolution"


def _passes(node: Node) -> bool:
    """Whether an operation passes its inputs on, linearly apart from norms and pooling."""
    product = node.op in {"mul", "div"} and len(node.upstream) > 1
    return node.op in PASSED and not node.kind and not product


def _source(node: Node, path: tuple[Node, ...]) -> Source:
    """The weight of a product, with filters in the first dimension."""
    _, args, _ = node.call
    between = (n for n in path if n.op not in VIEWS and not (n.leaf and n.module == node.module))
    through = tuple(dict.fromkeys(label(n) for n in between))
    parameters = tuple(sorted(frozenset().union(*(n.parameters for n in node.inputs if not n.data))))
    if node.op == "convolution":
        weight, transposed, groups = args[1], args[6], args[8]
        bias = None if args[2] is None else args[2].detach()
        if transposed:
            weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        return Source(node.name, parameters, weight.detach(), bias, groups, True, through)
    if node.op == "linear":
        _, weight, bias = (*args, None)[:3]
    else:
        (first, second), bias = (args[1:3], args[0]) if node.op in {"addmm", "baddbmm"} else (args[:2], None)
        weight = first if second is DATA else second.mT
        weight = weight.flatten(0, -2)
    bias = None if bias is None else bias.detach()
    return Source(node.name, parameters, weight.detach(), bias, 1, False, through)


def _unrectified(recording: Recording, fed: set[str]) -> list[tuple[str, str]]:
    """The weights that feed no rectification, with what they feed instead."""
    reasons = []
    for node in (node for node in recording.nodes if node.has_weight and node.name not in fed):
        readers = _feeds(node, recording.readers)
        more = f" and {len(readers) - 3} more" if len(readers) > 3 else ""
        reasons.append((node.name, f"feeds {', '.join(readers[:3])}{more}"))
    return reasons


def _feeds(node: Node, readers: dict[Node, list[Node]]) -> list[str]:
    """The names of the operations that a value reaches, passing through norms and sums."""
    reached: dict[str, None] = {}  # an ordered set
    for _, reader in _reached(node, readers):
        if reader is None:
            reached["the output"] = None
        elif reader.has_weight:
            reached[f"{base_name(reader.name)} without a rectification"] = None
        elif not _passes(reader):
            reached[reader.op + ("" if reader.op in WITHOUT_BOUNDARY else " (not known to rectify)")] = None
    return list(reached)


def _activations(nodes: list[Node]) -> list[tuple[str, str]]:
    """The activations that are not rectifications."""
    reason = "is not among the activations whose boundaries are examined"
    return [
        (node.module or "the network", f"{node.op} {reason}")
        for node in nodes
        if node.op in WITHOUT_BOUNDARY and not node.kind and not node.twin and node.data
    ]


def _elsewhere(nodes: list[Node], weights: list[str]) -> list[tuple[str, str]]:
    """The weights that are not a factor of any recorded product, with the operation that uses them."""
    products: set[str] = set()
    users: dict[str, str] = {}
    for node in (node for node in nodes if node.data):
        used = frozenset().union(*(n.parameters for n in node.inputs if not n.data))
        products |= used if node.has_weight else set()
        users |= dict.fromkeys(used, node.op)
    reasons = {name: f"used by {op}, which is not taken apart" for name, op in users.items()}
    return [(name, reasons.get(name, "not used on this example")) for name in weights if name not in products]
