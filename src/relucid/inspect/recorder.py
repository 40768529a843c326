"""Record the operations that a network executes, in order, and how they depend on each other.

A dispatch mode sits below modules, functional calls, in-place calls, custom autograd functions and TorchScript:
every operation passes through it, however the network is written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from relucid._torch import DispatchMode, schema_of, storage_of, tree_leaves, tree_map
from relucid.nn.kinds import KINDS, WITHOUT_BOUNDARY, Kind, kind_of_operation

# Operations, by ATen name, that make a unit's output of its value although they may not rectify.
ACTIVATIONS = (WITHOUT_BOUNDARY - {"_softmax", "_log_softmax", "clamp", "clamp_min", "threshold"}) | {
    "sin",
    "cos",
}

# Positions of a product's two factors among its arguments, by ATen name.
FACTORS = {
    "convolution": (0, 1),
    "mm": (0, 1),
    "bmm": (0, 1),
    "linear": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
}

DATA = object()  # placeholder in a `Node`'s arguments for the value that depends on the network's input


@dataclass(eq=False)
class Node:
    """An executed operation, or a parameter or an input of the network."""

    op: str  #: ATen name, without the underscore of the in-place form
    order: int = -1
    module: str = ""  #: path of the innermost running module
    leaf: bool = False  #: whether that module has no submodules
    inputs: tuple[Node, ...] = ()
    #: what a value that does not depend on the input is computed from
    parameters: frozenset[str] = frozenset()
    data: bool = False  #: whether the value depends on the network's input
    name: str = ""  #: name of a parameter, a layer (an operation with a weight) or a rectification
    kind: Kind | None = None  #: kind of a rectification
    phases: tuple[int, ...] = ()  #: shape of the negative phases of a CReLU
    twin: Node | None = None  #: for the negative phases of a CReLU: the positive ones, which represent both
    call: tuple[Any, ...] = ()  #: (function, arguments, keyword arguments), with `DATA` in place of the data
    shape: tuple[int, ...] = ()  #: shape of the value

    @property
    def upstream(self) -> list[Node]:
        """Inputs that depend on the network's input."""
        return [n for n in self.inputs if n.data]

    @property
    def rectified(self) -> Node:
        """The value that a rectification is applied to; for a CReLU, the value before negation."""
        value = self.upstream[0]
        return _both_phases(value) or value

    @property
    def sign(self) -> Tensor | None:
        """Sign per unit of a rectification with per-unit bounds: -1 where it keeps negative values, otherwise 1."""
        _, args, kwargs = self.call
        high = kwargs.get("max", args[2] if len(args) > 2 else None)
        if not isinstance(high, Tensor):
            return None
        return torch.where(high == 0, -1.0, 1.0).double().flatten().cpu()

    @property
    def is_activation(self) -> bool:
        """Whether it makes a unit's output of its value: a rectification or any other activation."""
        return self.kind is not None or self.twin is not None or (self.data and self.op in ACTIVATIONS)

    @property
    def has_weight(self) -> bool:
        """Whether it is the product of a value and a weight."""
        return self.op in FACTORS and bool(self.name)


class Recorder(DispatchMode):
    """Recorder of every operation; it shows values as they pass and keeps none."""

    def __init__(
        self,
        model: nn.Module,
        given: object,
        visit: Callable[[Node, Tensor], None] | None,
        path: list[str],
        observe: Callable[[Node, Tensor, Tensor], None] | None,
    ) -> None:
        super().__init__()
        self.visit, self.observe = visit, observe
        self.executed: list[Node] = []
        self.path = path  # of the running modules, innermost last
        self.leaves = {name for name, m in model.named_modules() if name and not list(m.children())}
        self.used: Counter[str] = Counter()  # how often each name was given
        self.nodes = WeakTensorKeyDictionary()
        self.written: dict[int, Node] = {}  # storage -> the operations that wrote to it
        self.merged: dict[tuple[Node, Node], Node] = {}  # (made by, also written by) -> both
        self.first: dict[tuple[Node, bool], Node] = {}  # (value, whether negated) -> its rectification
        self.parameters = {_storage(p): p for p in model.parameters()}
        self.spoiled: dict[int, Tensor] = {}  # storage of a parameter that is written to -> its value before
        self.changed: set[int] = set()  # storages of the parameters that the network gave other values
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for name, tensor in tensors.items():
            self.nodes[tensor] = Node("parameter", parameters=frozenset([name]), name=name)
        self.owned: dict[str, set[str]] = defaultdict(set)  # module -> its weights
        for name in (name for name, tensor in tensors.items() if tensor.dim() > 1):
            self.owned[_owner(name)].add(name)
        for tensor in tensors_in(given):
            self.nodes[tensor] = Node("input", data=True, name="the input", shape=tuple(tensor.shape))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node = self._node(func, args, kwargs or {})
        if node.has_weight and self.visit:
            self.visit(node, self._value(args, FACTORS[node.op]))
        value = None
        if self.observe and node.is_activation:
            value = self._value(args, range(len(args)))
            value = value.clone() if _is_overwritten(func) else value
        if schema_of(func).is_mutable:
            self._keep(func, args)
        out = func(*args, **(kwargs or {}))
        if self.observe and value is not None:
            self.observe(node, value, out[0] if isinstance(out, tuple) else out)
        known = {_storage(t) for t in tensors_in([args, kwargs])}
        for tensor in reversed(tensors_in(out)):
            self.nodes[tensor] = node
            node.shape = tuple(tensor.shape)
            if schema_of(func).is_mutable:
                self.written[_storage(tensor)] = _overwritten(self.written.get(_storage(tensor)), node)
            elif _storage(tensor) not in known:
                self.written.pop(_storage(tensor), None)  # new memory, possibly at an old address
        self.executed.append(node)
        return out

    def _keep(self, func: Any, args: Any) -> None:
        """Keep the parameters that an operation is about to write to."""
        for argument, given in zip(schema_of(func).arguments, args, strict=False):
            written = tensors_in([given]) if argument.alias_info and argument.alias_info.is_write else []
            new = {_storage(tensor) for tensor in written} - self.spoiled.keys()
            for place in self.parameters.keys() & new:
                self.spoiled[place] = self.parameters[place].detach().clone()

    def put_back(self) -> None:
        """Give the parameters that the network has written to their values of before; note what it has changed."""
        for place, value in self.spoiled.items():
            now = self.parameters[place].data
            if not bool(((now == value) | (now.isnan() & value.isnan())).all()):
                self.changed.add(place)
            now.copy_(value)

    def _value(self, args: Any, places: Iterable[int]) -> Tensor:
        """The argument that depends on the network's input."""
        values = (args[i] for i in places)
        return next(x for x in values if isinstance(x, Tensor) and self._of(x).data)

    def _node(self, func: Any, args: Any, kwargs: Any) -> Node:
        outputs = {a.name for a in schema_of(func).arguments if a.is_out}
        read = [args, {k: v for k, v in kwargs.items() if k not in outputs}]
        inputs = tuple(self._of(t) for t in tensors_in(read))
        op = schema_of(func).name.partition("::")[2].rstrip("_")
        if op.endswith("_like") or op.startswith("new_"):  # uses the shape of a tensor, not its value
            inputs = ()
        node = _made_of(inputs, op, len(self.executed), self.path[-1])
        node.leaf = node.module in self.leaves
        marked = tree_map(lambda a: DATA if isinstance(a, Tensor) and self._of(a).data else a, read)
        node.call = (func, *marked)
        if len(node.upstream) == 1:
            is_complex = any(tensor.is_complex() for tensor in tensors_in(read))
            node.kind = None if is_complex else self._rectification(node)
        node.name = self._name(node, args)
        return node

    def _name(self, node: Node, args: Any) -> str:
        """The name of a rectification or of a product with a weight; "" for other operations."""
        if node.kind:
            inside = not node.leaf or node.module in self.owned
            return self._unique(":".join(filter(None, (node.module, node.op))) if inside else node.module)
        factors = [self._of(args[i]) for i in FACTORS.get(node.op, ())]
        weights = [factor for factor in factors if not factor.data]
        if len(factors) - len(weights) != 1:
            return ""
        return self._unique(self._layer(weights[0].parameters) or f"{node.module}:constant")

    def nodes_of(self, tree: Any) -> tuple[Node, ...]:
        """The operations that produced the values in a tree."""
        return tuple(self._of(tensor) for tensor in tensors_in(tree))

    def _of(self, tensor: Tensor) -> Node:
        """The operation that produced a tensor's current value."""
        made: Node = self.nodes.get(tensor) or Node("constant")
        written = self.written.get(_storage(tensor))
        if written is None or written.order <= made.order:
            return made
        if (made, written) not in self.merged:
            self.merged[made, written] = _overwritten(made, written)
        return self.merged[made, written]

    def _rectification(self, node: Node) -> Kind | None:
        """Which kind of rectification an operation is; the second phase of a CReLU does not count."""
        kind, value = kind_of_operation(node.op, *node.call[1:]), node.upstream[0]
        if kind and kind.homogeneous and (both := _both_phases(value)):
            node.phases = value.inputs[1].shape
            self.first[both, False] = node
            return kind.both_phases()
        if kind != KINDS["relu"]:
            return kind
        source, negated = _negated(value)
        first = self.first.get((source, not negated))
        if first is None or first.kind != KINDS["relu"]:
            self.first[source, negated] = node
            return KINDS["relu"]
        first.kind, first.phases, node.twin = KINDS["crelu"], value.shape, first
        return None

    def _layer(self, parameters: frozenset[str]) -> str:
        """The module that a weight belongs to, or the parameter's name if its module has several weights."""
        owner, *others = {_owner(p) for p in parameters} or {""}
        alone = owner in self.owned and self.owned[owner] <= parameters
        return owner if owner and alone and not others else ", ".join(sorted(parameters))

    def _unique(self, name: str) -> str:
        self.used[name] += 1
        return name if self.used[name] == 1 else f"{name}#{self.used[name]}"


def _owner(parameter: str) -> str:
    """The path of the module that owns a parameter, parametrized or not."""
    module, parametrized, _ = parameter.partition(".parametrizations.")
    return module if parametrized else parameter.rpartition(".")[0]


def _storage(tensor: Tensor) -> int:
    return storage_of(tensor) if tensor.layout == torch.strided else id(tensor)


def _is_overwritten(func: Any) -> bool:
    """Whether an operation writes its output over its first argument."""
    first = schema_of(func).arguments[0].alias_info
    return first is not None and bool(first.is_write)


def _overwritten(before: Node | None, after: Node) -> Node:
    """The node of memory that was also written through another view: it may hold either value."""
    if before is None:
        return after
    return _made_of((before, after), "overwritten", after.order, after.module)


def _made_of(inputs: tuple[Node, ...], op: str, order: int, module: str) -> Node:
    """The node of an operation on ``inputs``."""
    data = any(n.data for n in inputs)
    parameters = frozenset[str]() if data else frozenset[str]().union(*(n.parameters for n in inputs))
    return Node(op, order, module, inputs=inputs, parameters=parameters, data=data)


def _negated(value: Node) -> tuple[Node, bool]:
    """The pair (x, True) if ``value`` is -x or minus the first channels of x, otherwise (value, False)."""
    if value.op != "neg":
        return value, False
    source = value.upstream[0]
    return (source.upstream[0] if source.op == "slice" else source), True


def _both_phases(value: Node) -> Node | None:
    """The value x if ``value`` is the concatenation of x and -x."""
    is_pair = (
        value.op == "cat" and len(value.inputs) == 2 and _negated(value.inputs[1]) == (value.inputs[0], True)
    )
    return value.inputs[0] if is_pair else None


def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in a tree, dataclasses included; `tree_leaves` takes long for the plain containers of most calls."""
    if isinstance(tree, Tensor):
        return [tree]
    if type(tree) in (list, tuple, dict):
        values = tree.values() if type(tree) is dict else tree
        return [tensor for value in values for tensor in tensors_in(value)]
    if tree is None or isinstance(tree, int | float | str | torch.dtype | torch.device):
        return []
    if is_dataclass(tree) and not isinstance(tree, type):
        return [tensor for field in fields(tree) for tensor in tensors_in(getattr(tree, field.name))]
    return [t for leaf in tree_leaves(tree) if leaf is not tree for t in tensors_in(leaf)]
