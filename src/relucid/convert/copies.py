"""Copies of a network: with its memory or their own, to be changed or to be run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import registries, storage_of
from relucid.convert.errors import ConversionError
from relucid.nn import GeometricLayer


def aliased(model: nn.Module) -> nn.Module:
    """A copy whose parameters are other objects on the same memory: they can be frozen, or given other values.

    Buffers are copied, since a run changes them. As with any copy, hooks on the gradients of parameters stay behind.

    >>> net = nn.Linear(2, 3)
    >>> twin = aliased(net)
    >>> twin.weight is net.weight, twin.weight.data_ptr() == net.weight.data_ptr()
    (False, True)
    """
    memo: dict[int, Any] = {}
    for p in model.parameters():
        alias = p.detach()
        alias = nn.Parameter(alias, p.requires_grad) if type(p) is nn.Parameter else copy.copy(p)
        vars(alias).update(vars(p))
        memo[id(p)] = alias
    return _copied(model, memo)


def copied(model: nn.Module) -> nn.Module:
    """A copy with memory of its own.

    >>> net = nn.Linear(2, 3)
    >>> copied(net).weight.data_ptr() == net.weight.data_ptr()
    False
    """
    return _copied(model, {})


def _copied(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    for value in tensors_of(model):
        if not value.is_leaf:  # what an earlier run left, in a distribution of actions, say
            memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConversionError(f"{type(model).__name__} cannot be copied: {what}") from error


@torch.no_grad()
def separate(copy: nn.Module, model: nn.Module) -> None:
    """Give a copy of ``model`` memory of its own wherever both still use the same."""
    shared = {storage_of(p) for p in model.parameters()}
    for p in copy.parameters():
        if storage_of(p) in shared:
            p.data = p.data.clone()


def tensors_of(thing: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Yield the tensors in an object: in containers, in its attributes, and in those of the objects in them.

    >>> from types import SimpleNamespace
    >>> [tuple(x.shape) for x in tensors_of([SimpleNamespace(mean=torch.ones(2)), {"y": torch.ones(3)}])]
    [(2,), (3,)]
    """
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping | list | tuple | set):
        for value in list(thing.values() if isinstance(thing, Mapping) else thing):
            yield from tensors_of(value, seen)
        if hasattr(thing, "__dict__"):
            yield from tensors_of(vars(thing), seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type | ModuleType | FunctionType):
        yield from tensors_of(vars(thing), seen)


def check_closures(model: nn.Module) -> None:
    """Refuse a network with a function among its attributes that refers to its modules: a copy would use those."""
    modules = {id(module) for module in model.modules()}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            cells = value.__closure__ if isinstance(value, FunctionType) else None
            if any(id(cell.cell_contents) in modules for cell in cells or () if _is_filled(cell)):
                raise ConversionError(
                    f"a copy of {type(model).__name__} would not compute with its own parameters: {key} of "
                    f"{name or 'the network'} is a function that refers to the original's modules; make it a method"
                )


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@contextmanager
def reverting(model: nn.Module, *, freeze: bool = True) -> Iterator[nn.Module]:
    """Let a copy be run; afterwards it has the buffers and modes of before.

    Args:
        model: The copy.
        freeze: Whether gradients flow to values alone, and not to weights.
    """
    modes = {module: module.training for module in model.modules()}
    trained = {p: p.requires_grad for p in model.parameters()}
    buffers = [(module, dict(registries(module)[1])) for module in modes]
    with_copies = {id(b): b.clone() for _, them in buffers for b in them.values() if b is not None}
    try:
        for module, them in buffers:
            registries(module)[1].update({key: with_copies.get(id(b)) for key, b in them.items()})
            if isinstance(module, GeometricLayer):
                module.forget_weight()
        for p in trained if freeze else ():
            p.requires_grad_(False)
        yield model
    finally:
        for module, them in buffers:
            registries(module)[1].update(them)
            module.training = modes[module]
            if isinstance(module, GeometricLayer):
                module.forget_weight()
        for p, same in trained.items():
            p.requires_grad_(same)
