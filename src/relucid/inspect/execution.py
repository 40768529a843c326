"""Record the operations that a network executes, in order, and how they depend on each other.

A dispatch mode sits below modules, functional calls, in-place calls, custom autograd functions and TorchScript:
every operation passes through it, however the network is written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from relucid._torch import DispatchMode, compiler_is_imported, schema_of, storage_of, tree_leaves, tree_map
from relucid.nn import GeometricLayer
from relucid.nn.kinds import KINDS, WITHOUT_BOUNDARY, Kind, kind_of_operation
from relucid.nn.tracing import uncached_autocast
from relucid.randomness import no_fast_path


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, exactly as they were given."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Given) -> Arguments:
        """A batch as the arguments of a call: a tensor, positional arguments, or any mapping, such as a tokenizer's."""
        if isinstance(batch, Arguments):
            return batch
        if isinstance(batch, Mapping):
            return cls((), dict(batch))
        return cls(tuple(batch) if isinstance(batch, tuple | list) else (batch,))

    def map(self, change: Callable[[Any], Any]) -> Arguments:
        """The same arguments with every leaf changed."""
        return Arguments(*tree_map(change, (self.args, dict(self.kwargs))))

    def copied(self) -> Arguments:
        """The same arguments with tensors of their own, apart from what those here are computed from."""
        return self.map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf)

    @property
    def leaves(self) -> list[Any]:
        """All values in them, however nested."""
        return tree_leaves((self.args, dict(self.kwargs)))


Given = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any] | Arguments
# How a network is used, if not through its forward: a method's name, or a function of the network and the inputs.
Method = str | Callable[..., Any]

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


Visit = Callable[[Node, Tensor], None]  # of a product with a weight: the other factor
Observe = Callable[[Node, Tensor, Tensor], None]  # of an activation: its value and its output


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a module: the values that enter and leave it."""

    module: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything that a network executes on one batch, in order."""

    nodes: list[Node]
    calls: list[Call]  #: of all modules, inner ones before those that contain them
    outputs: tuple[Node, ...]  #: values that the network returns

    @cached_property
    def calls_of(self) -> dict[str, list[Call]]:
        """The calls of each module, by its name."""
        calls: dict[str, list[Call]] = {}
        for call in self.calls:
            calls.setdefault(call.module, []).append(call)
        return calls

    @cached_property
    def readers(self) -> dict[Node, list[Node]]:
        """The operations that read each value."""
        readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for value in node.upstream:
                readers.setdefault(value, []).append(node)
        return readers


def record(
    model: nn.Module, batch: Given, *, training: bool = False, call: Method | None = None
) -> Recording:
    """Run ``model`` on ``batch`` in one mode; return its operations, the calls of its modules, and its outputs.

    The network runs without gradients; its modes, buffers and hooks and the random state are restored afterwards.

    >>> recording = record(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2))
    >>> [(n.op, n.name) for n in recording.nodes]
    [('t', ''), ('addmm', '0'), ('relu', '1')]
    >>> [(call.module, [n.op for n in call.outputs]) for call in recording.calls]
    [('0', ['addmm']), ('1', ['relu']), ('', ['relu'])]
    """
    with running(model, training=training, call=call) as (run, calls):
        nodes = run(batch)
        # The calls of a TorchScript network cannot be seen.
        return Recording(nodes, calls, run.outputs if calls else ())


class Run:
    """A function that runs a prepared network, records its operations, and shows values as they pass."""

    def __init__(self, model: nn.Module, call: Method | None) -> None:
        self.model, self.call = model, call
        self.path = [""]  # of the running modules, innermost last
        self.calls: list[Call] = []
        self.outputs: tuple[Node, ...] = ()  #: values that the last run returned
        self.recorder: _Recorder | None = None

    def __call__(
        self, batch: Given, visit: Visit | None = None, observe: Observe | None = None
    ) -> list[Node]:
        """Run once on a copy of the batch, which a network may overwrite; return the executed operations in order.

        Args:
            batch: The arguments.
            visit: Called with every product with a weight and what the weight is multiplied with, before it runs.
            observe: Called with every activation, its value and its output.
        """
        self.calls.clear()
        given = Arguments.of(batch).copied()
        self.recorder = recorder = _Recorder(self.model, given, visit, self.path, observe)
        try:
            with recorder:
                returned = called(self.model, given, self.call)
        finally:
            recorder.put_back()
        self.outputs = recorder.nodes_of(returned)
        return recorder.executed

    def follow(self, name: str, module: nn.Module) -> Iterator[RemovableHandle]:
        """Keep the path up to date while a module runs, and note its calls."""

        def leave(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.path.pop()
            if self.recorder is not None:
                nodes_of = self.recorder.nodes_of
                self.calls.append(Call(name, nodes_of((args, kwargs)), nodes_of(output)))

        yield module.register_forward_pre_hook(lambda *_: self.path.append(name))
        yield module.register_forward_hook(leave, with_kwargs=True)


@contextmanager
def running(
    model: nn.Module, *, training: bool = False, call: Method | None = None
) -> Iterator[tuple[Run, list[Call]]]:
    """Prepare a model once; yield a function that runs it on a batch, and its last run's calls of modules."""
    run = Run(model, call)
    with ExitStack() as stack:
        stack.enter_context(_undisturbed(model, training))
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                for handle in run.follow(name, module):
                    stack.callback(handle.remove)
        yield run, run.calls


def called(model: nn.Module, batch: Given, call: Method | None = None) -> Any:
    """What a model returns for a tensor, positional or keyword arguments; its weights are computed anew."""
    for module in model.modules():
        if isinstance(module, GeometricLayer):
            module.forget_weight()
    given = Arguments.of(batch)
    return function_of(model, call)(*given.args, **given.kwargs)


def function_of(model: nn.Module, call: Method | None) -> Callable[..., Any]:
    """The function of the inputs that a network is used by: itself, one of its methods, or one that takes it first.

    >>> function_of(nn.Linear(2, 3), lambda net, x: net(x).relu())(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """
    name = type(model).__name__
    if isinstance(call, str):
        method: Callable[..., Any] | None = getattr(model, call, None)
        if not callable(method):
            raise ValueError(
                f"{name} has no method {call!r}: call= is a method's name or a function of the network"
            )
        return method
    if call is not None:
        return partial(call, model)
    if getattr(type(model), "forward", None) is nn.Module.forward and "forward" not in vars(model):
        raise TypeError(
            f"{name} has no forward: say by call= how it is used, a method's name or `lambda network, x: ...`"
        )
    return model


class _Recorder(DispatchMode):
    """Recorder of every operation; it shows values as they pass and keeps none."""

    def __init__(
        self,
        model: nn.Module,
        given: Arguments,
        visit: Visit | None,
        path: list[str],
        observe: Observe | None,
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
        """Give the parameters that the network has written to their values of before."""
        for place, value in self.spoiled.items():
            self.parameters[place].data.copy_(value)

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


@contextmanager
def _undisturbed(model: nn.Module, training: bool) -> Iterator[None]:
    """Put ``model`` into one mode; afterwards restore its modes and buffers and the random state."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    try:
        # A compiled network is one opaque operation, and so is the fast path of transformer layers.
        eager = torch.compiler.set_stance("force_eager") if compiler_is_imported() else nullcontext()
        # A weight from autocast's cache would seem to come from nowhere.
        fresh = uncached_autocast(next((p.device.type for p in model.parameters()), "cpu"))
        with (
            in_mode(model, training),
            torch.random.fork_rng(devices),
            torch.no_grad(),
            eager,
            fresh,
            no_fast_path(),
        ):
            yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
                if getattr(module, name) is not buffer:  # the network has put another tensor there
                    setattr(module, name, buffer)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put a network into one mode, and back; in training already, modules put into evaluation by hand stay there."""
    modes = {module: module.training for module in model.modules()}
    try:
        if not training:
            model.eval()
        elif not model.training:
            model.train()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
