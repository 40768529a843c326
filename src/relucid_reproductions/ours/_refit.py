"""Fit layers by least squares to what they computed before their inputs changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.convert._fuse import Fold
from relucid.convert._steps import Read
from relucid.convert.conversion import Conversion
from relucid.convert.copies import aliased
from relucid.convert.merge import Share, bias_of, shared
from relucid.nn.affine import affine_after, affine_of, padding_of

# Relative to the mean square of the inputs; weights that the data do not determine stay as they are.
RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Target:
    """What a layer with changed filters is fitted to: linear combinations of the values of layer ``name``."""

    name: str
    mix: Tensor  #: (filters, filters before)


def refit_merged(before: nn.Module, conversion: Conversion, data: list[Any]) -> None:
    """Fit the layers that read merged filters, and those that have some, to what they computed in ``before``."""
    norms = {step.layer: step.name for step in conversion.steps if isinstance(step, Fold)}
    targets = {}
    for step in conversion.steps:
        if isinstance(step, Share):
            layer: Any = before.get_submodule(step.name)
            weight, bias = layer.weight.detach().double(), bias_of(layer)
            norm = norms.get(step.name)
            if norm is not None:
                weight, bias = affine_after(layer, *affine_of(before.get_submodule(norm)))
            targets[step.name] = Target(norm or step.name, _mix(weight, bias, step))
    readers = [step.name for step in conversion.steps if isinstance(step, Read)]
    refit(before, conversion.model, readers, data, targets)


def _mix(weight: Tensor, bias: Tensor, step: Share) -> Tensor:
    """The combination of old values that each filter comes nearest to: (y - r z) / (1 + r^2) for a pair (y, z)."""
    filters, _, units, scale = shared(weight, bias, step.pairs)
    count, kept = len(step.pairs), len(filters)
    ratio = scale[kept:]
    mix = torch.eye(len(weight), dtype=torch.float64)[units[:kept]]
    mix[range(count), units[:count]] = 1 / (1 + ratio.square())
    mix[range(count), units[kept:]] = -ratio / (1 + ratio.square())
    return mix


def refit(
    before: nn.Module, after: nn.Module, names: Sequence[str], data: list[Any], targets: Mapping[str, Target]
) -> None:
    """Fit the weights of layers of ``after``, one by one, to the values that they have in ``before``.

    W minimises |X W - Y|^2 + ridge |W - W_0|^2. X are the inputs now (patches for a convolution), Y the
    values in ``before`` or those that ``targets`` names, W_0 the present weights.
    """
    old = aliased(before).eval()
    for name in names:
        layer = after.get_submodule(name)
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1):
            new = aliased(after).eval()
            _fit(layer, *_moments(old, new, name, layer, data, targets.get(name)))


def _moments(
    before: nn.Module,
    after: nn.Module,
    name: str,
    layer: nn.Linear | nn.Conv2d,
    data: list[Any],
    target: Target | None,
) -> tuple[Tensor, Tensor]:
    """X^T X and X^T Y over the data, with a column of ones in X if the layer has a bias."""
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
def _at(net: nn.Module, name: str, batch: Any) -> tuple[Tensor, Tensor]:
    """The input and the value of a layer."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = net.get_submodule(name).register_forward_hook(lambda _, args, value: seen.append((args[0], value)))
    net(*(batch if isinstance(batch, tuple) else (batch,)))
    hook.remove()
    return seen[0]


def _rows(layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    """What the weights of a layer multiply, one row per value: (values, weights of a filter)."""
    if isinstance(layer, nn.Linear):
        return x.flatten(0, -2)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = F.pad(x, padding_of(layer), mode=mode)
    patches = F.unfold(x, layer.kernel_size, layer.dilation, 0, layer.stride)
    return patches.transpose(1, 2).flatten(0, 1)


def _columns(y: Tensor, layer: nn.Linear | nn.Conv2d) -> Tensor:
    """The values of a layer as (values, filters)."""
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
