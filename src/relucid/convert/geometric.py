"""Weights to angles and radii: geometric parameterization of an existing network (gmp)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, ConvTransposeNd
from relucid.convert._edits import Edits, optimizers_of
from relucid.convert._steps import BLOCK, Step, largest, signs_of
from relucid.convert.conversion import Conversion, Status, conversion
from relucid.convert.examples import Given
from relucid.convert.modules import plain_class
from relucid.convert.network import Layers, Note, RecordedModel, select
from relucid.convert.norms import relu_after
from relucid.convert.search import converted, delivered, largest_valid_subset
from relucid.inspect.execution import Method, Node
from relucid.nn import (
    GeometricConv1d,
    GeometricConv2d,
    GeometricConv3d,
    GeometricLayer,
    GeometricLinear,
)
from relucid.nn.sphere import direction

GEOMETRIC: dict[type[nn.Module], Any] = {
    nn.Linear: GeometricLinear,
    nn.Conv1d: GeometricConv1d,
    nn.Conv2d: GeometricConv2d,
    nn.Conv3d: GeometricConv3d,
}
FARTHEST = 1000.0  # an offset is also the gradient of its scale: larger ones let the first step diverge


@dataclass(frozen=True, eq=False)
class Geometric(Step):
    """A layer described by directions, offsets and scales, with its ReLU inside or not."""

    relu: str | None = None

    def apply(self, edits: Edits) -> None:
        """Change the module, and the ReLU after it."""
        layer: Any = edits.model.get_submodule(self.name)
        new = GEOMETRIC[plain_class(layer)].from_standard(layer, nn.ReLU() if self.relu else None)
        signs = signs_of(self.name, layer)
        edits.turn(self.name, new)
        for step in signs:
            step.apply(edits)
        if self.relu is not None:
            edits.turn(self.relu, nn.Identity())

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of all modules that change."""
        return (self.name,) if self.relu is None else (self.name, self.relu)

    @torch.no_grad()
    def check(self, before: Any, after: Any) -> float:
        """Compare the rows r u with w, relative to their lengths, and the biases."""
        if not isinstance(after, GeometricLayer) or (self.relu is None) != (after.activation is None):
            return math.inf
        if any(getattr(before, key) != getattr(after, key) for key in after.arguments):
            return math.inf
        pairs: list[tuple[Any, Any]] = [
            (before.weight, after.latitudes),
            (before.weight, after.scale),
            (before.bias, after.offset),
        ]
        if any(
            (a is None) != (b is None) or (a is not None and a.requires_grad != b.requires_grad)
            for a, b in pairs
        ):
            return math.inf
        rows, worst = before.weight.flatten(1), 0.0
        lengths = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
        size = max(1, BLOCK // rows.shape[1])
        for old, new, length in zip(
            rows.split(size), _weights_of(after, size), lengths.split(size), strict=True
        ):
            length.copy_(torch.linalg.vector_norm(old, dim=1, dtype=torch.float64))
            gap = torch.linalg.vector_norm(old - new, dim=1, dtype=torch.float64)
            worst = max(worst, largest(gap / length.clamp(min=1e-300)))
        eps = torch.finfo(after.latitudes.dtype).eps
        worst /= 2 + 0.7 * math.sqrt(rows.shape[1])
        if before.bias is not None:
            gap = (before.bias.double() - after.scale.double() * after.offset.double()).abs()  # type: ignore[union-attr]
            worst = max(worst, largest(gap / before.bias.double().abs().maximum(lengths)) / 4)
        return worst / eps


@conversion
def to_geometric(
    model: nn.Module,
    example: Given,
    layers: Layers = None,
    *,
    inplace: bool = False,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    call: Method | None = None,
    tolerance: float | None = None,
) -> Conversion:
    """The same network with linear and convolution layers described by directions, offsets and scales.

    A ReLU that is a module of its own, called once and after the layer alone, moves inside it: scales are lengths, so
    r relu(s) is relu(r s) (gmp Eq. 15). A batch norm stays; to fold it into its layer, `fuse` the network first.

    Args:
        model: Any network.
        example: Its input: a tensor or array, a tuple of positional or a mapping of keyword arguments, a loader or
            data set, of which the first batch is taken, or a list of several examples.
        layers: Names or globs. By default all but output layers, which learn no features (gmp 4.1).
        inplace: Convert the network itself; by default a copy.
        optimizer: With ``inplace``, an optimizer to take along. Its state for the converted layers starts anew. A
            warning is given if it decays their latitudes.
        call: How the network is used, if not through its forward: a method's name, or a function of the network and
            the example.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> conversion = to_geometric(net, torch.randn(5, 4))
    >>> [type(layer).__name__ for layer in conversion.model]
    ['GeometricLinear', 'Identity', 'Linear']
    >>> for change in conversion.changes:
    ...     print(change.status, change.name, change.reason)
    changed 0 geometric, with its ReLU inside
    changed 1 inside 0
    kept 2 the output layer learns no features
    """
    network = RecordedModel(model, example, call)
    products = {node.name: node for node in network.nodes if node.has_weight}
    names = select({name: (name.partition("#")[0],) for name in products}, layers)
    chosen, left = _chosen(network, products, names, layers)
    relus = {name: relu for name in chosen if (relu := relu_after(network, name))}

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        notes: list[Note] = [*left, *((name, "refused", reason) for name, reason in dropped.items())]
        for name in names:
            notes.append((name, "changed", f"geometric{', with its ReLU inside' if name in relus else ''}"))
            if name in relus:
                notes.append((relus[name], "changed", f"inside {name}"))
        steps = [Geometric(name, relus.get(name)) for name in names]
        same = {name: relus[name] for name in names if name in relus}
        changes = network.changes(notes, "not chosen", "it stays outside the layers")
        options: Any = {"same": same, "sizes": False, "tolerance": tolerance, "inplace": inplace}
        return converted(network, steps, changes, **options)

    owners = {relu: name for name, relu in relus.items()}
    result = largest_valid_subset(chosen, attempt, lambda layer: {owners.get(layer, layer)})
    result = delivered(network, result, inplace, optimizer)
    for one in optimizers_of(optimizer):
        _warn_of_decay(result.model, one)
    return result


def _warn_of_decay(model: nn.Module, optimizer: Optimizer) -> None:
    """Warn if an optimizer decays latitudes, which moves all of a direction into its last coordinate."""
    latitudes = {module.latitudes for module in model.modules() if isinstance(module, GeometricLayer)}
    decayed = (group["params"] for group in optimizer.param_groups if group.get("weight_decay"))
    if any(not latitudes.isdisjoint(parameters) for parameters in decayed):
        warnings.warn(
            f"{type(optimizer).__name__} decays the directions of geometric layers; give them a group with "
            "weight_decay=0, or make a new optimizer with relucid.nn.parameter_groups",
            stacklevel=4,
        )


def _chosen(
    network: RecordedModel, products: Mapping[str, Node], names: set[str], layers: Layers
) -> tuple[list[str], list[Note]]:
    """The layers to convert, in order, and notes on the others."""
    followed: set[Node] = set()
    for node in reversed(network.nodes):
        if node.has_weight or node in followed:
            stack = node.upstream
            while stack:  # memory that was written through several views is no operation of its own
                before = stack.pop()
                followed.add(before)
                stack += before.upstream if before.op == "overwritten" else []
    chosen: dict[str, None] = {}
    notes: list[Note] = []
    for label, node in products.items():
        name = label.partition("#")[0]
        if label not in names:
            continue
        obstacle = _obstacle(network, name, node)
        if obstacle is not None:
            notes.append((label, *obstacle))
        elif layers is None and node not in followed:
            notes.append((label, "kept", "the output layer learns no features"))
        elif name in chosen or label == name:
            chosen[name] = None
            if label != name:
                notes.append((label, "changed", "geometric"))
    return list(chosen), notes


def _obstacle(network: RecordedModel, name: str, node: Node) -> tuple[Status, str] | None:
    """Why a layer cannot be made geometric, or None."""
    module = network.modules.get(name)
    if isinstance(module, GeometricLayer):
        return "kept", "geometric already"
    if not isinstance(module, nn.Linear | ConvNd) or plain_class(module) not in GEOMETRIC:
        if isinstance(module, ConvTransposeNd):
            return "refused", "transposed convolutions have no geometric form"
        what = "a product with a tensor" if module is None else type(module).__name__
        return "refused", f"{what} has no geometric form; nn.Linear and nn.Conv1d to nn.Conv3d have"
    if not isinstance(module.weight, nn.Parameter) or node.module != name:
        return "refused", "its weight is computed from others (parametrized), or used by another module"
    if "forward" in vars(module):
        return "refused", "it has a forward method of its own"
    if network.shared(name):
        return "refused", "another layer has the same weight, or it is read as a tensor"
    if any(p in network.held for p in module.parameters()):
        return "refused", "its weight or bias is also held outside of it, in a list for a penalty, say"
    if not module.weight.is_floating_point():
        return "refused", f"its weights are {module.weight.dtype}"
    if module.bias is not None and module.weight.requires_grad and not module.bias.requires_grad:
        return "refused", "its bias is frozen and its weight is not; training the scales would move it"
    if not all(p.isfinite().all() for p in module.parameters()):
        return "refused", "its weights hold NaN or infinity"
    if not module.weight.numel():
        return "kept", "it has no filters, or no inputs"
    zero = (module.weight.flatten(1) == 0).all(1).nonzero().flatten().tolist()
    if zero:
        some = ", ".join(map(str, zero[:5])) + (", ..." if len(zero) > 5 else "")
        return "kept", f"{len(zero)} filters are exactly zero and have no direction: {some}"
    if (far := _farthest(module.weight, module.bias)) > FARTHEST:
        return "kept", f"the boundary of a unit is {far:.2g} from 0, too far to be trained by its offset"
    return None


@torch.no_grad()
def _farthest(weight: Tensor, bias: Tensor | None) -> float:
    """The largest distance of a unit's boundary from 0; infinite for a filter whose length rounds to 0."""
    lengths = weight.double().flatten(1).norm(dim=1)
    if bool((lengths == 0).any()):
        return math.inf
    return 0.0 if bias is None else float((bias.double().abs() / lengths).max())


def _weights_of(layer: Any, size: int) -> Iterable[Tensor]:
    """The rows that a geometric layer's numbers describe, in float64, some at a time.

    In float32, cosines of some processors lean to one side: the product of 9,216 is off by twice what chance allows.
    """
    for start in range(0, len(layer.latitudes), size):
        part = slice(start, start + size)
        scale = None if layer.scale is None else layer.scale[part].double()
        rows = direction(layer.latitudes[part].double(), scale)
        yield rows if layer.sign is None else rows * layer.sign[part]
