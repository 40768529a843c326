"""Weights to angles and radii: geometric parameterization of an existing network (gmp)."""

import copy
import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd

from relucid.convert.conversion import (
    ArgumentError,
    Conversion,
    Layers,
    Ledger,
    Original,
    conversion,
    name_of,
    select,
    suggestions,
)
from relucid.convert.graph import (
    ADDS,
    Batch,
    add_module,
    arguments,
    fresh_name,
    has_weight,
    is_alone,
    is_plain,
    is_reachable,
    is_relu_call,
    module_of,
    reached,
    reaching,
)
from relucid.convert.norms import fold_back, is_fixed
from relucid.nn import GeometricConv1d, GeometricConv2d, GeometricConv3d, GeometricLinear, MeanNorm
from relucid.nn.geometric import _Geometric
from relucid.nn.meannorm import fold, pads_with_zeros

FARTHEST = 1000.0  # an offset is also the gradient of its scale: larger ones let the first step diverge
GEOMETRIC: dict[type[nn.Module], Any] = {
    nn.Linear: GeometricLinear,
    nn.Conv1d: GeometricConv1d,
    nn.Conv2d: GeometricConv2d,
    nn.Conv3d: GeometricConv3d,
}


@conversion
def to_geometric(
    model: nn.Module,
    example: Batch,
    layers: Layers = None,
    *,
    norm: Literal["keep", "fold"] = "keep",
    center: Iterable[Any] | None = None,
    tolerance: float | None = None,
) -> Conversion:
    """Return the same function with linear and convolution layers described by directions, offsets and scales.

    A ReLU that is the only reader of a layer moves inside it: scales are lengths, so r relu(s) is relu(r s) (gmp
    Eq. 15).

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        layers: Names or globs; "auto" for those that `relucid.inspect.examine` suggests. By default all
            but output layers, which learn no features (gmp 4.1).
        norm: What becomes of a batch norm that follows such a layer: it is kept, or folded into it.
        center: Batches of data, in the form of the example. If given, an input mean normalization (IMN) with the
            mean of these data is inserted before every converted layer but the first and those on a shortcut, and
            the layer's offset compensates for it. Before a zero-padded convolution it pads, then centres.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> conversion = to_geometric(net, torch.randn(5, 4))
    >>> [type(layer).__name__ for layer in conversion.model.children()]
    ['GeometricLinear', 'Linear']
    >>> for change in conversion.changes:
    ...     print(change.status, change.name, change.reason)
    changed 0 geometric, with its ReLU inside
    changed 1 inside 0
    kept 2 the output layer learns no features
    """
    if norm not in ("keep", "fold"):
        raise ArgumentError(f"norm is 'keep' or 'fold', not {norm!r}")
    original = Original(model, example)
    net = original.capture()
    ledger = Ledger(net, model, weighted="not chosen", relu="does not alone read a geometric layer")
    nodes: dict[Node, tuple[str, ...]] = {
        node: (name_of(node),) for node in net.graph.nodes if has_weight(net, node)
    }
    chosen: list[Node] = []
    named = select(nodes, layers, partial(suggestions, model, example, "to_geometric"))
    followed = reaching(nodes)
    for node in (node for node in nodes if node in named):
        obstacle = _obstacle(net, node)
        if obstacle is not None:
            ledger.note(node, *obstacle)
        elif layers is None and node not in followed:
            ledger.note(node, "kept", "the output layer learns no features")
        else:
            chosen.append(node)
    if norm == "fold":
        for node in list(net.graph.nodes):
            if is_fixed(module_of(net, node)) and node.all_input_nodes[0] in chosen:
                folded = name_of(node)
                if (layer := fold_back(net, node)) is not None:
                    ledger.note(layer, "changed", f"{folded} is part of it")
    if center is not None:
        behind = reached(nodes)
        _center(net, [node for node in chosen if node in behind and _is_centred(net, node)], center, ledger)
    for node in chosen:
        _describe(net, node, ledger)
    return original.finish(net, ledger, tolerance, training=norm == "keep" and center is None)


def _obstacle(net: fx.GraphModule, node: Node) -> tuple[Literal["kept", "refused"], str] | None:
    """Return why a layer cannot be made geometric, or None."""
    if "kept" in node.meta:
        return "kept", node.meta["kept"]
    module = module_of(net, node)
    if isinstance(module, _Geometric):
        return "kept", "geometric already"
    if type(module) not in GEOMETRIC or not isinstance(module, nn.Linear | _ConvNd):
        what = "a function" if module is None else f"{type(module).__name__}"
        return "refused", f"{what} has no geometric form; linear and convolution layers have"
    if not is_plain(module) or "weight" not in module._parameters:
        return "refused", "its weight is computed from others (parametrized)"
    if node.meta.get("tied"):
        return "refused", "another layer has the same weight, or it is read as a tensor"
    if not module.weight.numel():
        return "kept", "it has no filters, or no inputs"
    if node.meta["dtype"] not in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return "refused", f"its weights are {module.weight.dtype}"
    if module.bias is not None and module.weight.requires_grad and not module.bias.requires_grad:
        return "refused", "its bias is frozen and its weight is not; training the scales would move it"
    if not all(p.isfinite().all() for p in module.parameters()):
        return "refused", "its weights hold NaN or infinity"
    zero = (module.weight.flatten(1) == 0).all(1).nonzero().flatten().tolist()
    if zero:
        some = ", ".join(map(str, zero[:5])) + (", ..." if len(zero) > 5 else "")
        return "kept", f"{len(zero)} filters are exactly zero and have no direction: {some}"
    return None


def _describe(net: fx.GraphModule, node: Node, ledger: Ledger) -> None:
    """Replace a layer, and the ReLU that is its only reader, by a geometric layer."""
    layer = module_of(net, node)
    assert layer is not None
    if isinstance(layer, _Geometric):  # called before
        ledger.note(node, "changed", "geometric")
        return
    if (far := _farthest(layer)) > FARTHEST:
        ledger.note(
            node, "kept", f"the boundary of a unit is {far:.2g} from 0, too far to be trained by its offset"
        )
        return
    alone = len(node.users) == 1 and is_alone(node) and not node.meta.get("aliased")
    reader = next(iter(node.users)) if alone else None
    activation = None
    if reader is not None and is_relu_call(net, reader):
        activation = nn.ReLU()
        ledger.note(reader, "changed", f"inside {node.target}")
        reader.replace_all_uses_with(node)
        net.graph.erase_node(reader)
    new = GEOMETRIC[type(layer)].from_standard(layer, activation).train(layer.training)
    _freeze(layer, new)
    net.set_submodule(str(node.target), new)
    ledger.note(node, "changed", "geometric, with its ReLU inside" if activation else "geometric")


@torch.no_grad()
def _farthest(layer: nn.Module) -> float:
    """Return the largest distance of a unit's boundary from 0: infinity for a filter of zeros."""
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    lengths = weight.double().flatten(1).norm(dim=1)
    if bias is None:
        return 0.0
    assert isinstance(bias, Tensor)
    return float(torch.where(lengths == 0, math.inf, bias.double().abs() / lengths).max())


def _freeze(layer: nn.Module, new: _Geometric) -> None:
    """Freeze the parameters of ``new`` that were frozen in the layer it replaces."""
    trained = {name: p.requires_grad for name, p in layer.named_parameters()}
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(trained["bias"] if name == "offset" else trained["weight"])


def _is_centred(net: fx.GraphModule, node: Node) -> bool:
    """Return whether IMN may precede a layer: not if it is called more than once, or on a shortcut."""
    layer = module_of(net, node)
    channels_first = not isinstance(layer, nn.Linear) or len(node.meta["shape"]) == 2
    return channels_first and is_alone(node) and not _is_shortcut(net, node)


def _is_shortcut(net: fx.GraphModule, node: Node) -> bool:
    """Return whether a layer's value is added, unrectified, to something computed from the layer's own input."""
    value, x = node, node.all_input_nodes[0]
    while len(value.users) == 1 and is_fixed(module_of(net, next(iter(value.users)))):
        value = next(iter(value.users))
    sums = [user for user in value.users if user.target in ADDS]
    return any(n is x or is_reachable(x, n) for add in sums for n in add.all_input_nodes if n is not value)


def _center(net: fx.GraphModule, nodes: list[Node], data: Iterable[Any], ledger: Ledger) -> None:
    """Insert IMN with the mean of the data before layers, and compensate for it in their offsets."""
    means = _means(net, nodes, data)
    for node in nodes:
        layer = module_of(net, node)
        assert isinstance(layer, nn.Linear | _ConvNd)
        norm = MeanNorm(len(means[node])).to(layer.weight)
        norm.running_mean.copy_(-means[node])
        x = node.all_input_nodes[0]
        with net.graph.inserting_before(node):
            if pads_with_zeros(layer):
                x = net.graph.call_function(F.pad, (x, _padding(layer)))
                layer = _unpadded(layer)
            name = fresh_name(net, f"{node.target}_center")
            add_module(net, name, norm)
            node.args = (net.graph.call_module(name, (x,)), *node.args[1:])
        net.set_submodule(str(node.target), fold(norm, layer))
        norm.running_mean.neg_()
        ledger.note(node, "changed", "centred by IMN")


def _means(net: fx.GraphModule, nodes: list[Node], data: Iterable[Any]) -> dict[Node, Tensor]:
    """Return the mean of the data per channel at the (padded) input of each layer."""
    run, batches = _Sums(net, nodes), 0
    modes = {module: module.training for module in net.modules()}
    net.eval()
    with torch.no_grad():
        for batch in data:
            batches += 1
            args, kwargs = arguments(batch)
            names = [str(node.target) for node in net.graph.nodes if node.op == "placeholder"]
            run.run(*args, *(kwargs[name] for name in names if name in kwargs))
    for module, mode in modes.items():
        module.training = mode
    if not batches:
        raise ArgumentError("center has no batches; give at least one to take the mean of")
    return {node: total / run.counts[node] for node, total in run.totals.items()}


class _Sums(fx.Interpreter):
    """Sums the inputs of some layers over batches."""

    def __init__(self, net: fx.GraphModule, nodes: list[Node]) -> None:
        super().__init__(net)
        self.nodes = set(nodes)
        self.totals: dict[Node, Tensor] = {}
        self.counts: dict[Node, int] = {}

    def run_node(self, n: Node) -> Any:
        """Run a node; if it calls one of the layers, add up its input first."""
        if n in self.nodes:
            x = self.env[n.all_input_nodes[0]]
            layer = self.fetch_attr(str(n.target))
            x = F.pad(x, _padding(layer)) if pads_with_zeros(layer) else x
            total = x.double().sum([d for d in range(x.dim()) if d != 1])
            self.totals[n] = self.totals.get(n, 0) + total
            self.counts[n] = self.counts.get(n, 0) + x.numel() // x.shape[1]
        return super().run_node(n)


def _padding(layer: nn.Module) -> tuple[int, ...]:
    assert isinstance(layer, _ConvNd)
    return tuple(layer._reversed_padding_repeated_twice)


def _unpadded(layer: nn.Linear | _ConvNd) -> _ConvNd:
    assert isinstance(layer, _ConvNd)
    layer = copy.copy(layer)
    spatial = layer.weight.dim() - 2
    layer.padding, layer._reversed_padding_repeated_twice = (0,) * spatial, [0] * 2 * spatial
    return layer
