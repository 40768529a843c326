"""What every conversion hands over, and the check that it has kept the network's function."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

from relucid.convert.graph import (
    Batch,
    ConversionError,
    arguments,
    has_weight,
    is_relu_call,
    module_of,
)
from relucid.inspect import examine
from relucid.nn import CReLU
from relucid.nn.geometric import _Geometric

Layers = str | Sequence[str] | None
Status = Literal["changed", "kept", "refused"]

# Largest relative difference of outputs, by precision; the gradients of a sum may differ a hundred times as much.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Change:
    """What became of one layer."""

    name: str
    kind: str  #: the class of the layer, or the function
    status: Status
    reason: str  #: what was done, or why nothing was


@dataclass(frozen=True)
class Conversion:
    """A converted network, and how far it is from the original on the example."""

    model: nn.Module
    changes: tuple[Change, ...]  #: one for every rectified or weighted layer of the original
    max_error: float  #: the largest difference of an output
    relative_error: float  #: the same, divided by the largest output
    gradient_error: float  #: the same for the gradients of all parameters that both networks have
    parameters: tuple[int, int]  #: how many there were, and are
    multiply_adds: tuple[int, int]  #: of weights with inputs, for the example: how many there were, and are

    def summary(self) -> str:
        """One line a layer, then the differences."""
        lines = [f"{c.status}: {c.name} ({c.kind}): {c.reason}" for c in self.changes]
        for what, (before, after) in ("parameters", self.parameters), ("multiply-adds", self.multiply_adds):
            lines.append(f"{what}: {before:,} -> {after:,}")
        lines.append(
            f"largest difference of the outputs: {self.max_error:.2g} ({self.relative_error:.2g} relative)"
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the network, as plain values."""
        return {
            "changes": [vars(change) for change in self.changes],
            "max_error": self.max_error,
            "relative_error": self.relative_error,
            "gradient_error": self.gradient_error,
            "parameters": list(self.parameters),
            "multiply_adds": list(self.multiply_adds),
        }


class Ledger:
    """What is said of every rectified or weighted layer of a network, and why it is kept if nothing is said."""

    def __init__(self, net: fx.GraphModule, model: nn.Module, *, weighted: str, relu: str) -> None:
        self._otherwise: dict[Node, str] = {}
        for node in net.graph.nodes:
            if has_weight(net, node):
                self._otherwise[node] = weighted
            elif is_relu_call(net, node):
                self._otherwise[node] = relu
            elif is_activation(net, node):
                self._otherwise[node] = "not a ReLU"
        self._names = {node: (name_of(node), kind_of(net, node)) for node in self._otherwise}
        self._added: list[Change] = []
        self._notes: dict[Node, tuple[Status, list[str]]] = {}
        called = {name for name, _ in self._names.values()}
        self._unused = [
            Change(name, type(module).__name__, "kept", "not used on the example")
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear | _ConvNd) and not _is_within(name, called)
        ]

    def note(self, node: Node, status: Status, reason: str) -> None:
        """Say something of a layer. What is changed in one way may be kept in another, and counts as changed."""
        before, reasons = self._notes.get(node, (status, []))
        order: tuple[Status, ...] = ("kept", "refused", "changed")
        self._notes[node] = max(before, status, key=order.index), [*reasons, reason]

    def add(self, name: str, kind: str, status: Status, reason: str) -> None:
        """Say something of what is no layer."""
        self._added.append(Change(name, kind, status, reason))

    def changes(self) -> tuple[Change, ...]:
        """All that was said."""
        said = []
        for node, (name, kind) in self._names.items():
            status, reasons = self._notes.get(node, ("kept", [self._otherwise[node]]))
            said.append(Change(name, kind, status, "; ".join(reasons)))
        return (*said, *self._added, *self._unused)


def _is_within(name: str, called: Iterable[str]) -> bool:
    return any(name == c or name.startswith(f"{c}.") for c in called)


def name_of(node: Node) -> str:
    """The full name of the module that a node calls, or of the node."""
    return str(node.target) if node.op == "call_module" else node.name


def kind_of(net: fx.GraphModule, node: Node) -> str:
    """The class of the module or the name of the function that a node calls."""
    module = module_of(net, node)
    return getattr(node.target, "__name__", str(node.target)) if module is None else type(module).__name__


def is_activation(net: fx.GraphModule, node: Node) -> bool:
    """Whether a node is an activation of torch's or ours, a ReLU or not."""
    module = module_of(net, node)
    if module is not None:
        return type(module).__module__ in ("torch.nn.modules.activation", "relucid.nn.activation")
    name = getattr(node.target, "__name__", node.target)
    return name in {
        "relu6",
        "leaky_relu",
        "prelu",
        "elu",
        "selu",
        "gelu",
        "silu",
        "hardswish",
        "hardtanh",
        "mish",
    }


def sources(net: fx.GraphModule, node: Node) -> tuple[str, ...]:
    """The names of the weighted layers that feed a node, with nothing but unweighted operations between."""
    names: dict[str, None] = {}
    stack, seen = list(node.all_input_nodes), set(node.all_input_nodes)
    while stack:
        before = stack.pop()
        if has_weight(net, before):
            names[name_of(before)] = None
        elif not is_relu_call(net, before) and not isinstance(module_of(net, before), CReLU):
            new = [n for n in before.all_input_nodes if n not in seen]
            seen.update(new)
            stack.extend(new)
    return tuple(names)


def select(
    names: Mapping[Node, tuple[str, ...]], layers: Layers, suggested: Callable[[], list[str]]
) -> set[Node]:
    """The nodes, one of whose names is in ``layers`` or matches a glob in it.

    All of them for None; for "auto" those that ``suggested`` names.
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
            raise ValueError(f"no layer that can be converted is named {pattern!r}; there are: {there_are}")
        chosen |= found
    return chosen


def suggestions(model: nn.Module, example: Batch, conversion: str, mode: str | None = None) -> list[str]:
    """The layers for which `relucid.inspect.examine` suggests a conversion."""
    suggested = examine(model, example).suggestions()
    return [name for s in suggested if (s.conversion, s.mode) == (conversion, mode) for name in s.layers]


def finish(
    model: nn.Module, net: fx.GraphModule, example: Batch, ledger: Ledger, tolerance: float | None
) -> Conversion:
    """The conversion, if the network computes on the example what ``model`` does; else an error."""
    net.graph.eliminate_dead_code()
    net.graph.lint()
    net.delete_all_unused_submodules()
    net.recompile()
    before, after = _Run(model, example), _Run(net, example)
    error, relative = difference(before.outputs, after.outputs)
    limit = TOLERANCE[before.dtype] if tolerance is None else tolerance
    if not relative <= limit:
        raise ConversionError(
            f"the converted network differs by {relative:.2g} of the largest output, more than {limit:.2g}; "
            "it is not handed over"
        )
    gradients = _gradient_difference(before, after)
    if tolerance is None and not gradients <= 100 * limit:
        raise ConversionError(
            f"gradients of the converted network differ by {gradients:.2g}, more than {100 * limit:.2g}; "
            "it is not handed over"
        )
    return Conversion(
        net,
        ledger.changes(),
        error,
        relative,
        gradients,
        (sum(p.numel() for p in model.parameters()), sum(p.numel() for p in net.parameters())),
        (before.multiply_adds, after.multiply_adds),
    )


class _Run:
    """The outputs of a network on an example, the gradients of a fixed sum of them, and the work."""

    def __init__(self, model: nn.Module, example: Batch) -> None:
        model = copy.deepcopy(model).eval()
        self.multiply_adds = 0
        hooks = [m.register_forward_hook(self._count) for m in model.modules() if _is_counted(m)]
        args, kwargs = arguments(copy.deepcopy(example))
        with torch.enable_grad():
            outputs = [x for x in tensors(model(*args, **kwargs)) if x.is_floating_point()]
            if not outputs:
                raise ConversionError("the network returns no floating-point tensor to compare")
            generator = torch.Generator().manual_seed(0)
            total = sum((x * torch.randn(x.shape, generator=generator).to(x)).sum() for x in outputs)
        for hook in hooks:
            hook.remove()
        self.outputs = [x.detach() for x in outputs]
        self.dtype = self.outputs[0].dtype
        self.values = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.gradients: dict[str, Tensor | None] = {}
        if isinstance(total, Tensor) and total.requires_grad and self.values:
            found = torch.autograd.grad(total, list(self.values.values()), allow_unused=True)
            self.gradients = dict(zip(self.values, found, strict=True))

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight: Any = module.weight
        places = inputs[0].numel() if getattr(module, "transposed", False) else output.numel()
        self.multiply_adds += places * weight[0].numel()


def tensors(value: Any) -> list[Tensor]:
    """All tensors in a network's output, containers and dataclasses looked into."""
    if isinstance(value, Tensor):
        return [value]
    if is_dataclass(value):
        return [x for field in fields(value) for x in tensors(getattr(value, field.name))]
    return [x for leaf in tree_leaves(value) if leaf is not value for x in tensors(leaf)]


def _is_counted(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | _ConvNd | _Geometric)


def difference(before: list[Tensor], after: list[Tensor]) -> tuple[float, float]:
    """The largest difference between two lists of tensors, and the same divided by the largest entry.

    >>> difference([torch.tensor([1.0, 4.0])], [torch.tensor([1.0, 3.0])])
    (1.0, 0.25)
    """
    if [x.shape for x in before] != [x.shape for x in after]:
        return float("inf"), float("inf")
    errors = [
        float((x.double() - y.double()).abs().max()) for x, y in zip(before, after, strict=True) if x.numel()
    ]
    sizes = [float(x.double().abs().max()) for x in before if x.numel()]
    relative = [e / s if s else e for e, s in zip(errors, sizes, strict=True)]
    return max(errors, default=0.0), max(relative, default=0.0)


def _gradient_difference(before: _Run, after: _Run) -> float:
    """The length of the difference of the gradients of all layers that were not changed, by their length."""
    apart = length = 0.0
    layers, others = _by_layer(before), _by_layer(after)
    for layer, parameters in layers.items():
        other = others.get(layer, {})
        if parameters.keys() != other.keys() or not all(
            torch.equal(p, other[n]) for n, p in parameters.items()
        ):
            continue
        for name in parameters:
            g, h = before.gradients[name], after.gradients[name]
            if g is not None and h is not None:
                apart += float((g.double() - h.double()).square().sum())
                length += float(g.double().square().sum())
    return math.sqrt(apart / length) if length else math.sqrt(apart)


def _by_layer(run: _Run) -> dict[str, dict[str, Tensor]]:
    layers: dict[str, dict[str, Tensor]] = {}
    for name in run.gradients:
        layers.setdefault(name.rpartition(".")[0], {})[name] = run.values[name].detach()
    return layers
