"""What every conversion returns, and what it reports on every layer."""

import functools
import gc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves, tree_map_only

from relucid.convert.capture import ONE_AT_A_TIME, captured, copied_network, where
from relucid.convert.check import References
from relucid.convert.flow import key
from relucid.convert.graph import (
    Batch,
    ConversionError,
    arguments,
    has_weight,
    is_plain,
    is_rectified,
    is_relu_call,
    kind_at,
    left_alone,
)
from relucid.convert.network import Network
from relucid.inspect import examine
from relucid.nn.geometric import _Geometric
from relucid.nn.kinds import KINDS, Kind
from relucid.printing import Tabular

# Activations without a boundary; as functions, only those that are not used as gates.
SMOOTH: set[Any] = {
    *(nn.Sigmoid, nn.Hardsigmoid, nn.LogSigmoid, nn.Tanh, nn.Tanhshrink, nn.Softsign, nn.Softplus, nn.GLU),
    *(nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Softshrink, nn.Hardshrink),
    *(nn.Softmin, nn.Softmax, nn.Softmax2d, nn.LogSoftmax),
    *(F.elu, F.selu, F.gelu, F.silu, F.hardswish, F.mish),
}

Layers = str | Sequence[str] | None
Status = Literal["changed", "kept", "refused"]


@dataclass(frozen=True)
class Change:
    """What became of one layer."""

    name: str
    kind: str  #: the class of the layer, or the function
    status: Status
    reason: str  #: what was done, or why nothing was done


@dataclass(frozen=True)
class Conversion(Tabular):
    """A converted network, and how far it is from the original on the example."""

    model: nn.Module
    changes: tuple[Change, ...]  #: one per rectified or weighted layer of the original
    max_error: float  #: the largest difference of an output
    relative_error: float  #: the same, divided by the largest output
    gradient_error: float  #: the same for the gradients of all parameters that both networks have
    parameters: tuple[int, int]  #: before and after
    multiply_adds: tuple[int, int]  #: on the example, before and after

    def rows(self) -> list[dict[str, str]]:
        """Return what became of each layer."""
        return [
            {"layer": c.name, "kind": c.kind, "status": c.status, "reason": c.reason} for c in self.changes
        ]

    def summary(self) -> str:
        """Return one line per layer, then the differences."""
        lines = [f"{c.status}: {c.name} ({c.kind}): {c.reason}" for c in self.changes]
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """Return the sizes and the differences."""
        lines = []
        for what, (before, after) in ("parameters", self.parameters), ("multiply-adds", self.multiply_adds):
            lines.append(f"{what}: {before:,} -> {after:,}")
        lines.append(
            f"largest difference of the outputs: {self.max_error:.2g} ({self.relative_error:.2g} relative)"
        )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the network, as plain values."""
        return {
            "changes": [vars(change) for change in self.changes],
            "max_error": self.max_error,
            "relative_error": self.relative_error,
            "gradient_error": self.gradient_error,
            "parameters": list(self.parameters),
            "multiply_adds": list(self.multiply_adds),
        }


class ArgumentError(ValueError):
    """An argument of a conversion is wrong; the network is not to blame."""


Arguments = ParamSpec("Arguments")


def conversion(convert: Callable[Arguments, Conversion]) -> Callable[Arguments, Conversion]:
    """Return ``convert`` with the random state preserved and every error turned into one sentence.

    A call that does not fit its signature is a `TypeError`, as for any function.
    """
    signature = inspect.signature(convert)

    @functools.wraps(convert)
    def converted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Conversion:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            takes = ", ".join(signature.parameters)
            raise TypeError(f"{convert.__name__}() {error}; its arguments are {takes}") from None
        for name in ("tolerance", "budget"):
            if (value := given.get(name)) is not None and not value >= 0:
                raise ArgumentError(f"{name}={value} must be 0 or more")
        with (
            ONE_AT_A_TIME,
            _seldom_collected(),
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
        ):
            try:
                return convert(*args, **kwargs)
            except (ConversionError, ArgumentError):
                raise
            except Exception as error:
                model: object = args[0] if args else kwargs.get("model")
                name, what = type(model).__name__, f"{type(error).__name__}: {error}"
                raise ConversionError(f"{name} cannot be converted{where(error)}: {what}") from error

    return converted


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let Python look for garbage less often: it takes long among so many new nodes, and finds next to nothing."""
    before = gc.get_threshold()
    if before[0]:  # 0: never
        gc.set_threshold(max(before[0], 20_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Original:
    """A network to be converted, and what it computes on the example and on other sizes that it takes."""

    def __init__(self, model: nn.Module, example: Batch) -> None:
        _check_network(model)
        _check_example(example)
        example = tree_map_only(Tensor, lambda x: x.clone() if x.is_inference() else x, example)
        self.model, self.example = model, example
        self._copy = copied_network(model)
        self.references = References(model, example)

    def capture(self) -> Network:
        """Return the network as a graph for both modes; can be called once."""
        return captured(self._copy, self.example, self.references.others)

    def capture_evaluation(self, prepare: Callable[[nn.Module], nn.Module]) -> Network:
        """Return a copy of the network, changed by ``prepare``, as a graph for evaluation; can be called once."""
        return captured(prepare(self._copy), self.example, self.references.others, both_modes=False)

    def finish(
        self,
        net: Network,
        ledger: "Ledger",
        tolerance: float | None,
        *,
        training: bool = True,
        rounded: bool = True,
    ) -> Conversion:
        """Return the conversion; raise an error unless ``net`` computes what the original does.

        ``training`` and ``rounded`` are those of `References.check`.
        """
        net.graph.eliminate_dead_code(_is_impure)
        net.graph.lint()
        _drop_replaced(net)
        net.recompile()
        found = self.references.check(net, tolerance, training=training, rounded=rounded)
        sizes = _size(self.model), _size(net)
        return Conversion(
            *(net, ledger.changes(), found.error, found.relative, found.gradient, sizes, found.multiply_adds)
        )


def _check_network(model: nn.Module) -> None:
    """Raise an error for a single layer, which no graph can replace: it has no name in itself."""
    name, reason = type(model).__name__, left_alone(type(model))
    if reason is not None:
        raise ConversionError(
            f"{name} is a single layer, and {reason}; give a network that has other layers, too"
        )
    if is_plain(model) or isinstance(model, _Geometric):
        raise ConversionError(f"{name} is a single layer, not a network of layers; put it into nn.Sequential")


def _check_example(example: Batch) -> None:
    """Raise an error for an example on which every network would seem to compute the same."""
    found = [x for x in tree_leaves(arguments(example)) if isinstance(x, Tensor)]
    if found and not any(x.numel() for x in found):
        raise ArgumentError("the example has no elements; give a batch of at least one input")
    if any(bool((x.isnan() | x.isposinf()).any()) for x in found if x.is_floating_point()):
        # Negative infinity is what masks of attention are made of.
        raise ArgumentError("the example holds NaN or infinity; give one of finite numbers")


def _drop_replaced(net: Network) -> None:
    """Delete the modules that were called, or added, and are not called any more."""
    called = {str(node.target) for node in net.graph.nodes if node.op == "call_module"}
    for name, module in list(net.named_modules()):
        is_new = name not in net.meta["names"] and type(module) is not nn.Module
        if (is_new or name in net.meta["called"]) and not _is_within(name, called):
            if any(other.startswith(f"{name}.") for other in called):
                rest = nn.Module()
                rest._modules.update(module._modules)
                net.set_submodule(name, rest)
            else:
                net.delete_submodule(name)
    del net.meta["names"], net.meta["called"]


def _is_impure(node: Node) -> bool:
    return bool(node.is_impure() or node.meta.get("mutates") or node.meta.get("impure"))


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


class Ledger:
    """What is reported on every rectified or weighted layer; ``weighted`` and ``relu`` say why one was kept."""

    def __init__(self, net: fx.GraphModule, model: nn.Module, *, weighted: str, relu: str) -> None:
        self._otherwise: dict[Node, str] = {}
        for node in net.graph.nodes:
            if has_weight(net, node):
                self._otherwise[node] = left_alone(key(net, node)) or weighted
            elif is_activation(net, node):
                self._otherwise[node] = relu if is_relu_call(net, node) else _why_no_relu(kind_at(net, node))
            if "kept" in node.meta:
                self._otherwise[node] = node.meta["kept"]
        self._names = {node: (name_of(node), kind_of(net, node)) for node in self._otherwise}
        self._added = [
            Change(name or type(model).__name__, "decision", "kept", f"decided at {line} as for the example")
            for name, line in net.meta.get("decisions", ())
        ]
        self._notes: dict[Node, tuple[Status, list[str]]] = {}
        called = {name for name, _ in self._names.values()}
        self._unused = [
            Change(name, type(module).__name__, "kept", "not used on the example")
            for name, module in model.named_modules()
            if name and isinstance(module, nn.Linear | _ConvNd) and not _is_within(name, called)
        ]

    def note(self, node: Node, status: Status, reason: str) -> None:
        """Report on a layer; one that is changed in one way and kept in another counts as changed."""
        before, reasons = self._notes.get(node, (status, []))
        order: tuple[Status, ...] = ("kept", "refused", "changed")
        self._notes[node] = max(before, status, key=order.index), [*reasons, reason]

    def add(self, name: str, kind: str, status: Status, reason: str) -> None:
        """Report on something that is not a layer."""
        self._added.append(Change(name, kind, status, reason))

    def changes(self) -> tuple[Change, ...]:
        """Return everything that was reported."""
        said = []
        for node, (name, kind) in self._names.items():
            status, reasons = self._notes.get(node, ("kept", [self._otherwise[node]]))
            said.append(Change(name, kind, status, "; ".join(reasons)))
        return (*said, *self._added, *self._unused)


def _why_no_relu(kind: Kind | None) -> str:
    """Return why an activation is not treated as a ReLU."""
    if kind == KINDS["relu"]:
        return "works in place on a view"
    return "CReLU already" if kind is not None and kind.doubled else "not a ReLU"


def _is_within(name: str, called: set[str]) -> bool:
    """Return whether a module or one that contains it is among ``called``."""
    while name and name not in called:
        name = name.rpartition(".")[0]
    return bool(name)


def name_of(node: Node) -> str:
    """Return the full name of the module that a node calls, or the node's own."""
    return str(node.target) if node.op == "call_module" else node.name


def kind_of(net: fx.GraphModule, node: Node) -> str:
    """Return the name of the class of the module, or of the function, that a node calls."""
    if node.op == "call_module":
        return type(net.get_submodule(str(node.target))).__name__
    return getattr(node.target, "__name__", str(node.target))


def is_activation(net: fx.GraphModule, node: Node) -> bool:
    """Return whether a node is an activation of torch's or ours, a ReLU or not."""
    return kind_at(net, node) is not None or key(net, node) in SMOOTH


def sources(net: fx.GraphModule, node: Node) -> tuple[str, ...]:
    """Return the names of the weighted layers that feed a node, with only unweighted operations between."""
    names: dict[str, None] = {}
    stack, seen = list(node.all_input_nodes), set(node.all_input_nodes)
    while stack:
        before = stack.pop()
        if has_weight(net, before):
            names[name_of(before)] = None
        elif kind_at(net, before) is None:
            new = [n for n in before.all_input_nodes if n not in seen]
            seen.update(new)
            stack.extend(new)
    return tuple(names)


def select(
    names: Mapping[Node, tuple[str, ...]], layers: Layers, suggested: Callable[[], list[str]]
) -> set[Node]:
    """Return the nodes with a name that is in ``layers`` or matches a glob in it.

    None selects all of them, "auto" those that ``suggested`` names.
    """
    if layers is None:
        return set(names)
    known = {name for own in names.values() for name in own}
    if layers == "auto":
        layers = [name for name in suggested() if name in known]
    chosen = set()
    for pattern in [layers] if isinstance(layers, str) else layers:
        found = {node for node, own in names.items() if any(fnmatchcase(name, pattern) for name in own)}
        if not found:
            there_are = ", ".join(sorted(known)) or "none"
            raise ArgumentError(
                f"no layer that can be converted is named {pattern!r}; there are: {there_are}"
            )
        chosen |= found
    return chosen


def chosen_activations(
    net: fx.GraphModule,
    layers: Layers,
    suggested: Callable[[], list[str]],
    eligible: Callable[[fx.GraphModule, Node], bool] = is_rectified,
) -> list[Node]:
    """Return the activations that ``layers`` names, themselves or by the layers that feed them; all for None."""
    nodes = [node for node in net.graph.nodes if eligible(net, node)]
    if layers is None:
        return nodes
    chosen = select({node: (name_of(node), *sources(net, node)) for node in nodes}, layers, suggested)
    return [node for node in nodes if node in chosen]


def suggestions(model: nn.Module, example: Batch, conversion: str, mode: str | None = None) -> list[str]:
    """Return the layers for which `relucid.inspect.examine` suggests a conversion."""
    suggested = examine(model, example).suggestions()
    return [name for s in suggested if (s.conversion, s.mode) == (conversion, mode) for name in s.layers]
