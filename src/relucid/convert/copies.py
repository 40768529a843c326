"""Copies of a network, to be changed or to be run and thrown away."""

import copy
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from relucid.convert.errors import ConversionError


def copied(model: nn.Module, *, share: bool = False) -> nn.Module:
    """A deep copy of a network.

    Args:
        model: Any network.
        share: Whether the copy has the original's parameters themselves; all else is copied.

    >>> net = nn.Linear(2, 3)
    >>> copied(net).weight is net.weight, copied(net, share=True).weight is net.weight
    (False, True)
    """
    memo: dict[int, Any] = {id(p): p for p in model.parameters()} if share else {}
    for value in _tensors_in(model, set()):
        if not value.is_leaf:  # a value that an earlier run left, in a distribution of actions, say
            memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConversionError(f"{type(model).__name__} cannot be copied: {what}") from error


def _tensors_in(thing: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors in an object's attributes, and in those of the objects in them."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping | list | tuple | set):
        for value in list(thing.values() if isinstance(thing, Mapping) else thing):
            yield from _tensors_in(value, seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type | ModuleType | FunctionType):
        yield from _tensors_in(vars(thing), seen)


class Throwaway:
    """A copy of a network, to be run several times; it shares the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copied(model, share=True)
        self._saved = [(name, buffer.clone()) for name, buffer in self.model.named_buffers()]
        self._modes = {module: module.training for module in self.model.modules()}

    def fresh(self) -> nn.Module:
        """The network with the buffers and modes that it had at first."""
        for module, training in self._modes.items():
            module.training = training
        for name, value in self._saved:
            path, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(path), leaf, value.clone())
        return self.model
