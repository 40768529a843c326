"""How channels flow: what becomes of the readers of a value when its channels are doubled, reordered or scaled.

A conversion changes the channels of some values. Every operation that follows is of one of three kinds: it hands
channels on one by one (pooling, dropout, flatten, concatenation, ...), it mixes them by a weight, which can
be rewritten for the new channels (linear, convolution) or by a norm with an entry for each, or it is none of
these, and is given the old channels back.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from relucid.convert.graph import add_buffer, is_alone, is_norm, is_plain, is_transposed, module_of
from relucid.nn import AVR, MeanNorm
from relucid.nn.geometric import _Geometric


@dataclass(frozen=True, eq=False)
class Layout:
    """How the old channels of a value are found in its new ones: old[origin[m]] = scale[m] * new[m].

    A scale of 0 is that of a channel which is not one of the old ones.
    """

    dim: int  #: the dimension of the value that holds the channels
    origin: Tensor  #: (new channels,)
    scale: Tensor  #: (new channels,), float64

    @staticmethod
    def same(size: int, dim: int) -> "Layout":
        """The layout in which nothing has changed."""
        return Layout(dim, torch.arange(size), torch.ones(size, dtype=torch.float64))

    @property
    def keep(self) -> Tensor:
        """Where the old channels are, in their order."""
        positions = self.scale.nonzero().flatten()
        return positions[self.origin[positions].argsort()]

    @property
    def is_binary(self) -> bool:
        """Whether old channels are found as they were, so that any function of them may follow."""
        return bool(((self.scale == 0) | (self.scale == 1)).all())

    @property
    def is_positive(self) -> bool:
        """Whether no channel has changed its sign, so that maxima stay maxima."""
        return bool((self.scale >= 0).all())

    def at(self, dim: int) -> "Layout":
        """The same with the channels in another dimension."""
        return Layout(dim, self.origin, self.scale)


@dataclass(frozen=True)
class Flow:
    """What changed channels meet on their way."""

    layouts: dict[Node, Layout] = field(default_factory=dict)  #: of all values with changed channels
    absorbed: dict[Node, Tensor] = field(
        default_factory=dict
    )  #: weights and norms to rewrite: order of channels
    restored: list[tuple[Node, Node]] = field(
        default_factory=list
    )  #: (reader, value): reads the old channels
    flattened: list[Node] = field(default_factory=list)  #: views that are written as flatten

    def read(self, net: fx.GraphModule) -> set[Node]:
        """The values whose changed channels end in a weighted layer."""
        found: set[Node] = set()
        for node in reversed(list(self.layouts)):
            for user in node.users:
                absorbs = user in self.absorbed and is_plain(module_of(net, user))
                if absorbs or user in found:
                    found.add(node)
        return found

    def weights(self, net: fx.GraphModule) -> list[Node]:
        """The weighted layers that read the changed channels."""
        return [node for node in self.absorbed if is_plain(module_of(net, node))]


# Operations on one channel at a time: linear ones, those that commute with positive scales, and all others.
LINEAR: set[Any] = {
    *(nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Upsample),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.UpsamplingNearest2d),
    *(
        nn.ReflectionPad1d,
        nn.ReflectionPad2d,
        nn.ReplicationPad1d,
        nn.ReplicationPad2d,
        nn.UpsamplingBilinear2d,
    ),
    *(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d),
    *(
        F.adaptive_avg_pool3d,
        torch.adaptive_avg_pool1d,
        F.interpolate,
        F.dropout,
        "contiguous",
        "clone",
        "detach",
    ),
}
HOMOGENEOUS: set[Any] = {
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.ReLU, nn.LeakyReLU, AVR, F.leaky_relu, torch.abs, "abs"),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d, torch.max_pool2d),
    *(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d),
}
ELEMENTWISE: set[Any] = {
    *(nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.SiLU, nn.GELU, nn.ELU),
    *(F.relu6, F.hardtanh, F.hardswish, F.hardsigmoid, torch.sigmoid, torch.tanh, F.silu, F.gelu, F.elu),
    *("sigmoid", "tanh"),
}
FLATTEN: set[Any] = {nn.Flatten, torch.flatten, "flatten", "view", "reshape", torch.reshape}


def mark_channels(net: fx.GraphModule) -> None:
    """Say of every value in which dimension its units are, by the layer that it comes from, if that is clear."""
    for node in net.graph.nodes:
        node.meta["channels"] = _channel_dim(net, node)


def channel_dim(net: fx.GraphModule, node: Node) -> int | None:
    """The dimension in which the units of a value are, by the layer that it comes from; None if it is not clear."""
    if "channels" not in node.meta:
        node.meta["channels"] = _channel_dim(net, node)
    dim: int | None = node.meta["channels"]
    return dim


def _channel_dim(net: fx.GraphModule, node: Node) -> int | None:
    shape = node.meta.get("shape", ())
    module = module_of(net, node)
    if isinstance(module, nn.Linear) or getattr(module, "spatial", None) == 0:
        return len(shape) - 1
    if isinstance(module, _ConvNd | _Geometric):
        return len(shape) - 1 - (module.weight.dim() - 2)
    if isinstance(module, _BatchNorm | nn.GroupNorm | MeanNorm):
        return 1
    before = [n for n in node.all_input_nodes if len(n.meta.get("shape", ())) == len(shape)]
    found = {channel_dim(net, n) for n in before}
    return found.pop() if len(found) == 1 else None


def flow(net: fx.GraphModule, starts: Mapping[Node, Layout]) -> Flow:
    """What the changed channels of some values meet; nothing is changed yet.

    A start whose own input has changed channels is no start.
    """
    found = Flow()
    for node in net.graph.nodes:
        given = {n: found.layouts[n] for n in node.all_input_nodes if n in found.layouts}
        if not given:
            pass
        elif node.meta.get("aliased"):
            found.restored.extend((node, n) for n in given)
        elif len(given) == 1 and (order := _order(net, node, next(iter(given.values())))) is not None:
            found.absorbed[node] = order
            if not is_plain(module_of(net, node)):
                found.layouts[node] = _after_norm(net, node, next(iter(given.values())))
        elif (carried := _carried(net, node, given)) is not None:
            found.layouts[node] = carried
            if key(net, node) in FLATTEN and node.op != "call_module":
                found.flattened.append(node)
        else:
            found.restored.extend((node, n) for n in given)
        if node in starts and not given:
            found.layouts[node] = starts[node]
    return found


def key(net: fx.GraphModule, node: Node) -> Any:
    """What a node calls: a class of modules, a function, or the name of a method."""
    module = module_of(net, node)
    return node.target if module is None else type(module)


def _order(net: fx.GraphModule, node: Node, layout: Layout) -> Tensor | None:
    """The order in which a weight or norm takes the new channels, or None if it cannot be rewritten."""
    module = module_of(net, node)
    if module is None or not is_alone(node):
        return None
    dims = len(node.all_input_nodes[0].meta["shape"])
    as_it_is = torch.arange(len(layout.origin))
    if is_norm(module) or isinstance(module, MeanNorm):
        scaled = isinstance(module, MeanNorm) or module.weight is not None
        return as_it_is if layout.dim == 1 and (scaled or layout.is_binary) else None
    if isinstance(module, nn.Linear) and is_plain(module):
        return as_it_is if layout.dim == dims - 1 else None
    if isinstance(module, _ConvNd) and is_plain(module) and layout.dim == dims + 1 - module.weight.dim():
        group = layout.origin // (module.in_channels // module.groups)
        equal = group.bincount(minlength=module.groups).unique().numel() == 1
        return group.argsort(stable=True) if equal else None
    return None


def _after_norm(net: fx.GraphModule, node: Node, layout: Layout) -> Layout:
    """A batch norm takes up all scales, a mean norm none."""
    if isinstance(module_of(net, node), MeanNorm):
        return layout
    return Layout(layout.dim, layout.origin, (layout.scale != 0).double())


def _carried(net: fx.GraphModule, node: Node, given: Mapping[Node, Layout]) -> Layout | None:
    """The layout of an operation's value, if it hands channels on one by one."""
    if node.target in (torch.cat, torch.concat):
        return _concatenated(node, given)
    first = node.args[0] if node.args else None
    if len(given) > 1 or first not in given or "shape" not in node.meta:
        return None
    assert isinstance(first, Node)
    layout, called = given[first], key(net, node)
    shape, out = first.meta["shape"], node.meta["shape"]
    if (
        called in LINEAR
        or (called in HOMOGENEOUS and layout.is_positive)
        or (called in ELEMENTWISE and layout.is_binary)
    ):
        return layout if len(shape) == len(out) and shape[layout.dim] == out[layout.dim] else None
    if called is F.pad:
        return layout if _pads_places(node, len(shape) - layout.dim) else None
    if called in FLATTEN:
        return _flattened(layout, shape, out)
    return _moved(node, layout, shape, out)


def _pads_places(node: Node, dims: int) -> bool:
    """Whether a call of F.pad leaves channels alone and fills with zeros or copies."""
    values = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | dict(node.kwargs)
    pad, constant = values["pad"], values.get("mode", "constant") == "constant"
    return isinstance(pad, list | tuple) and len(pad) < 2 * dims and not (constant and values.get("value"))


def _flattened(layout: Layout, shape: tuple[int, ...], out: tuple[int, ...]) -> Layout | None:
    """Channel c at place p of (N, A, C, B) becomes feature (a C + c) B + b of (N, A C B)."""
    if len(out) != 2 or out[0] != shape[0] or layout.dim == 0:
        return None
    outer, size, inner = (
        math.prod(shape[1 : layout.dim]),
        shape[layout.dim],
        math.prod(shape[layout.dim + 1 :]),
    )
    a, b = torch.arange(outer).view(-1, 1, 1), torch.arange(inner)
    origin = (a * size + layout.origin.view(-1, 1)) * inner + b
    return Layout(1, origin.flatten(), layout.scale.view(-1, 1).expand_as(origin).flatten())


def _moved(node: Node, layout: Layout, shape: tuple[int, ...], out: tuple[int, ...]) -> Layout | None:
    """The layout after an operation that moves, drops or cuts other dimensions than that of the channels."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    rest = list(node.args[1:]) or list(node.kwargs.values())
    dims = len(shape)
    if name == "permute":
        order = [d % dims for d in _ints(rest)]
        return layout.at(order.index(layout.dim))
    if name == "transpose" and len(rest) == 2:
        a, b = (d % dims for d in _ints(rest))
        return layout.at({a: b, b: a}.get(layout.dim, layout.dim))
    if name in ("mean", "squeeze") and rest:
        dropped = {d % dims for d in _ints(rest[:1])}
        if layout.dim in dropped:
            return None
        return layout if len(out) == dims else layout.at(layout.dim - sum(d < layout.dim for d in dropped))
    if node.target is operator.getitem:
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        whole = layout.dim >= len(index) or index[layout.dim] == slice(None)
        return layout if whole and all(isinstance(i, slice) for i in index) else None
    return None


def _ints(values: list[Any]) -> list[int]:
    flat = [v for value in values for v in (value if isinstance(value, list | tuple) else [value])]
    return [v for v in flat if type(v) is int]


def _concatenated(node: Node, given: Mapping[Node, Layout]) -> Layout | None:
    """The layouts one after the other, if the channels are what is concatenated."""
    parts = node.args[0] if node.args else node.kwargs["tensors"]
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if not isinstance(parts, list | tuple) or not isinstance(dim, int):
        return None
    dim %= len(node.meta["shape"])
    if any(layout.dim != dim for layout in given.values()):
        return None
    origins, scales, before = [], [], 0
    for part in parts:
        assert isinstance(part, Node)
        size = part.meta["shape"][dim]
        layout = given.get(part) or Layout.same(size, dim)
        origins.append(layout.origin + before)
        scales.append(layout.scale)
        before += size
    return Layout(dim, torch.cat(origins), torch.cat(scales))


def apply(net: fx.GraphModule, found: Flow) -> None:
    """Rewrite weights and norms for the changed channels, and give the old ones back where neither can be."""
    for node in found.flattened:
        node.op, node.target = "call_function", torch.flatten
        node.args, node.kwargs = (node.args[0], 1), {}
    for node, order in found.absorbed.items():
        value, module = node.all_input_nodes[0], module_of(net, node)
        assert module is not None
        layout = _reorder(net, node, value, found.layouts[value], order)
        (rewrite_weight if is_plain(module) else _rewrite_norm)(module, layout)
    back: dict[Node, Node] = {}
    for reader, value in found.restored:
        if value not in back:
            back[value] = _restore(net, value, found.layouts[value])
        reader.replace_input_with(value, back[value])


def _reorder(net: fx.GraphModule, node: Node, value: Node, layout: Layout, order: Tensor) -> Layout:
    """Bring the channels of each group together before a grouped convolution; their layout."""
    if torch.equal(order, torch.arange(len(order))):
        return layout
    index = add_buffer(net, f"{node.target}_order", order)
    with net.graph.inserting_before(node):
        picked = net.graph.call_function(torch.index_select, (value, layout.dim, net.graph.get_attr(index)))
    node.replace_input_with(value, picked)
    return Layout(layout.dim, layout.origin[order], layout.scale[order])


def _restore(net: fx.GraphModule, value: Node, layout: Layout) -> Node:
    """A node with the old channels of a value."""
    graph, keep = net.graph, layout.keep
    in_order = torch.equal(keep, torch.arange(len(keep)))
    scale = layout.scale[keep]
    with graph.inserting_before(value.next):
        old = value
        if not in_order:
            index = graph.get_attr(add_buffer(net, f"{value.name}_channels", keep))
            old = graph.call_function(torch.index_select, (value, layout.dim, index))
        elif len(keep) < len(layout.origin):
            old = graph.call_method("narrow", (value, layout.dim, 0, len(keep)))
        if not bool((scale == 1).all()):
            shape = (-1, *[1] * (len(value.meta["shape"]) - 1 - layout.dim))
            factor = add_buffer(net, f"{value.name}_scale", scale.view(shape).to(value.meta["dtype"]))
            old = graph.call_function(torch.mul, (old, graph.get_attr(factor)))
    return old


@torch.no_grad()
def rewrite_weight(module: nn.Module, layout: Layout) -> None:
    """Give a weight an entry for each new channel: that of the old one, times its scale."""
    assert isinstance(module, nn.Linear | _ConvNd)
    weight, size = module.weight, len(layout.origin)
    origin, scale = layout.origin.to(weight.device), layout.scale.to(weight.device, weight.dtype)
    if is_transposed(module):
        new = weight[origin] * scale.view(-1, *[1] * (weight.dim() - 1))
    else:
        groups = module.groups if isinstance(module, _ConvNd) else 1
        local = origin.view(groups, -1) % weight.shape[1]
        parts = weight.unflatten(0, (groups, -1))
        shape = (1, -1, *[1] * (weight.dim() - 2))
        columns = zip(parts, local, scale.view(groups, -1), strict=True)
        new = torch.cat([part[:, index] * s.view(shape) for part, index, s in columns])
    module.weight = nn.Parameter(new.contiguous(), weight.requires_grad)
    setattr(module, "in_features" if isinstance(module, nn.Linear) else "in_channels", size)


@torch.no_grad()
def _rewrite_norm(module: nn.Module, layout: Layout) -> None:
    """Give a norm an entry for each new channel; one that is not old is left as it is by it."""
    assert isinstance(module, _BatchNorm | MeanNorm)
    assert module.running_mean is not None
    mean = module.running_mean
    origin, scale = layout.origin.to(mean.device), layout.scale.to(mean)
    fresh, divisor = scale == 0, torch.where(scale == 0, 1, scale)
    module.num_features = len(origin)
    module.running_mean = torch.where(fresh, 0, mean[origin] / divisor)
    if isinstance(module, MeanNorm):
        if module.bias is not None:
            bias = torch.where(fresh, 0, module.bias[origin] / divisor)
            module.bias = nn.Parameter(bias, module.bias.requires_grad)
        return
    assert module.running_var is not None
    module.running_var = torch.where(fresh, 1, module.running_var[origin])
    if module.weight is not None:
        weight = torch.where(fresh, 1, module.weight[origin] * scale)
        module.weight = nn.Parameter(weight, module.weight.requires_grad)
        module.bias = nn.Parameter(torch.where(fresh, 0, module.bias[origin]), module.bias.requires_grad)
