"""Fit layers by least squares to what they computed before their inputs changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.nn.modules.conv import _ConvNd

from relucid.convert.graph import arguments, module_of

RIDGE = (
    1e-6  # relative to the mean square of the inputs; weights that the data do not determine stay as they are
)


@dataclass(frozen=True, eq=False)
class Target:
    """What a layer with changed filters is fitted to: linear combinations of the values of layer ``name``."""

    name: str
    mix: Tensor  #: (filters, filters before)


def refit(
    before: fx.GraphModule,
    after: fx.GraphModule,
    nodes: list[Node],
    data: list[Any],
    targets: Mapping[str, Target],
) -> None:
    """Fit the weights of layers of ``after``, one by one, to the values that they have in ``before``.

    W minimises |X W - Y|^2 + ridge |W - W_0|^2. X are the inputs in ``after`` (patches for a convolution), Y the
    values in ``before`` or those that ``targets`` names, W_0 the present weights.
    """
    for node in nodes:
        layer = module_of(after, node)
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1):
            name = str(node.target)
            _fit(layer, *_moments(before, after, name, layer, data, targets.get(name)))


def _moments(
    before: fx.GraphModule,
    after: fx.GraphModule,
    name: str,
    layer: nn.Linear | nn.Conv2d,
    data: list[Any],
    target: Target | None,
) -> tuple[Tensor, Tensor]:
    """Return X^T X and X^T Y over the data, with a column of ones in X if the layer has a bias."""
    squares = products = torch.zeros(())
    for batch in data:
        x, y = _at(after, name, batch)[0], _at(before, target.name if target else name, batch)[1]
        rows, values = _rows(layer, x).double(), _columns(y, layer).double()
        values = values @ target.mix.to(values).T if target else values
        if layer.bias is not None:
            rows = torch.cat((rows, rows.new_ones(len(rows), 1)), 1)
        squares, products = squares + rows.T @ rows, products + rows.T @ values
    return squares, products


@torch.no_grad()
def _at(net: fx.GraphModule, name: str, batch: Any) -> tuple[Tensor, Tensor]:
    """Return the input and the value of a layer in evaluation."""
    seen: list[tuple[Tensor, Tensor]] = []
    layer = net.get_submodule(name)
    hook = layer.register_forward_hook(lambda _, args, value: seen.append((args[0], value)))
    modes = {module: module.training for module in net.modules()}
    args, kwargs = arguments(batch)
    net.eval()(*args, **kwargs)
    for module, mode in modes.items():
        module.training = mode
    hook.remove()
    return seen[0]


def _rows(layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """Return what the weights of a layer multiply, one row per value: (values, weights of a filter)."""
    if isinstance(layer, nn.Linear):
        return x.flatten(0, -2)
    x = F.pad(x, layer._reversed_padding_repeated_twice, mode=_mode(layer))
    patches = F.unfold(x, layer.kernel_size, layer.dilation, 0, layer.stride)
    return patches.transpose(1, 2).flatten(0, 1)


def _mode(layer: _ConvNd) -> str:
    return "constant" if layer.padding_mode == "zeros" else layer.padding_mode


def _columns(y: Tensor, layer: nn.Linear | nn.Conv2d) -> Tensor:
    """Return the values of a layer as (values, filters)."""
    return y.flatten(0, -2) if isinstance(layer, nn.Linear) else y.movedim(1, -1).flatten(0, -2)


@torch.no_grad()
def _fit(layer: nn.Linear | nn.Conv2d, squares: Tensor, products: Tensor) -> None:
    present = layer.weight.flatten(1).double().T
    if layer.bias is not None:
        present = torch.cat((present, layer.bias.double().unsqueeze(0)))
    ridge = RIDGE * squares.diagonal().mean() * torch.eye(len(squares)).to(squares)
    change = torch.linalg.solve(squares + ridge, products - squares @ present)
    fitted = (present + change).T.to(layer.weight.dtype)
    if layer.bias is not None:
        layer.bias.copy_(fitted[:, -1])
        fitted = fitted[:, :-1]
    layer.weight.copy_(fitted.view_as(layer.weight))
