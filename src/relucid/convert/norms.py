"""Norms with fixed statistics are affine maps: fold them into the layers around them."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from relucid.convert.flow import FLATTEN, key
from relucid.convert.graph import is_alone, is_norm, is_plain, is_transposed, module_of
from relucid.convert.layout import Layout
from relucid.convert.rewrite import rewrite_weight
from relucid.nn import MeanNorm
from relucid.nn.affine import affine_of
from relucid.nn.meannorm import pads_with_zeros

CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


def fold_back(net: fx.GraphModule, node: Node) -> Node | None:
    """Fold the norm called at ``node`` into the layer before it and return that node; None if impossible."""
    before = node.all_input_nodes[0]
    layer, norm = module_of(net, before), module_of(net, node)
    if (
        not (is_fixed(norm) and is_plain(layer))
        or len(before.users) > 1
        or not is_alone(before)
        or before.meta.get("aliased")
        or node.meta.get("aliased")
    ):
        return None
    assert isinstance(layer, nn.Linear | _ConvNd)
    assert norm is not None
    if isinstance(layer, nn.Linear) and len(before.meta["shape"]) > 2:
        return None  # the norm's channels are in dimension 1, the layer's in the last
    scale, shift = affine_of(norm)
    with torch.no_grad():
        weight = layer.weight.double()
        if isinstance(layer, _ConvNd) and is_transposed(layer):
            groups = layer.groups
            parts = weight.unflatten(0, (groups, -1))
            weight = (parts * scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))).flatten(0, 1)
        else:
            weight = weight * scale.view(-1, *[1] * (weight.dim() - 1))
        bias = shift if layer.bias is None else layer.bias.double() * scale + shift
    _set(layer, weight, bias)
    node.replace_all_uses_with(before)
    net.graph.erase_node(node)
    return before


def fold_forward(net: fx.GraphModule, node: Node) -> Node | None:
    """Fold the norm called at ``node`` into its only reader and return that node; None if impossible.

    A zero-padded convolution cannot take it: its zeros would have to be normalized too.
    """
    norm = module_of(net, node)
    if not is_fixed(norm):
        return None
    assert norm is not None
    scale, shift = affine_of(norm)
    value, reader = node, _only_user(node)
    while reader is not None and (key(net, reader) in (nn.Identity, nn.Dropout) or _flattens(net, reader)):
        if _flattens(net, reader):
            places = value.meta["shape"][2:].numel()
            scale, shift = scale.repeat_interleave(places), shift.repeat_interleave(places)
        value, reader = reader, _only_user(reader)
    layer = module_of(net, reader)
    if (
        reader is None
        or not is_plain(layer)
        or is_transposed(layer)
        or not is_alone(reader)
        or node.meta.get("aliased")
    ):
        return None
    assert isinstance(layer, nn.Linear | _ConvNd)
    if pads_with_zeros(layer) or (isinstance(layer, nn.Linear) and len(value.meta["shape"]) > 2):
        return None
    with torch.no_grad():
        weight = layer.weight.double()
        if isinstance(layer, _ConvNd):
            patch = shift.view(1, -1, *[1] * (weight.dim() - 2)).expand(1, -1, *weight.shape[2:])
            added = CONVOLUTIONS[weight.dim()](patch, weight, groups=layer.groups).flatten()
        else:
            added = weight @ shift
        bias = added if layer.bias is None else layer.bias.double() + added
    _set(layer, layer.weight, bias)
    rewrite_weight(layer, Layout(1, torch.arange(len(scale)), scale))
    node.replace_all_uses_with(node.all_input_nodes[0])
    net.graph.erase_node(node)
    return reader


def as_batch_norm(norm: MeanNorm, shape: tuple[int, ...]) -> nn.Module:
    """Return a batch norm of unit variance that does in evaluation what a MeanNorm does to values of ``shape``."""
    make: Mapping[int, type[_BatchNorm]] = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    new = make.get(len(shape), nn.BatchNorm1d)(norm.num_features, eps=0.0, affine=False).to(norm.running_mean)
    assert new.running_mean is not None
    new.running_mean.copy_(-affine_of(norm)[1])
    return new


def is_fixed(norm: nn.Module | None) -> bool:
    """Return whether a module is a norm with running statistics."""
    return is_norm(norm) or isinstance(norm, MeanNorm)


def _flattens(net: fx.GraphModule, node: Node) -> bool:
    before = node.all_input_nodes[0].meta.get("shape", ())
    return key(net, node) in FLATTEN and node.meta.get("shape", ()) == (before[0], before[1:].numel())


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _set(layer: nn.Linear | _ConvNd, weight: Tensor, bias: Tensor) -> None:
    old = layer.weight
    layer.weight = nn.Parameter(weight.detach().to(old.dtype), old.requires_grad)
    layer.bias = nn.Parameter(bias.to(old.dtype), old.requires_grad)
