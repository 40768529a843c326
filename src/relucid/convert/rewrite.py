"""Write changed channels into a network: rewrite weights and norms, compute the old channels for other readers."""

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from relucid.convert.flow import Flow
from relucid.convert.graph import add_buffer, is_plain, is_transposed, module_of
from relucid.convert.layout import Layout
from relucid.nn import MeanNorm


def apply(net: fx.GraphModule, found: Flow) -> None:
    """Rewrite weights and norms for the changed channels, and give all other readers the old ones."""
    for node in found.flattened:
        node.op, node.target = "call_function", torch.flatten
        node.args, node.kwargs = (node.args[0], 1), {}
    for node, order in found.absorbed.items():
        value, module = node.all_input_nodes[0], module_of(net, node)
        assert module is not None
        layout = _reorder(net, node, value, found.layouts[value], order)
        (rewrite_weight if is_plain(module) else _rewrite_norm)(module, layout)
    back: dict[Node, Node] = {}
    for reader, value in found.restored:
        if value not in back:
            back[value] = _restore(net, value, found.layouts[value])
        reader.replace_input_with(value, back[value])


def _reorder(net: fx.GraphModule, node: Node, value: Node, layout: Layout, order: Tensor) -> Layout:
    """Insert what sorts channels by group before a grouped convolution, and return their layout."""
    if torch.equal(order, torch.arange(len(order))):
        return layout
    index = add_buffer(net, f"{node.target}_order", order)
    with net.graph.inserting_before(node):
        picked = net.graph.call_function(torch.index_select, (value, layout.dim, net.graph.get_attr(index)))
    node.replace_input_with(value, picked)
    return Layout(layout.dim, layout.origin[order], layout.scale[order])


def _restore(net: fx.GraphModule, value: Node, layout: Layout) -> Node:
    """Insert what computes the old channels of a value from its new ones; return the last node of it."""
    graph = net.graph
    with graph.inserting_before(value.next):
        first, *more = [_term(net, value, layout, *term) for term in layout.terms()]
        for term in more:
            first = graph.call_function(torch.add, (first, term))
    return first


def _term(net: fx.GraphModule, value: Node, layout: Layout, positions: Tensor, scale: Tensor) -> Node:
    """Insert what selects channels of a value and multiplies each by its scale."""
    graph, term, start = net.graph, value, int(positions[0]) if len(positions) else 0
    if not torch.equal(positions, torch.arange(start, start + len(positions))):
        index = graph.get_attr(add_buffer(net, f"{value.name}_channels", positions))
        term = graph.call_function(torch.index_select, (value, layout.dim, index))
    elif len(positions) < len(layout.origin):
        term = graph.call_method("narrow", (value, layout.dim, start, len(positions)))
    if bool((scale == 1).all()):
        return term
    shape = (-1, *[1] * (len(value.meta["shape"]) - 1 - layout.dim))
    factor = add_buffer(net, f"{value.name}_scale", scale.view(shape).to(value.meta["dtype"]))
    return graph.call_function(torch.mul, (term, graph.get_attr(factor)))


@torch.no_grad()
def rewrite_weight(module: nn.Module, layout: Layout) -> None:
    """Give a weight an entry per new channel: the old channel's entry times the scale."""
    assert isinstance(module, nn.Linear | _ConvNd)
    weight, size = module.weight, len(layout.origin)
    origin, scale = layout.origin.to(weight.device), layout.scale.to(weight.device, weight.dtype)
    if is_transposed(module):
        new = weight[origin] * scale.view(-1, *[1] * (weight.dim() - 1))
    else:
        groups = module.groups if isinstance(module, _ConvNd) else 1
        local = origin.view(groups, -1) % weight.shape[1]
        parts = weight.unflatten(0, (groups, -1))
        shape = (1, -1, *[1] * (weight.dim() - 2))
        columns = zip(parts, local, scale.view(groups, -1), strict=True)
        new = torch.cat([part[:, index] * s.view(shape) for part, index, s in columns])
    module.weight = nn.Parameter(new.contiguous(), weight.requires_grad)
    setattr(module, "in_features" if isinstance(module, nn.Linear) else "in_channels", size)


@torch.no_grad()
def _rewrite_norm(module: nn.Module, layout: Layout) -> None:
    """Give a norm an entry per new channel; channels with a scale of 0 pass unchanged."""
    assert isinstance(module, _BatchNorm | MeanNorm)
    assert module.running_mean is not None
    mean = module.running_mean
    origin, scale = layout.origin.to(mean.device), layout.scale.to(mean)
    fresh, divisor = scale == 0, torch.where(scale == 0, 1, scale)
    module.num_features = len(origin)
    module.running_mean = torch.where(fresh, 0, mean[origin] / divisor)
    if isinstance(module, MeanNorm):
        if module.bias is not None:
            bias = torch.where(fresh, 0, module.bias[origin] / divisor)
            module.bias = nn.Parameter(bias, module.bias.requires_grad)
        return
    assert module.running_var is not None
    module.running_var = torch.where(fresh, 1, module.running_var[origin])
    if module.weight is not None:
        weight = torch.where(fresh, 1, module.weight[origin] * scale)
        module.weight = nn.Parameter(weight, module.weight.requires_grad)
        module.bias = nn.Parameter(torch.where(fresh, 0, module.bias[origin]), module.bias.requires_grad)
