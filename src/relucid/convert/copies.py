"""Copies of a network, to be changed or to be run and thrown away."""

import copy
from typing import Any

import torch
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
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:  # a value kept from an earlier run
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConversionError(f"{type(model).__name__} cannot be copied: {what}") from error


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


def in_float64(model: nn.Module) -> nn.Module:
    """A copy in float64."""
    return copied(model).double()


def rounded(model: nn.Module) -> nn.Module:
    """A copy in float64 whose parameters are changed as rounding to their own precision may change them."""
    copy, generator = in_float64(model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p, own in zip(copy.parameters(), model.parameters(), strict=True):
            if own.is_floating_point():
                half = torch.finfo(own.dtype).eps / 2
                p.mul_(1 + torch.empty(p.shape).uniform_(-half, half, generator=generator).to(p))
    return copy
