"""A network as a graph: what runs after what, with which shapes, found by running it once on an example."""

import copy
import linecache
import operator
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Argument, Node
from torch.fx.proxy import Attribute
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_map_only

from relucid.nn.geometric import _Geometric
from relucid.nn.propagation import Propagation

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]

DROPOUTS: dict[Any, type[nn.Module]] = {
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
}
RELUS: set[Any] = {F.relu, torch.relu, F.relu_, torch.relu_, "relu", "relu_"}
CLAMPS: set[Any] = {torch.clamp, torch.clamp_, torch.clamp_min, torch.clamp_min_}
CLAMPS |= {"clamp", "clamp_", "clamp_min", "clamp_min_"}
ADDS: set[Any] = {operator.add, operator.iadd, torch.add, "add", "add_"}
PRODUCTS: set[Any] = {
    F.linear,
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
}
PRODUCTS |= {torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, operator.matmul, torch.einsum}
PRODUCTS |= {"matmul", "mm", "bmm", F.bilinear, F.embedding}


class ConversionError(Exception):
    """A network cannot be converted, or its converted form would differ; the message says why."""


def arguments(example: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that an example stands for.

    >>> arguments((1, 2)), arguments({"x": 1})
    (((1, 2), {}), ((), {'x': 1}))
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def capture(model: nn.Module, example: Batch) -> fx.GraphModule:
    """A copy of ``model`` as a graph, in which every ReLU is a module of its own that works out of place.

    The copy keeps the names of parameters and buffers, and the mode (training or not) of every module. It takes
    the arguments that the example has. Decisions on shapes are taken as for the example, so its other sizes
    than those of the batch, height and width should be those of the data. ``meta["shape"]`` of every node
    whose value is a tensor is its shape on the example.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True))
    >>> graph = capture(net, torch.zeros(2, 3, 8, 8))
    >>> [(node.target, tuple(node.meta["shape"])) for node in graph.graph.nodes if node.op == "call_module"]
    [('0', (2, 8, 6, 6)), ('1', (2, 8, 6, 6))]
    """
    try:
        model = copy.deepcopy(model)
    except Exception as error:
        raise ConversionError(f"{type(model).__name__} cannot be copied: {error}") from error
    modes = {module: module.training for module in model.modules()}
    mode = model.training
    graph, training = (_trace(model, example, training) for training in (False, True))
    _modular_dropout(model, graph, training)
    graph._tracer_cls = fx.Tracer  # else a saved network would need this file to be loaded
    net = fx.GraphModule(model, graph, type(model).__name__)
    for module in net.modules():
        module.training = modes.get(module, mode)
    _modular_relus(net)
    net.recompile()
    return net


class _Tracer(fx.Tracer):
    """Records what a network does while it does it, so that decisions on shapes can be followed."""

    def __init__(self, example: Batch) -> None:
        super().__init__()
        self.example = example
        self.running = False

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Torch's own modules and relucid's layers; but stages are looked into."""
        if isinstance(m, Propagation):
            return m.reversible
        ours = type(m).__module__.startswith(("relucid.nn.", "relucid.convert."))
        return ours or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """One placeholder for every argument that the example has; the others keep their defaults."""
        args, kwargs = arguments(self.example)
        bound = signature(root_fn).bind(self.root, *args, **kwargs)
        names = list(bound.arguments)[1:]
        kinds = {signature(root_fn).parameters[name].kind.name for name in names}
        if kinds & {"VAR_POSITIONAL", "VAR_KEYWORD"}:
            raise ConversionError(
                "a forward that takes *args or **kwargs cannot be traced; name its arguments"
            )
        placeholders = []
        for name in names:
            placeholders.append(self.create_proxy("placeholder", name, (), {}))
            placeholders[-1].node.meta["value"] = bound.arguments[name]
        return lambda root, *given: root_fn(root, **dict(zip(names, given, strict=True))), [
            self.root,
            *placeholders,
        ]

    def proxy(self, node: Node) -> "_Proxy":
        """A proxy that knows its length."""
        return _Proxy(node, self)

    def create_arg(self, a: Any) -> Argument:
        """As always, but a dataclass that is also a dictionary stays what it is."""
        if is_dataclass(a) and isinstance(a, dict):
            values = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), values)
        return super().create_arg(a)

    def create_node(self, kind: str, *args: Any, **kwargs: Any) -> Node:
        """A node with its value on the example."""
        node = super().create_node(kind, *args, **kwargs)
        if kind not in ("placeholder", "output"):
            self.running = True
            try:
                node.meta["value"] = self._run(node)
            finally:
                self.running = False
        return node

    def _run(self, node: Node) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self.root)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
        if node.op == "call_function":
            function: Any = node.target
            return function(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return self.root.get_submodule(str(node.target))(*args, **kwargs)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record it, unless it is called to find a value."""
        return forward(*args, **kwargs) if self.running else super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Record it, unless it is asked for to find a value."""
        return attr_val if self.running else super().getattr(attr, attr_val, parameter_proxy_cache)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """What a condition is on the example, if it depends on shapes and not on data."""
        value = obj.node.meta["value"]
        if isinstance(value, Tensor):
            raise ConversionError("a condition depends on the data, so the network is not one graph")
        return bool(value)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The entries of a tuple, as many as there are on the example."""
        value = obj.node.meta["value"]
        if not isinstance(value, tuple | list):
            raise ConversionError("a loop depends on the data, so the network is not one graph")
        return iter(
            [self.create_proxy("call_function", operator.getitem, (obj, i), {}) for i in range(len(value))]
        )


class _Proxy(fx.Proxy):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # torch asks what kind of array it is
            raise AttributeError(name)
        if name in ("ndim", "dtype"):
            return getattr(self.node.meta["value"], name)
        return _Attribute(self, name)

    def __len__(self) -> int:
        return _length(self.node)


class _Attribute(Attribute):
    def __len__(self) -> int:
        return _length(self.node)


def _length(node: Node) -> int:
    value = node.meta["value"]
    if isinstance(value, Tensor):
        raise ConversionError("len() of a tensor would fix the size of the batch; use its shape")
    return len(value)


def _trace(model: nn.Module, example: Batch, training: bool) -> fx.Graph:
    """The graph of a network, with the shape of every value; containers are told that they train, layers never."""
    tracer = _Tracer(example)
    model.eval()
    for name, module in model.named_modules():
        if not tracer.is_leaf_module(module, name):
            module.training = training
    example = tree_map_only(Tensor, torch.clone, example)  # which the network may change in place
    tracer.example = example
    try:
        with torch.no_grad():
            graph = tracer.trace(model)
    except Exception as error:
        raise ConversionError(f"{type(model).__name__} cannot be traced{_where(error)}: {error}") from error
    finally:
        model.eval()
    for node in graph.nodes:
        value = node.meta.pop("value", None)
        if isinstance(value, Tensor):
            node.meta["shape"], node.meta["dtype"] = value.shape, value.dtype
    return graph


def _where(error: Exception) -> str:
    """The last line of the network's own code that an error went through."""
    ours = ("/torch/", "/relucid/convert/", "<eval_with_key>")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(o in f.filename for o in ours)]
    if not frames:
        return ""
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {last.filename}:{last.lineno}, `{line}`"


def _modular_dropout(model: nn.Module, graph: fx.Graph, training: fx.Graph) -> None:
    """Make functional dropouts modules, which know when to drop; nothing else may depend on the mode."""
    pairs = list(zip(graph.nodes, training.nodes, strict=False))
    different = [node for node, other in pairs if _signature(node) != _signature(other)]
    if different or len(graph.nodes) != len(training.nodes):
        name = different[0].name if different else "the end"
        raise ConversionError(
            f"{type(model).__name__} computes something else in training than in evaluation (from {name} on): "
            "it is not one graph"
        )
    for node, other in pairs:
        if node.target in DROPOUTS and node.kwargs.get("training", True) != other.kwargs.get(
            "training", True
        ):
            p = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
            name = fresh_name(model, f"{scope(node)}dropout")
            add_module(model, name, DROPOUTS[node.target](p))
            _replace(node, name, node.args[0] if node.args else node.kwargs["input"])


def _signature(node: Node) -> tuple[Any, ...]:
    kwargs = {k: v for k, v in node.kwargs.items() if k != "training" or node.target not in DROPOUTS}
    return node.op, node.target, str(node.args), str(kwargs)


def _modular_relus(net: fx.GraphModule) -> None:
    """Give every ReLU a module of its own, out of place: what is read after it in its place becomes its result."""
    relus = [(node, _in_place(net, node)) for node in net.graph.nodes if is_relu_call(net, node)]
    seen: set[str] = set()
    for node, in_place in relus:
        x = node.all_input_nodes[0]
        name = str(node.target) if node.op == "call_module" else f"{scope(node)}relu"
        if node.op != "call_module" or name in seen:
            name = fresh_name(net, name)
        seen.add(name)
        add_module(net, name, nn.ReLU())
        new = _replace(node, name, x)
        if in_place:
            nodes = list(net.graph.nodes)
            for later in nodes[nodes.index(new) + 1 :]:
                later.replace_input_with(x, new)


def is_relu_call(net: fx.GraphModule, node: Node) -> bool:
    """Whether a node rectifies: max(x, 0), however it is written."""
    if node.op == "call_module":
        return type(net.get_submodule(str(node.target))) is nn.ReLU
    if node.target in CLAMPS:
        rest: dict[str, Any] = {**dict(zip(("min", "max"), node.args[1:], strict=False)), **node.kwargs}
        return bool(rest.get("min") == 0) and rest.get("max") is None
    return node.target in RELUS and node.op in ("call_function", "call_method")


def _in_place(net: fx.GraphModule, node: Node) -> bool:
    if node.op == "call_module":
        return bool(net.get_submodule(str(node.target)).inplace)
    name: str = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (
        name.endswith("_")
        or bool(node.kwargs.get("inplace"))
        or (node.target is F.relu and True in node.args)
    )


def _replace(node: Node, module: str, *args: Argument) -> Node:
    with node.graph.inserting_before(node):
        new = node.graph.call_module(module, args)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return new


def scope(node: Node) -> str:
    """The name of the module in which a node was called, with a dot after it, or ""."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return f"{stack[-1][0]}." if stack and stack[-1][0] else ""


def fresh_name(model: nn.Module, wanted: str) -> str:
    """A name for a module that no module, parameter or method of ``model`` has: ``wanted``, or with a number."""
    name, number = wanted, 1
    while _taken(model, name):
        name, number = f"{wanted}_{number}", number + 1
    return name


def _taken(model: nn.Module, name: str) -> bool:
    parent, _, leaf = name.rpartition(".")
    try:
        return hasattr(model.get_submodule(parent), leaf)
    except AttributeError:
        return False


def add_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Set a module by its full name, in the mode of its parent; parents that are missing become containers."""
    *parents, leaf = name.split(".")
    parent = model
    for part in parents:
        if not hasattr(parent, part):
            parent.add_module(part, nn.Module())
        parent = parent.get_submodule(part)
    parent.add_module(leaf, module.train(parent.training))


def add_buffer(net: fx.GraphModule, name: str, value: Tensor) -> str:
    """Register a buffer on the network's device under a name like ``name``; the name."""
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    name = fresh_name(net, name.replace(".", "_"))
    net.register_buffer(name, value.to(device))
    return name


def module_of(net: fx.GraphModule, node: Argument) -> nn.Module | None:
    """The module that a node calls, or None."""
    if isinstance(node, Node) and node.op == "call_module":
        return net.get_submodule(str(node.target))
    return None


def calls(net: fx.GraphModule) -> Counter[nn.Module | None]:
    """How often each module is called."""
    return Counter(module_of(net, node) for node in net.graph.nodes if node.op == "call_module")


def is_tied(net: fx.GraphModule, module: nn.Module | None) -> bool:
    """Whether another module has a parameter of this one."""
    own = set() if module is None else set(module.parameters())
    return any(p in own for m in net.modules() if m is not module for p in m.parameters(recurse=False))


def is_plain(module: nn.Module | None) -> bool:
    """Whether a module is a linear or convolution layer of torch's own, with its weight as a parameter."""
    return isinstance(module, nn.Linear | _ConvNd) and isinstance(
        module._parameters.get("weight"), nn.Parameter
    )


def is_transposed(module: nn.Module | None) -> bool:
    """Whether a module is a transposed convolution, whose weight has its inputs first."""
    return isinstance(module, _ConvTransposeNd)


def is_norm(module: nn.Module | None) -> bool:
    """Whether a module is a batch norm with running statistics: the same affine map of every input."""
    return isinstance(module, _BatchNorm) and module.running_mean is not None


def has_weight(net: fx.GraphModule, node: Node) -> bool:
    """Whether a node multiplies its input with a weight."""
    module = module_of(net, node)
    if module is None:
        return node.target in PRODUCTS
    return isinstance(module, _Geometric | Propagation) or any(p.dim() > 1 for p in module.parameters())


def is_reachable(start: Node, end: Node) -> bool:
    """Whether the value of ``start`` enters that of ``end``."""
    stack, seen = [start], {start}
    while stack:
        for user in stack.pop().users:
            if user is end:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return False
