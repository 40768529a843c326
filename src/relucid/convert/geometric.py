"""Weights to angles and radii: geometric parameterization of an existing network (gmp)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, ConvTransposeNd
from relucid.convert.conversion import Conversion, Status, conversion
from relucid.convert.copies import copied
from relucid.convert.examples import Batch, arguments, batches
from relucid.convert.heavyball import depends
from relucid.convert.norms import pads_with_zeros, readers_of
from relucid.convert.subject import Layers, Subject, select, working
from relucid.convert.surgery import GEOMETRIC, Surgery
from relucid.inspect.execution import Node
from relucid.inspect.operations import BATCH_NORMS
from relucid.nn import GeometricLayer
from relucid.nn.affine import affine_before, padding_of

FARTHEST = 1000.0  # an offset is also the gradient of its scale: larger ones let the first step diverge


@conversion
def to_geometric(
    model: nn.Module,
    example: Batch | list[Batch],
    layers: Layers = None,
    *,
    center: Any = None,
    inplace: bool = False,
    optimizer: Optimizer | None = None,
    tolerance: float | None = None,
) -> Conversion:
    """The same network with linear and convolution layers described by directions, offsets and scales.

    A ReLU that is a module of its own, called once and after the layer alone, moves inside it: scales are lengths, so
    r relu(s) is relu(r s) (gmp Eq. 15). A batch norm stays; to fold it into its layer, `fuse` the network first.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments, or a list of several.
        layers: Names or globs. By default all but output layers, which learn no features (gmp 4.1).
        center: Data in any form that `relucid.inspect.examine` takes. If given, an input mean normalization (IMN)
            with the mean of these data is inserted before every converted layer but the first and those on a
            shortcut, and the layer's offset compensates for it. Before a zero-padded convolution it pads, then
            centres.
        inplace: Convert the network itself; by default a copy.
        optimizer: With ``inplace``, an optimizer to take along. Its state for the converted layers starts anew. A
            warning is given if it decays their latitudes.
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
    subject = Subject(model, example)
    report = subject.report
    report.weighted, report.rectified = "not chosen", "it stays outside the layers"
    products = {node.name: node for node in subject.nodes if node.has_weight}
    names = select({name: (name.partition("#")[0],) for name in products}, layers)
    data = None if center is None else batches(center, subject.references.examples[0])
    plan = _Plan(subject, _chosen(subject, products, names, layers), data)

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        plan.note(names, dropped)
        whole = len(names) + len(dropped) == len(plan.chosen)
        return subject.finish(
            partial(plan.perform, names),
            tolerance=tolerance,
            inplace=inplace and whole,
            optimizer=optimizer if whole else None,
            training=center is None,
        )

    found = working(plan.chosen, attempt)
    if optimizer is not None:
        _warn_of_decay(found.model, optimizer)
    return found


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


class _Plan:
    """The layers to convert, and for some of them the ReLU to take inside and the mean to subtract."""

    def __init__(self, subject: Subject, chosen: list[str], data: list[Batch] | None) -> None:
        self.report, self.chosen = subject.report, chosen
        self.relus = {name: relu for name in chosen if (relu := _relu_after(subject, name))}
        centred = [] if data is None else [name for name in chosen if _is_centred(subject, name)]
        self.means = {} if data is None else _means(subject, centred, data)

    def perform(self, names: list[str], surgery: Surgery) -> None:
        for name in names:
            padding = _compensate(surgery, name, self.means[name]) if name in self.means else []
            surgery.geometric(name, relu=name in self.relus)
            if name in self.relus:
                surgery.identity(self.relus[name])
            if (mean := self.means.get(name)) is not None:
                surgery.center(name, features=len(mean), padding=padding, mean=mean)

    def note(self, names: list[str], dropped: Mapping[str, str]) -> None:
        """Report on an attempt to convert ``names`` without those that were dropped."""
        self.report.forget([*self.chosen, *self.relus.values()])
        for name, reason in dropped.items():
            self.report.note(name, "refused", reason)
        for name in names:
            inside = ", with its ReLU inside" if name in self.relus else ""
            self.report.note(name, "changed", f"geometric{inside}")
            if name in self.means:
                self.report.note(name, "changed", "centred by IMN")
            if name in self.relus:
                self.report.note(self.relus[name], "changed", f"inside {name}")


def _chosen(subject: Subject, products: dict[str, Node], names: set[str], layers: Layers) -> list[str]:
    """The layers to convert, in order; the others are reported."""
    followed: set[Node] = set()
    for node in reversed(subject.nodes):
        if node.has_weight or node in followed:
            stack = node.upstream
            while stack:  # memory that was written through several views is no operation of its own
                before = stack.pop()
                followed.add(before)
                stack += before.upstream if before.op == "overwritten" else []
    chosen: dict[str, None] = {}
    for label, node in products.items():
        name = label.partition("#")[0]
        if label not in names:
            continue
        obstacle = _obstacle(subject, name, node)
        if obstacle is not None:
            subject.report.note(label, *obstacle)
        elif layers is None and node not in followed:
            subject.report.note(label, "kept", "the output layer learns no features")
        elif name in chosen or label == name:
            chosen[name] = None
            if label != name:
                subject.report.note(label, "changed", "geometric")
    return list(chosen)


def _obstacle(subject: Subject, name: str, node: Node) -> tuple[Status, str] | None:
    """Why a layer cannot be made geometric, or None."""
    module = subject.modules.get(name)
    if isinstance(module, GeometricLayer):
        return "kept", "geometric already"
    if not isinstance(module, nn.Linear | ConvNd) or type(module) not in GEOMETRIC:
        if isinstance(module, ConvTransposeNd):
            return "refused", "transposed convolutions have no geometric form"
        what = "a product with a tensor" if module is None else type(module).__name__
        return "refused", f"{what} has no geometric form; nn.Linear and nn.Conv1d to nn.Conv3d have"
    if not isinstance(module.weight, nn.Parameter) or node.module != name:
        return "refused", "its weight is computed from others (parametrized), or used by another module"
    if "forward" in vars(module):
        return "refused", "it has a forward method of its own"
    if subject.shared(name):
        return "refused", "another layer has the same weight, or it is read as a tensor"
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


def _relu_after(subject: Subject, name: str) -> str | None:
    """The ReLU that alone reads a module's value, if it is a module called once; None otherwise."""
    found = readers_of(subject, name)
    if found is None or len(found) != 1 or not isinstance(subject.modules.get(next(iter(found))), nn.ReLU):
        return None
    relu = next(iter(found))
    return relu if subject.counts[relu] == 1 else None


def _is_centred(subject: Subject, name: str) -> bool:
    """Whether IMN may precede a layer: not if it is the first, called more than once, or on a shortcut."""
    layer = subject.modules[name]
    (node, *others) = [n for n in subject.nodes if n.has_weight and n.module == name]
    (call, *more) = subject.recordings[0].calls_of[name]
    first_channels = not isinstance(layer, nn.Linear) or len(call.inputs[0].shape) == 2
    if more or (others and len(subject.evaluated) == 1) or not first_channels:
        return False
    return any(depends(node, n) for n in subject.nodes if n.has_weight) and not _is_shortcut(
        subject, call.inputs[0], node
    )


def _is_shortcut(subject: Subject, x: Node, node: Node) -> bool:
    """Whether a layer's value is added, unrectified, to something computed from the layer's own input."""
    values = {node}
    for later in subject.nodes:
        if later.op in BATCH_NORMS and later.upstream[:1] and later.upstream[0] in values:
            values.add(later)
        elif later.op == "add" and values & set(later.upstream):
            others = [n for n in later.upstream if n not in values]
            if any(n is x or depends(n, x) for n in others):
                return True
    return False


def _compensate(surgery: Surgery, name: str, mean: Tensor) -> list[int]:
    """Let a layer's bias compensate for a mean that will be subtracted before it; return the padding to do first."""
    layer: Any = surgery.model.get_submodule(name)
    padding: list[int] = padding_of(layer) if pads_with_zeros(layer) else []
    if padding:
        surgery.unpad(name)
        layer = surgery.model.get_submodule(name)
    surgery.bias(name, value=affine_before(layer, torch.ones_like(mean), mean)[1])
    return padding


def _means(subject: Subject, names: list[str], data: list[Batch]) -> dict[str, Tensor]:
    """The mean of the data per channel at the (padded) input of each layer."""
    model = copied(subject.model, share=True).eval()
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        x = args[0]
        x = F.pad(x, padding_of(layer)) if isinstance(layer, ConvNd) and pads_with_zeros(layer) else x
        totals[name] = totals.get(name, 0) + x.double().sum([d for d in range(x.dim()) if d != 1])
        counts[name] = counts.get(name, 0) + x.numel() // x.shape[1]

    for name in names:
        model.get_submodule(name).register_forward_pre_hook(partial(add, name))
    with torch.no_grad():
        for args, kwargs in map(arguments, data):
            model(*args, **kwargs)
    return {name: total / counts[name] for name, total in totals.items()}
