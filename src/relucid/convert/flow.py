"""How changed channels flow through a network, when a conversion doubles, reorders or scales them.

An operation that reads changed channels is one of three kinds. It hands them on one by one (pooling, dropout, flatten,
concatenation). It has entries per channel that can be rewritten for the new channels (linear layers, convolutions,
norms). Or it is neither, and is given the old channels.
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

from relucid.convert.graph import is_alone, is_norm, is_plain, kind_at, module_of
from relucid.convert.layout import Layout
from relucid.nn import MeanNorm
from relucid.nn.geometric import _Geometric


@dataclass(frozen=True)
class Flow:
    """What happens to changed channels downstream."""

    layouts: dict[Node, Layout] = field(default_factory=dict)  #: of all values with changed channels
    absorbed: dict[Node, Tensor] = field(
        default_factory=dict
    )  #: weights and norms to rewrite: order of channels
    restored: list[tuple[Node, Node]] = field(
        default_factory=list
    )  #: (reader, value): reads the old channels
    flattened: list[Node] = field(default_factory=list)  #: views that are written as flatten

    def read(self, net: fx.GraphModule) -> set[Node]:
        """Return the values whose changed channels reach a weighted layer."""
        found: set[Node] = set()
        for node in reversed(list(self.layouts)):
            for user in node.users:
                absorbs = user in self.absorbed and is_plain(module_of(net, user))
                if absorbs or user in found:
                    found.add(node)
        return found

    def stopped(self, start: Node) -> list[Node]:
        """Return the nodes that must be given a start's old channels, directly or behind others that take the new."""
        values, stack = {start}, [start]
        while stack:
            new = [user for user in stack.pop().users if user in self.layouts and user not in values]
            values.update(new)
            stack.extend(new)
        return [reader for reader, value in self.restored if value in values]

    def weights(self, net: fx.GraphModule) -> list[Node]:
        """Return the weighted layers that read changed channels."""
        return [node for node in self.absorbed if is_plain(module_of(net, node))]


# Operations on each channel alone: linear ones, those that commute with positive scales, and others.
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
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d, torch.max_pool2d),
    *(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d),
}
ELEMENTWISE: set[Any] = {
    *(
        nn.Hardswish,
        nn.Hardsigmoid,
        nn.Sigmoid,
        nn.Tanh,
        nn.SiLU,
        nn.GELU,
        nn.ELU,
        nn.SELU,
        nn.Mish,
        nn.Softplus,
    ),
    *(F.hardswish, F.hardsigmoid, F.sigmoid, F.tanh, F.silu, F.gelu, F.elu, F.selu, F.mish, F.softplus),
    *(torch.sigmoid, torch.tanh, "sigmoid", "tanh"),
}
# Norms whose value in one channel depends on the other channels.
MIXING: set[Any] = {nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm}
MIXING |= {F.layer_norm, F.group_norm, F.rms_norm, F.local_response_norm, torch.layer_norm, torch.group_norm}
DROPOUTS: set[Any] = {nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, F.dropout}
FLATTEN: set[Any] = {nn.Flatten, torch.flatten, "flatten", "view", "reshape", torch.reshape}


def mark_channels(net: fx.GraphModule) -> None:
    """Note for every value which dimension holds its channels."""
    for node in net.graph.nodes:
        node.meta["channels"] = _channel_dim(net, node)


def channel_dim(net: fx.GraphModule, node: Node) -> int | None:
    """Return the dimension that holds the channels of a value, by the layer it comes from; None if not clear."""
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
    """Return what happens downstream when the channels of ``starts`` change; the network is not modified.

    A start that hands on channels that have changed already does not change them again.
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
        if node in starts and node not in found.layouts:
            found.layouts[node] = starts[node]
    return found


def key(net: fx.GraphModule, node: Node) -> Any:
    """Return what a node calls: a class of modules, a function or the name of a method; None for a kept module."""
    if node.op != "call_module":
        return node.target
    module = module_of(net, node)
    return None if module is None else type(module)


def _order(net: fx.GraphModule, node: Node, layout: Layout) -> Tensor | None:
    """Return the order in which a weight or norm takes the new channels; None if it cannot be rewritten."""
    module = module_of(net, node)
    if module is None or not is_alone(node):
        return None
    dims = len(node.all_input_nodes[0].meta["shape"])
    as_it_is = torch.arange(len(layout.origin))
    if is_norm(module) or isinstance(module, MeanNorm):
        scaled = isinstance(module, MeanNorm) or module.weight is not None
        takes = layout.is_binary or (scaled and not layout.is_split)
        return as_it_is if layout.dim == 1 and takes else None
    if isinstance(module, nn.Linear) and is_plain(module):
        return as_it_is if layout.dim == dims - 1 else None
    if isinstance(module, _ConvNd) and is_plain(module) and layout.dim == dims + 1 - module.weight.dim():
        group = layout.origin // (module.in_channels // module.groups)
        equal = group.bincount(minlength=module.groups).unique().numel() == 1
        return group.argsort(stable=True) if equal else None
    return None


def _after_norm(net: fx.GraphModule, node: Node, layout: Layout) -> Layout:
    """Return the layout after a norm: a batch norm absorbs all scales, a mean norm none."""
    if isinstance(module_of(net, node), MeanNorm):
        return layout
    return Layout(layout.dim, layout.origin, (layout.scale != 0).double())


def _carried(net: fx.GraphModule, node: Node, given: Mapping[Node, Layout]) -> Layout | None:
    """Return the layout of an operation's value if it hands channels on one by one, else None."""
    if node.target in (torch.cat, torch.concat):
        return _concatenated(node, given)
    first = node.args[0] if node.args else None
    if len(given) > 1 or first not in given or "shape" not in node.meta:
        return None
    assert isinstance(first, Node)
    layout, called = given[first], key(net, node)
    shape, out = first.meta["shape"], node.meta["shape"]
    if layout.dim < len(shape) - _places(called, len(shape)) and _hands_on(net, node, layout):
        return layout if len(shape) == len(out) and shape[layout.dim] == out[layout.dim] else None
    if called is F.pad:
        return layout if _pads_places(node, len(shape) - layout.dim) else None
    if called in FLATTEN:
        return _flattened(layout, shape, out)
    return _moved(node, layout, shape, out)


def _places(called: Any, dims: int) -> int:
    """Return how many of the last dimensions an operation takes for places: pooling over channels mixes them."""
    if called in (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d, F.interpolate):
        return dims - 2
    name = getattr(called, "__name__", "")
    windowed = "pool" in name.lower() or "pad" in name.lower()
    return int(name[-2]) if windowed and name[-2:] in ("1d", "2d", "3d") else 0


def _hands_on(net: fx.GraphModule, node: Node, layout: Layout) -> bool:
    """Return whether an operation works on each channel alone, in a way that the layout allows."""
    called, kind = key(net, node), kind_at(net, node)
    if called in DROPOUTS and layout.is_split:
        return called in (nn.Dropout, F.dropout) and _has_one_phase(net, node.all_input_nodes[0])
    if isinstance(module_of(net, node), nn.RReLU):  # in training, it draws a slope for every entry
        return layout.is_binary
    if kind is not None:
        own_slopes = isinstance(module := module_of(net, node), nn.PReLU) and module.num_parameters > 1
        passes = layout.is_positive if kind.homogeneous else layout.is_binary
        return passes and not kind.doubled and not own_slopes and len(node.all_input_nodes) == 1
    if called in LINEAR:
        return True
    return layout.is_positive if called in HOMOGENEOUS else called in ELEMENTWISE and layout.is_binary


def _has_one_phase(net: fx.GraphModule, node: Node) -> bool:
    """Return whether one phase of each entry is 0, as it is after a rectification but not after pooling.

    Then it makes no difference whether a dropout drops the entry or draws for each of its phases.
    """
    while key(net, node) in {nn.Identity, nn.Dropout, F.dropout, *FLATTEN}:
        node = node.all_input_nodes[0]
    return kind_at(net, node) is not None


def _pads_places(node: Node, dims: int) -> bool:
    """Return whether a call of F.pad leaves channels alone and pads with zeros or copies."""
    values = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | dict(node.kwargs)
    pad, constant = values["pad"], values.get("mode", "constant") == "constant"
    return isinstance(pad, list | tuple) and len(pad) < 2 * dims and not (constant and values.get("value"))


def _flattened(layout: Layout, shape: tuple[int, ...], out: tuple[int, ...]) -> Layout | None:
    """Return the layout after flatten: channel c of (N, A, C, B) becomes the features (a C + c) B + b."""
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
    """Return the layout after an operation that moves, drops or cuts dimensions other than the channels'."""
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
    """Return the layouts one after the other, if values are concatenated along their channels."""
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
