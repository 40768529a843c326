"""How the changed channels of a value go through the operations that a network executes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relucid.convert.errors import ConversionError
from relucid.inspect.execution import Node
from relucid.inspect.operations import AVERAGES, BATCH_NORMS, COPIES, PADS, RESHAPES, SLICES, UPSAMPLINGS

# Operations by their ATen names. These treat every channel alike and are linear in it:
LINEAR = {"mul", "div", "neg", "native_dropout"} | COPIES | AVERAGES | UPSAMPLINGS | PADS
VIEWS = RESHAPES | SLICES | {"expand", "index_select"}
# These keep the order of values, so that they commute with a positive factor:
HOMOGENEOUS = {
    *("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("amax", "max"),
}
# These take one value at a time:
ELEMENTWISE = {
    *("abs", "add", "celu", "clamp", "clamp_min", "elu", "exp", "gelu", "hardshrink", "hardsigmoid"),
    *("hardswish", "hardtanh", "leaky_relu", "log", "mish", "pow", "relu", "rrelu_with_noise", "rsub"),
    *("sigmoid", "sign", "silu", "softplus", "softshrink", "sqrt", "square", "sub", "tanh", "threshold"),
    "_prelu_kernel",
}
REDUCTIONS = {"mean", "sum", "amax", "max"}
WORDS = {"add": "it is added to another value", "mul": "it is multiplied by another value"}


@dataclass(frozen=True, eq=False)
class Layout:
    """How the old channels of a value follow from its new ones: old[c] is the sum of scale[m] new[m], origin[m] = c.

    Usually one new channel has a scale other than 0. There are two where both phases of a unit make up its value.
    """

    dim: int  #: the dimension of the value that holds the channels
    origin: Tensor  #: (new channels,)
    scale: Tensor  #: (new channels,), float64
    sites: frozenset[str] = frozenset()  #: the modules whose change it results from

    @staticmethod
    def same(size: int, dim: int) -> Layout:
        """The layout in which nothing has changed."""
        return Layout(dim, torch.arange(size), torch.ones(size, dtype=torch.float64))

    @property
    def is_split(self) -> bool:
        """Whether the value of some old channel is spread over several new ones."""
        counts = self.origin[self.scale != 0].bincount()
        return bool(counts.numel()) and int(counts.max()) > 1

    @property
    def is_selection(self) -> bool:
        """Whether old channels are found as they were, so that any function of them may follow."""
        return bool(((self.scale == 0) | (self.scale == 1)).all()) and not self.is_split

    @property
    def is_positive(self) -> bool:
        """Whether no channel has changed its sign, so that maxima stay maxima."""
        return bool((self.scale >= 0).all()) and not self.is_split

    def kept(self) -> Layout:
        """The layout of what stays as it was, such as an optimizer's state: 1 where the scale is 1, else 0."""
        return replace(self, scale=(self.scale == 1).double())

    def to_dict(self) -> dict[str, Any]:
        """The layout as plain values: in runs of channels that follow each other and have one scale."""
        ends = ((self.origin.diff() != 1) | (self.scale.diff() != 0)).nonzero().flatten() + 1
        starts, stops = [0, *ends.tolist()], [*ends.tolist(), len(self.origin)]
        parts = [
            [int(self.origin[a]), b - a, float(self.scale[a])] for a, b in zip(starts, stops, strict=True)
        ]
        return {"dim": self.dim, "runs": parts if len(self.origin) else []}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Layout:
        """The layout that `to_dict` described.

        >>> layout = Layout(1, torch.tensor([0, 1, 0, 1]), torch.tensor([1.0, 1.0, 0.0, 0.0]))
        >>> layout.to_dict()["runs"], Layout.from_dict(layout.to_dict()).equals(layout)
        ([[0, 2, 1.0], [0, 2, 0.0]], True)
        """
        origin = [int(first) + i for first, count, _ in values["runs"] for i in range(count)]
        scale = [float(factor) for _, count, factor in values["runs"] for _ in range(count)]
        return Layout(int(values["dim"]), torch.tensor(origin), torch.tensor(scale, dtype=torch.float64))

    def at(self, dim: int) -> Layout:
        """The same layout with the channels in another dimension."""
        return replace(self, dim=dim)

    def equals(self, other: Layout) -> bool:
        """Whether both describe the same change."""
        return torch.equal(self.origin, other.origin) and torch.equal(self.scale, other.scale)


def propagate(node: Node, given: Mapping[Node, Layout]) -> Layout:
    """The layout of a value, if its operation treats all channels alike; or else a `ConversionError` that says why."""
    layout, dims = next(iter(given.values())), len(node.upstream[0].shape)
    if node.op == "cat":
        return _concatenated(node, given)
    if node.op == "stack":
        return _stacked(node, given)
    if len(node.upstream) > 1:
        raise ConversionError(WORDS.get(node.op, f"{display_name(node)} combines it with another value"))
    if not _is_broadcast(node, layout.dim, dims):
        raise ConversionError(f"{display_name(node)} combines it with a tensor that has a value per channel")
    if node.op in VIEWS:
        return _viewed(node, layout)
    if node.kind is not None:
        known = layout.is_positive if node.kind.homogeneous else layout.is_selection
    else:
        positive = (
            layout.is_positive if node.op in HOMOGENEOUS else layout.is_selection and node.op in ELEMENTWISE
        )
        known = node.op in LINEAR or positive
    if not known or (node.kind is not None and node.kind.doubled):
        raise ConversionError(f"{display_name(node)} reads it")
    if node.op in REDUCTIONS:
        return _reduced(node, layout)
    places = len(node.call[1][1]) // 2 if node.op == "constant_pad_nd" else _places(node.op)
    if layout.dim >= dims - places:
        raise ConversionError(f"{display_name(node)} mixes its channels")
    return layout


def display_name(node: Node) -> str:
    """The name of an operation as torch's documentation has it.

    >>> [display_name(Node(op)) for op in ("max_pool2d_with_indices", "_softmax", "native_layer_norm")]
    ['max_pool2d', 'softmax', 'layer_norm']
    """
    return node.op.lstrip("_").removeprefix("native_").removesuffix("_with_indices").removesuffix("_nd")


def _places(op: str) -> int:
    """The number of trailing dimensions that an operation mixes, by its name.

    >>> _places("max_pool2d_with_indices"), _places("tanh")
    (2, 0)
    """
    digits = re.search(r"(\d)d", op)
    return int(digits[1]) if digits else 0


def _is_broadcast(node: Node, dim: int, dims: int) -> bool:
    """Whether all tensors that an operation takes beside its value have one entry for all channels, or fit any number.

    Tensors that were just made, such as a mask of dropout, are made for whatever shape the value has.
    """
    if node.op in VIEWS or node.op in ("native_dropout", "rrelu_with_noise"):
        return True
    for other in (n for n in node.inputs if not n.data):
        place = dim - dims + len(other.shape)
        if place >= 0 and other.shape[place] != 1 and not _is_fresh(other):
            return False
    return True


def _is_fresh(node: Node) -> bool:
    """Whether a tensor was made during the run, from no parameter, buffer or constant."""
    return node.op not in ("parameter", "constant") and not node.parameters and node.order >= 0


def _viewed(node: Node, layout: Layout) -> Layout:
    """The layout after an operation that moves, merges, drops or cuts dimensions."""
    shape, args = node.upstream[0].shape, node.call[1]
    dims, dim = len(shape), layout.dim
    match node.op:
        case "permute":
            return layout.at([d % dims for d in args[1]].index(dim))
        case "transpose" | "t":
            a, b = (d % dims for d in args[1:3]) if node.op == "transpose" else (0, dims - 1)
            return layout.at({a: b, b: a}.get(dim, dim))
        case "unsqueeze":
            return layout.at(dim + (args[1] % (dims + 1) <= dim))
        case "expand":
            return layout.at(dim + len(node.shape) - dims)
        case "squeeze":
            which = range(dims) if len(args) < 2 else _listed(args[1])
            gone = {d % dims for d in which if shape[d % dims] == 1}
            if dim in gone:
                raise ConversionError("squeeze drops its channels")
            return layout.at(dim - sum(d < dim for d in gone))
        case "view" | "_unsafe_view" | "reshape" | "_reshape_alias":
            return _regrouped(layout, shape, node.shape)
    along = [d % dims for d in _cut(node)]
    if dim in along:
        raise ConversionError(f"{display_name(node)} cuts its channels")
    return layout.at(dim - sum(d < dim for d in along)) if node.op in ("select", "unbind") else layout


def _cut(node: Node) -> list[int]:
    """The dimensions that a slice, a split or a flip works along."""
    args = node.call[1]
    at = 2 if node.op in ("split", "split_with_sizes", "roll") else 1
    return _listed(args[at] if len(args) > at else 0)


def _regrouped(layout: Layout, shape: tuple[int, ...], out: tuple[int, ...]) -> Layout:
    """The layout after a view: channel c of (N, A, C, B) becomes the features (a C + c) B + b of (N, A C B)."""
    for before, after in regrouping(shape, out):
        if layout.dim not in before:
            continue
        outer = [d for d in before if d < layout.dim]
        if len([d for d in after if out[d] > 1]) > 1:
            raise ConversionError("a view splits its channels")
        if math.prod(shape[d] for d in outer) > 1 and 0 in outer:
            raise ConversionError("a view mixes its channels with the batch")
        if not after:
            raise ConversionError("a view drops its channels")
        at = next((d for d in after if out[d] > 1), after[-1])
        a = torch.arange(math.prod(shape[d] for d in outer)).view(-1, 1, 1)
        b = torch.arange(math.prod(shape[d] for d in before if d > layout.dim))
        origin = (a * shape[layout.dim] + layout.origin.view(-1, 1)) * len(b) + b
        return replace(
            layout,
            dim=at,
            origin=origin.flatten(),
            scale=layout.scale.view(-1, 1).expand_as(origin).flatten(),
        )
    raise ConversionError("a view moves its channels")


def regrouping(shape: tuple[int, ...], out: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of neighboring dimensions that a view maps onto each other.

    >>> regrouping((2, 3, 4, 5), (6, 20))
    [([0, 1], [0]), ([2, 3], [1])]
    """
    groups, i, j = [], 0, 0
    while i < len(shape) or j < len(out):
        before, after = [i] if i < len(shape) else [], [j] if j < len(out) else []
        a, b = (shape[i] if before else 1), (out[j] if after else 1)
        i, j = i + len(before), j + len(after)
        while a != b:
            if a < b and i < len(shape):
                a, i = a * shape[i], i + 1
                before.append(i - 1)
            elif j < len(out):
                b, j = b * out[j], j + 1
                after.append(j - 1)
            else:
                return []
        groups.append((before, after))
    return groups


def _reduced(node: Node, layout: Layout) -> Layout:
    """The layout after a mean or maximum over some dimensions."""
    args, dims = node.call[1], len(node.upstream[0].shape)
    which = args[1] if len(args) > 1 else None
    gone = set(range(dims)) if which in (None, []) else {d % dims for d in _listed(which)}
    if layout.dim in gone:
        raise ConversionError(f"{display_name(node)} mixes its channels")
    kept = len(node.shape) == dims
    return layout if kept else layout.at(layout.dim - sum(d < layout.dim for d in gone))


def _listed(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _concatenated(node: Node, given: Mapping[Node, Layout]) -> Layout:
    """The layouts one after the other, if values are concatenated along their channels."""
    args, parts = node.call[1], node.inputs
    dim = (args[1] if len(args) > 1 else node.call[2].get("dim", 0)) % len(node.shape)
    layouts = list(given.values())
    sites = frozenset[str]().union(*(layout.sites for layout in layouts))
    if any(layout.dim != dim for layout in layouts):
        if len(given) == len(set(parts)) and all(layout.equals(layouts[0]) for layout in layouts[1:]):
            return replace(layouts[0], sites=sites)
        raise ConversionError("it is concatenated with other values along another dimension")
    origins, scales, before = [], [], 0
    for part in parts:
        if dim >= len(part.shape):  # torch allows an empty tensor of one dimension
            continue
        layout = given.get(part) or Layout.same(part.shape[dim], dim)
        origins.append(layout.origin + before)
        scales.append(layout.scale)
        before += part.shape[dim]
    return Layout(dim, torch.cat(origins), torch.cat(scales), sites)


def _stacked(node: Node, given: Mapping[Node, Layout]) -> Layout:
    """The layout that all stacked values have, with one more dimension."""
    layouts = list(given.values())
    if len(given) < len(set(node.inputs)) or not all(layout.equals(layouts[0]) for layout in layouts[1:]):
        raise ConversionError("it is stacked with other values")
    dim = (node.call[1][1] if len(node.call[1]) > 1 else 0) % len(node.shape)
    sites = frozenset[str]().union(*(layout.sites for layout in layouts))
    return replace(layouts[0], dim=layouts[0].dim + (dim <= layouts[0].dim), sites=sites)


def channel_dims(nodes: Iterable[Node]) -> dict[Node, int]:
    """The dimension of every value that holds its channels, where an operation before it tells."""
    dims: dict[Node, int] = {}
    for node in nodes:
        dim = _channel_dim(node, dims)
        if dim is not None:
            dims[node] = dim
    return dims


def _channel_dim(node: Node, dims: Mapping[Node, int]) -> int | None:
    if node.op == "convolution" or node.op in BATCH_NORMS or node.op == "native_group_norm":
        return 1
    if node.has_weight or node.op == "native_layer_norm":
        return len(node.shape) - 1
    known = [n for n in node.upstream if n in dims and n.shape]
    if not known:
        return None
    source, dim = known[0], dims[known[0]]
    if node.op not in VIEWS | REDUCTIONS:
        return dim if len(node.shape) == len(source.shape) else None
    move: Callable[[Node, Layout], Layout] = _viewed if node.op in VIEWS else _reduced
    try:
        return move(replace(node, inputs=(source,)), Layout(dim, torch.zeros(1), torch.ones(1))).dim
    except ConversionError:
        return None
