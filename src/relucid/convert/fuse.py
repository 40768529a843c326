"""Back to plain layers: weights as numbers, norms and scales folded, for deployment."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from relucid.convert.conversion import Conversion, Ledger, Original, conversion, name_of
from relucid.convert.flow import channel_dim, flow
from relucid.convert.graph import Batch, add_module, fresh_name, is_alone, module_of
from relucid.convert.heavyball import HeavyBallSum
from relucid.convert.layout import Layout
from relucid.convert.norms import as_batch_norm, fold_back, fold_forward, is_fixed
from relucid.convert.rewrite import apply
from relucid.nn import AVR, MeanNorm
from relucid.nn.activation import Activation
from relucid.nn.geometric import _Geometric
from relucid.nn.kinds import kind_of
from relucid.nn.propagation import Propagation


@conversion
def fuse(model: nn.Module, example: Batch, *, tolerance: float | None = None) -> Conversion:
    """Return the same function in evaluation, in plain layers: ``nn.Linear``, ``nn.ConvNd`` and activations.

    Geometric layers and parametrizations (weight norm, ...) become weights. Batch norms and mean norms become part
    of the layer before or after them; a mean norm before a zero-padded convolution, whose border would differ,
    becomes a batch norm of unit variance. A scale r outside an activation moves forward into the layers that read
    it, since r relu(s) is not relu(r s) where r is negative; only its sign does if the activation allows.
    No class of this package is left but ``CReLU``.

    Args:
        model: Any network.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> from relucid.nn import GeometricLinear
    >>> net = nn.Sequential(GeometricLinear(4, 3, activation=nn.ReLU()), MeanNorm(3), nn.Linear(3, 2)).eval()
    >>> _ = net[0].scale.data.copy_(torch.tensor([1.0, -2.0, 3.0]))
    >>> fused = fuse(net, torch.randn(5, 4))
    >>> sorted(type(layer).__name__ for layer in fused.model.children())
    ['Linear', 'Linear', 'ReLU']
    """
    original = Original(model, example)
    net = original.capture_evaluation(_without_parametrizations)
    ledger = Ledger(net, model, weighted="plain already", relu="plain already")
    _fuse_geometric(net, ledger)
    _fuse_norms(net, ledger)
    for node in list(net.graph.nodes):
        _fuse_rest(net, node, ledger)
    return original.finish(net, ledger, tolerance, training=False)


def _without_parametrizations(model: nn.Module) -> nn.Module:
    """Replace parametrizations by plain weights and reversible stages by ordinary ones; return the network."""
    modes = {module: module.training for module in model.modules()}
    model.eval()  # spectral norm iterates in training
    for module in modes:
        if isinstance(module, Propagation):
            module.reversible = False
        if parametrize.is_parametrized(module):
            # Torch's own removal changes the class, which the original shares.
            lists = dict(module.get_submodule("parametrizations").named_children())
            weights = {name: getattr(module, name).detach() for name in lists}
            trained = {name: any(p.requires_grad for p in m.parameters()) for name, m in lists.items()}
            del module._modules["parametrizations"]
            module.__class__ = type(module).__mro__[1]
            for name, weight in weights.items():
                module.register_parameter(name, nn.Parameter(weight, trained[name]))
    for module in model.modules():
        module.training = modes[module]
    return model


def _fuse_geometric(net: fx.GraphModule, ledger: Ledger) -> None:
    """Replace geometric layers by standard ones, and move scales forward that these cannot absorb."""
    starts: dict[Node, Layout] = {}
    plain: dict[nn.Module, tuple[nn.Module, Tensor | None]] = {}
    for node in list(net.graph.nodes):
        layer = module_of(net, node)
        if not isinstance(layer, _Geometric):
            continue
        if layer not in plain:
            plain[layer] = _standard(layer)
        new, scale = plain[layer]
        dim = channel_dim(net, node)
        assert dim is not None
        net.set_submodule(str(node.target), new)
        last = node
        if layer.activation is not None:
            last = _after(net, node, layer.activation, dim, layer.weight_shape[0])
        what = f"plain {type(new).__name__}"
        if scale is not None:
            phases = torch.cat((scale, scale))[: last.meta["shape"][dim]]
            starts[last] = Layout(dim, torch.arange(len(phases)), phases.cpu())
            what += "; scales that it cannot absorb move forward"
        ledger.note(node, "changed", what)
    found = flow(net, starts)
    for node in found.weights(net):
        ledger.note(node, "changed", "takes the scales of the layer before")
    apply(net, found)


def _standard(layer: _Geometric) -> tuple[nn.Module, Tensor | None]:
    """Return a standard layer, and the scale that remains outside the activation, if any."""
    layer = copy.deepcopy(layer)
    activation, layer.activation, scale = layer.activation, None, layer.scale
    if activation is None or scale is None:
        return layer.to_standard(), None
    if is_homogeneous(activation):
        layer.scale = nn.Parameter(scale.detach().abs())
        sign = torch.where(scale < 0, -1.0, 1.0).double()
        return layer.to_standard(), sign if bool((sign < 0).any()) else None
    layer.scale = None
    return layer.to_standard(), torch.where(scale == 0, 1e-30, scale.detach().double())


def is_homogeneous(activation: Activation) -> bool:
    """Return whether g(a s) = a g(s) for every a > 0: a positive scale may be inside or outside.

    >>> is_homogeneous(nn.LeakyReLU()), is_homogeneous(nn.ReLU6()), is_homogeneous(torch.tanh)
    (True, False, False)
    """
    kind = kind_of(activation)
    return kind is not None and kind.homogeneous


def _after(net: fx.GraphModule, node: Node, activation: Activation, dim: int, units: int) -> Node:
    """Insert an activation after a node with ``units`` channels; all readers of the node read it instead."""
    with net.graph.inserting_after(node):
        if isinstance(activation, nn.Module):
            name = fresh_name(net, f"{node.target}_{type(activation).__name__.lower()}")
            add_module(net, name, copy.deepcopy(activation))  # layers may share one
            new = net.graph.call_module(name, (node,))
        else:
            new = net.graph.call_function(activation, (node,))
    node.replace_all_uses_with(new, lambda user: user is not new)
    new.meta, shape = dict(node.meta), node.meta["shape"]
    node.meta["shape"] = torch.Size((*shape[:dim], units, *shape[dim + 1 :]))
    return new


def _fuse_norms(net: fx.GraphModule, ledger: Ledger) -> None:
    """Fold every norm into the layer before or after it; if neither works, make a mean norm a batch norm."""
    for node in list(net.graph.nodes):
        norm = module_of(net, node)
        if not is_fixed(norm):
            continue
        name = name_of(node)
        layer = fold_back(net, node) or fold_forward(net, node)
        if layer is not None:
            ledger.note(layer, "changed", f"{name} is part of it")
        elif isinstance(norm, MeanNorm):
            net.set_submodule(name, as_batch_norm(norm, node.meta["shape"]).train(norm.training))


def _fuse_rest(net: fx.GraphModule, node: Node, ledger: Ledger) -> None:
    """Move padding back into convolutions, and replace modules of this package by functions."""
    module = module_of(net, node)
    if isinstance(module, AVR):
        node.op, node.target = "call_function", torch.abs
        ledger.note(node, "changed", "torch.abs")
    elif isinstance(module, HeavyBallSum):
        _fuse_sum(net, node, module)
    elif isinstance(module, _ConvNd) and _takes_padding(net, node, module):
        pad = node.all_input_nodes[0]
        amounts = pad.args[1]
        assert isinstance(amounts, tuple | list)
        module.padding = tuple(int(str(a)) for a in amounts[-2::-2])
        module._reversed_padding_repeated_twice = [int(str(a)) for a in amounts]
        node.replace_input_with(pad, pad.all_input_nodes[0])


def _fuse_sum(net: fx.GraphModule, node: Node, module: HeavyBallSum) -> None:
    """Replace a sum by t + beta1 x + beta2 previous with fixed numbers."""
    total, *states = node.all_input_nodes
    with net.graph.inserting_before(node):
        for state, beta in zip(states, (module.beta1, module.beta2), strict=False):
            assert beta is not None
            term = state if beta == 1 else net.graph.call_function(torch.mul, (state, float(beta.detach())))
            total = net.graph.call_function(torch.add, (total, term))
    node.replace_all_uses_with(total)
    net.graph.erase_node(node)


def _takes_padding(net: fx.GraphModule, node: Node, conv: _ConvNd) -> bool:
    """Return whether the zero padding before a convolution can become the convolution's own."""
    pad = node.all_input_nodes[0]
    if pad.target is not F.pad or len(pad.users) > 1 or not is_alone(node) or len(pad.args) != 2:
        return False
    amounts = pad.args[1]
    own = conv.padding_mode == "zeros" and conv.padding in ("valid", (0,) * (conv.weight.dim() - 2))
    if not own or not isinstance(amounts, tuple | list) or len(amounts) != 2 * (conv.weight.dim() - 2):
        return False
    return amounts[::2] == amounts[1::2] and all(isinstance(a, int) and a >= 0 for a in amounts)
