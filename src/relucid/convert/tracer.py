"""A tracer that runs a network on an example while it records it, and notes which decisions depend on sizes."""

import builtins
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Argument, Node
from torch.fx.proxy import Attribute
from torch.utils._pytree import tree_leaves

from relucid.convert.draws import drawn, draws_undone, refuse_draws
from relucid.convert.graph import Batch, ConversionError, arguments
from relucid.convert.network import ByMode
from relucid.convert.opened import OPENED, is_norm_and_then, is_norm_with_more, norm_of, norms_called
from relucid.nn.propagation import Propagation

# Functions that make tensors. The first are recorded if an argument depends on the input, the random ones always.
MAKERS = ("zeros", "ones", "full", "arange", "eye", "linspace", "tensor", "as_tensor", "tril_indices")
RANDOM = ("empty", "rand", "randn", "randint", "randperm", "normal")

DEFAULTS = (type(None), bool, int, float, str)
RAND = torch.rand  # tracing replaces torch.rand


@dataclass(frozen=True)
class Decision:
    """A Python value that was computed from sizes: a condition, a number of iterations, a length."""

    node: Node
    kind: Callable[[Any], Any]  #: bool, int or len: what was applied to the node's value
    value: Any
    operands: tuple[Any, ...]  #: what it was computed from
    module: str  #: the module that decided
    line: str


class Tracer(fx.Tracer):
    """Records a network while it runs on an example, so that decisions on shapes can be followed.

    ``meta`` of every node has its ``value`` on the example, the input nodes that it ``mutates``, and whether it was
    computed without gradients (``no_grad``).
    """

    def __init__(self, example: Batch, opaque: set[nn.Module]) -> None:
        super().__init__()
        self.example = example
        self.opaque = opaque
        self.running = False
        self.decisions: list[Decision] = []
        self.constants: dict[str, Tensor] = {}
        self.optional: dict[Node, Any] = {}  #: arguments that the example lacks, and their defaults
        self.norms: dict[str, nn.Module] = {}  #: by name, the norm in a module that does more
        self.dropped: list[Node] = []  #: what a `ByMode` did not select
        self.thread = get_ident()
        self.failed = ""  #: the innermost module in which tracing failed
        self.proxy_buffer_attributes = True
        self.autocast = torch.is_autocast_enabled("cpu")

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is recorded as one call: torch's and relucid's layers, and opaque modules."""
        if m in self.opaque:
            return True
        if type(m) in OPENED or isinstance(m, ByMode):
            return False
        if isinstance(m, Propagation):
            return m.reversible
        ours = type(m).__module__.startswith(("relucid.nn.", "relucid.convert."))
        graph = isinstance(m, fx.GraphModule)
        return (ours and not graph) or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """Make a placeholder for every argument that the example has, then one for each optional argument."""
        args, kwargs = arguments(self.example)
        bound = signature(root_fn).bind(self.root, *args, **kwargs)
        given: list[fx.Proxy] = []

        def placeholder(name: str, value: Any) -> fx.Proxy:
            given.append(self.create_proxy("placeholder", name, (), {}))
            given[-1].node.meta["value"] = value
            return given[-1]

        for name, parameter in list(signature(root_fn).parameters.items())[1:]:
            if name not in bound.arguments:
                continue
            value = bound.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = tuple(placeholder(f"{name}_{i}", v) for i, v in enumerate(value))
            elif parameter.kind is parameter.VAR_KEYWORD:
                value = {key: placeholder(key, v) for key, v in value.items()}
            else:
                value = placeholder(name, value)
            bound.arguments[name] = value
        for name, parameter in signature(root_fn).parameters.items():
            if name not in bound.arguments and type(parameter.default) in DEFAULTS:
                proxy = self.create_proxy("placeholder", name, (parameter.default,), {})
                proxy.node.meta["value"] = self.optional[proxy.node] = parameter.default
        return lambda root, *_: root_fn(*bound.args, **bound.kwargs), [self.root, *given]

    def proxy(self, node: Node) -> "_Proxy":
        """Return a proxy that knows its length."""
        return _Proxy(node, self)

    def create_arg(self, a: Any) -> Argument:
        """As in the base class, but keep the class of dataclasses that are dictionaries, and register constants."""
        if isinstance(a, fx.Proxy):
            return a.node
        if is_dataclass(a) and isinstance(a, dict):
            values = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), values)
        if isinstance(a, Tensor) and not isinstance(a, nn.Parameter) and a not in self.tensor_attrs:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = a
            return self.create_node("get_attr", name, (), {})
        if type(a).__module__.startswith("transformers.cache_utils"):
            raise ConversionError("its output holds a cache, which no graph makes; set use_cache=False")
        return super().create_arg(a)

    def create_node(self, kind: str, *args: Any, **kwargs: Any) -> Node:
        """Create a node and compute its value on the example."""
        node = super().create_node(kind, *args, **kwargs)
        if kind in ("placeholder", "output"):
            return node
        if torch.is_autocast_enabled("cpu") != self.autocast:
            raise ConversionError("autocast inside forward would be lost; put it around the network's call")
        node.meta["no_grad"] = not torch.is_grad_enabled()
        before = {n: versions(n.meta["value"]) for n in node.all_input_nodes}
        self.running = True
        try:
            node.meta["value"] = self._run(node)
        finally:
            self.running = False
        node.meta["mutates"] = [n for n, v in before.items() if versions(n.meta["value"]) != v]
        return node

    def _run(self, node: Node) -> Any:
        if node.op == "get_attr":
            name = str(node.target)
            return self.constants[name] if name in self.constants else operator.attrgetter(name)(self.root)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
        if node.op == "call_function":
            function: Any = node.target
            return function(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        module = self.norms.get(str(node.target)) or self.root.get_submodule(str(node.target))
        if module.training or module._modules:  # eval() takes about as long as a small layer
            module.eval()
        if module not in self.opaque:
            return module(*args, **kwargs)
        with draws_undone():  # what it draws in Python, it will draw in the graph, too
            return module(*args, **kwargs)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record a call of a module; while a node's value is computed, or in another thread, just make the call."""
        if self.running or get_ident() != self.thread:
            return forward(*args, **kwargs)
        try:
            if self.is_leaf_module(m, self.path_of_module(m)):
                return super().call_module(m, self._forward_of(m, forward), args, kwargs)
            before = drawn()
            value = super().call_module(m, self._forward_of(m, forward), args, kwargs)
            refuse_draws(before)
            return value
        except Exception:
            if not self.failed:
                name = self.path_of_module(m)
                self.failed = self.scope.module_path if self.is_leaf_module(m, name) else name
            raise

    def _forward_of(self, m: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return what to record when a module is traced into: its own forward, or a replacement from `opened`."""
        if m in self.opaque:
            return forward
        if type(m) in OPENED:
            return lambda *args, **kwargs: OPENED[type(m)](m, *args, **kwargs)
        if isinstance(m, ByMode):
            return lambda training, evaluation: self._chosen(m, training, evaluation)
        if is_norm_with_more(m):
            return lambda x: self._norm_and_then(m, forward, x)
        return forward

    def _chosen(self, m: ByMode, training: Any, evaluation: Any) -> Any:
        """Return what a `ByMode` selects, and note what it does not."""
        dropped = evaluation if m.training else training
        self.dropped += [leaf.node for leaf in tree_leaves(dropped) if isinstance(leaf, fx.Proxy)]
        return m.forward(training, evaluation)

    def _norm_and_then(self, m: nn.Module, forward: Callable[..., Any], x: fx.Proxy) -> Any:
        """Record a call of torch's batch norm, then what the module does with its value."""
        name = self.path_of_module(m)
        self.running = True
        try:
            if name not in self.norms and is_norm_and_then(m, x.node.meta["value"]):
                self.norms[name] = norm_of(m)
        finally:
            self.running = False
        if name not in self.norms:
            return forward(x)
        mode, m.training = m.training, False
        try:
            with norms_called(lambda value: self.create_proxy("call_module", name, (value,), {})):
                return forward(x)
        finally:
            m.training = mode

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Record access to a parameter or buffer; while a node's value is computed, or elsewhere, just return it."""
        aside = self.running or get_ident() != self.thread
        return attr_val if aside else super().getattr(attr, attr_val, parameter_proxy_cache)

    def decide(self, node: Node, kind: Callable[[Any], Any]) -> Any:
        """Return the Python value that the network goes on with, and note the decision."""
        value = kind(node.meta["value"])
        if not isinstance(
            node.meta["value"], torch.Size
        ):  # its length is the number of dimensions, not a size
            operands = tuple(_said(n.meta["value"]) for n in _operands(node))
            self.decisions.append(Decision(node, kind, value, operands, self.scope.module_path, user_line()))
        return value

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Return what a condition is on the example; raise an error if it depends on data."""
        if isinstance(obj.node.meta["value"], Tensor):
            if _is_never(obj.node):
                drawn = obj.node.all_input_nodes[0]
                self.graph.erase_node(obj.node)
                self.graph.erase_node(drawn)
                return False
            raise ConversionError("a condition depends on the data, so the network is not one graph")
        return bool(self.decide(obj.node, bool))

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Iterate over the entries of a tuple, as many as there are on the example."""
        value = obj.node.meta["value"]
        if not isinstance(value, tuple | list):
            raise ConversionError("a loop depends on the data, so the network is not one graph")
        self.decide(obj.node, len)
        return iter(
            [self.create_proxy("call_function", operator.getitem, (obj, i), {}) for i in range(len(value))]
        )

    def integer(self, node: Node) -> int:
        """Return the integer that a value is on the example; raise an error if it depends on data."""
        if isinstance(node.meta["value"], Tensor):
            raise ConversionError("a number depends on the data, so the network is not one graph")
        return int(self.decide(node, int))


def _is_never(node: Node) -> bool:
    """Return whether a node asks if a random number from [0, 1) is below 0: layer dropping with probability 0."""
    if node.target not in (operator.lt, torch.lt, "lt") or len(node.args) != 2:
        return False
    drawn, limit = node.args
    is_rand = isinstance(drawn, Node) and drawn.target is RAND and len(drawn.users) == 1
    return is_rand and isinstance(limit, int | float) and limit <= 0


def _operands(node: Node) -> list[Node]:
    """Return a node and everything that it was computed from, as far as the values are not tensors."""
    found, stack = [node], list(node.all_input_nodes)
    while stack:
        before = stack.pop()
        if not isinstance(before.meta["value"], Tensor):
            found.append(before)
            stack.extend(before.all_input_nodes)
    return found


def _said(value: Any) -> str:
    """Return a value as a string; if there are tensors in it, their number."""
    leaves = tree_leaves(value)
    return str(len(leaves) if any(isinstance(x, Tensor) for x in leaves) else value)


class _Proxy(fx.Proxy):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # torch probes for array protocols
            raise AttributeError(name)
        if name in ("ndim", "dtype", "is_sparse", "is_nested", "is_quantized"):
            return getattr(self.node.meta["value"], name)
        return _Attribute(self, name)

    def __len__(self) -> int:
        return _length(self)

    def __index__(self) -> int:
        return _tracer(self).integer(self.node)

    __int__ = __index__


class _Attribute(Attribute):
    def __len__(self) -> int:
        return _length(self)

    def __index__(self) -> int:
        return _tracer(self).integer(self.node)

    __int__ = __index__


def _tracer(proxy: fx.Proxy) -> Tracer:
    assert isinstance(proxy.tracer, Tracer)
    return proxy.tracer


def _length(proxy: fx.Proxy) -> int:
    return int(_tracer(proxy).decide(proxy.node, len))


def versions(value: Any) -> list[int]:
    """Return how often each tensor of a value has been changed in place."""
    return [x._version for x in tree_leaves(value) if isinstance(x, Tensor) and not x.is_inference()]


def user_line() -> str:
    """Return the line of the network's own code that is running, as FILE:LINE."""
    frame = sys._getframe(1)
    while frame is not None and any(part in frame.f_code.co_filename for part in OURS):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


OURS = ("/torch/", "/relucid/convert/", "<eval_with_key>")


class _IntegerType(type):
    """An ``int`` that records the call if it is given a size."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], fx.Proxy) and not isinstance(args[0].node.meta["value"], Tensor):
            return _tracer(args[0]).create_proxy("call_function", builtins.int, args, kwargs)
        return builtins.int(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, builtins.int)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, builtins.int)


class _Integer(metaclass=_IntegerType):
    pass


def _recorded_len(value: Any) -> Any:
    if isinstance(value, fx.Proxy) and isinstance(value.node.meta["value"], Tensor):
        return _tracer(value).create_proxy("call_function", builtins.len, (value,), {})
    return builtins.len(value)


def _recorded_isinstance(value: Any, kind: Any) -> bool:
    """Answer for the value of a proxy; a proxy that claimed to be a tensor itself would crash torch."""
    return isinstance(value.node.meta["value"] if isinstance(value, fx.Proxy) else value, kind)


@contextmanager
def recorded_sizes(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    """Make ``len``, ``int``, ``isinstance`` and functions that make tensors accept proxies within the block."""
    scopes = {id(g): g for m in model.modules() if (g := getattr(type(m).forward, "__globals__", None))}
    names = {"len": _recorded_len, "int": _Integer, "isinstance": _recorded_isinstance}
    before = [(g, name, g.get(name)) for g in scopes.values() for name in names]
    patched = [p for p in before if p[2] in (None, getattr(builtins, p[1]))]
    makers = {name: getattr(torch, name) for name in (*MAKERS, *RANDOM)}
    for g, name, _ in patched:
        g[name] = names[name]
    for name, maker in makers.items():
        setattr(torch, name, _recorded(tracer, maker, always=name in RANDOM))
    try:
        yield
    finally:
        for g, name, value in patched:
            g[name] = getattr(builtins, name)
            if value is None:
                del g[name]
        for name, maker in makers.items():
            setattr(torch, name, maker)


@contextmanager
def unchanged_classes() -> Iterator[None]:
    """Put back what torch.fx changes in nn.Module: an interrupt may keep it from doing so itself."""
    before = nn.Module.__call__, nn.Module.__getattr__
    try:
        yield
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = before  # type: ignore[method-assign]


def _recorded(tracer: Tracer, maker: Callable[..., Any], always: bool) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        given = any(isinstance(a, fx.Proxy) for a in tree_leaves((args, kwargs)))
        elsewhere = get_ident() != tracer.thread  # other threads go on as ever
        if elsewhere or tracer.running or not (always or given):
            return maker(*args, **kwargs)
        return tracer.create_proxy("call_function", maker, args, kwargs)

    return make
