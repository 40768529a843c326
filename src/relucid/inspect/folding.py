"""The affine map between a weight and the rectified value: batch norms, gains and shifts folded into one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucid._torch import tree_map
from relucid.inspect.operations import BATCH_NORMS, COPIES, MAX_POOLS, RESHAPES
from relucid.inspect.recorder import DATA, Node
from relucid.nn.affine import affine

VIEWS = RESHAPES | COPIES | {"expand", "copy"}
AFFINE = {"add", "sub", "rsub", "mul", "div", "neg"}
FOLDED = VIEWS | AFFINE | BATCH_NORMS | MAX_POOLS


class Folded(NamedTuple):
    """The rectified value as scale * (weight . x + bias) + shift, with the units in dimension ``dim``."""

    scale: Tensor  #: (units,)
    shift: Tensor  #: (units,)
    dim: int


def fold(origin: Node, path: tuple[Node, ...]) -> Folded | str:
    """The affine map from a product to the rectified value, or the reason why there is none.

    The operations between are replayed on three constants (0, 1 and the number of the unit). The results must be
    the same affine map at every place; they also show which dimension the units have moved to.

    Args:
        origin: The product with a weight.
        path: The operations from the product to the rectified value.
    """
    for node in path:
        if node.op not in FOLDED:
            return f"{label(node)} comes between"
        if node.op in BATCH_NORMS and node.call[1][5] is True:  # training mode: statistics of the batch
            return f"{label(node)} has no running statistics: boundaries move with every batch"
    dim = 1 if origin.op == "convolution" else len(origin.shape) - (2 if origin.call[1][-1] is DATA else 1)
    units = origin.shape[dim]
    if 0 in origin.shape:
        return f"{label(origin)} computes nothing: its value has the shape {origin.shape}"
    numbers = torch.arange(1.0, units + 1, dtype=torch.float64).view(-1, *[1] * (len(origin.shape) - dim - 1))
    constants = (torch.zeros_like(numbers), torch.ones_like(numbers), numbers)
    shape = _smallest(origin.shape, dim, path)
    zero, one, number = (_replay(path, value.expand(shape)) for value in constants)
    likely = sorted(range(zero.dim()), key=lambda d: d != dim)  # the units may have changed dimension
    for d in (d for d in likely if zero.shape[d] == units):
        shift, scale, counted = (
            x.movedim(d, 0).reshape(units, -1) for x in (zero, one - zero, number - zero)
        )
        expected = scale[:, :1] * numbers.view(-1, 1)
        if _close(shift, shift[:, :1]) and _close(scale, scale[:, :1]) and _close(counted, expected):
            return Folded(scale[:, 0].clone(), shift[:, 0].clone(), d)
    return f"not the same affine map at every place, because of {', '.join(map(label, path))}"


def _smallest(shape: tuple[int, ...], dim: int, path: tuple[Node, ...]) -> tuple[int, ...]:
    """The smallest shape on which to replay a path: one place, if every operation treats all places alike."""
    alike = BATCH_NORMS | COPIES
    if dim == 1 and all(node.op in alike for node in path):  # the channel dimension of a batch norm
        return tuple(size if d == dim else 1 for d, size in enumerate(shape))
    return shape


def label(node: Node) -> str:
    """The name of an operation: that of its module, or its own if the module contains others."""
    return node.module if node.leaf else node.op


def _close(x: Tensor, y: Tensor) -> bool:
    return bool(((x - y).abs() <= 1e-9 * x.abs().max()).all())


def _replay(path: tuple[Node, ...], value: Tensor) -> Tensor:
    """Apply the operations of ``path`` to ``value``, in float64."""
    for node in path:
        function, args, kwargs = tree_map(_wide, node.call)
        if node.op in BATCH_NORMS:  # the kernel of another device may not run here
            _, weight, bias, mean, variance, *_, eps = args
            places = [1] * (value.dim() - 2)
            scale, shift = (x.view(-1, *places) for x in affine(mean, variance, weight, bias, eps))
            value = value * scale + shift
        else:
            data = value.contiguous()
            args, kwargs = tree_map(lambda a, data=data: data if a is DATA else a, (args, kwargs))
            out = function(*args, **kwargs)
            value = out[0] if isinstance(out, tuple) else out
    return value


def _wide(argument: object) -> object:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.detach().double().cpu()
    return {torch.dtype: torch.float64, torch.device: torch.device("cpu")}.get(type(argument), argument)
