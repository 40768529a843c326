"""The modules that conversions put into networks: subclasses of those that were there, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from relucid.nn.activation import both_signs


@cache
def mixed(mixin: Any, kind: Any) -> type[nn.Module]:
    """The subclass of a class of modules with a mixin before it.

    >>> cls = mixed(BothSigns, nn.Linear)
    >>> cls.__name__, issubclass(cls, nn.Linear)
    ('BothSignsLinear', True)
    """
    return type(f"{mixin.__name__}{kind.__name__}", (mixin, kind), {"__module__": __name__})


def plain_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module without what conversions have mixed into it.

    >>> plain_class(nn.ReLU()).__name__
    'ReLU'
    """
    return type(module).__bases__[1] if isinstance(module, BothSigns | Momentum) else type(module)


def _reduced(module: nn.Module, protocol: Any) -> tuple[Any, ...]:
    """What pickles a module of a mixed class, which has no name, by the mixin and the class."""
    return _blank, type(module).__bases__, module.__dict__.copy()


def _blank(mixin: Any, kind: Any) -> nn.Module:
    cls = mixed(mixin, kind)
    return cls.__new__(cls)


class BothSigns:
    """A module that returns ``[y, -y]`` for its value y: a ReLU that follows is then CReLU (crelu Definition 2.1).

    >>> layer = nn.Linear(2, 3)
    >>> y = layer(torch.ones(1, 2))
    >>> layer.__class__ = mixed(BothSigns, nn.Linear)
    >>> layer.signs_dim, layer.signs_groups, layer.signs_paired = -1, 1, None
    >>> layer
    BothSignsLinear(in_features=2, out_features=3, bias=True, both_signs=True, dim=-1)
    >>> torch.equal(layer(torch.ones(1, 2)), torch.cat((y, -y), 1))
    True
    """

    __reduce_ex__ = _reduced

    signs_dim: int  #: the dimension of the channels
    signs_groups: int  #: the channels are that many blocks, each followed by its own negation
    signs_paired: int | None  #: only that many channels have a second sign; by default all

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """``[y, -y]``: relu([y, -y]) is CReLU of y."""
        return self.both_signs(super().forward(*args, **kwargs))  # type: ignore[misc]

    def both_signs(self, y: Tensor) -> Tensor:
        """``[y, -y]`` for a value of the module as it was."""
        return both_signs(y, self.signs_dim, self.signs_paired, self.signs_groups)

    def extra_repr(self) -> str:
        """The module's own arguments, and where it puts the second sign."""
        own: str = super().extra_repr()  # type: ignore[misc]
        return f"{own}{', ' if own else ''}both_signs=True, dim={self.signs_dim}"


class Momentum:
    """A sequence of residual blocks that adds beta_k (x_k - x_{k-1}) to some of them, beta_k = 0 at first."""

    __reduce_ex__ = _reduced
    weight_decay = False  # for its own parameters

    steps: tuple[
        int, ...
    ]  #: the positions of the blocks that have a beta; the block before each keeps the shape
    betas: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        """The last x_k: x_{k+1} = block(x_k) + beta_k (x_k - x_{k-1})."""
        previous = x
        for k, block in enumerate(self):  # type: ignore[arg-type, var-annotated]
            y = block(x)
            if k in self.steps:
                y = y + self.betas[self.steps.index(k)] * (x - previous)
            previous, x = x, y
        return x

    def extra_repr(self) -> str:
        """The positions of the blocks that have a beta."""
        return f"heavy ball at {', '.join(map(str, self.steps))}"


class Function(nn.Module):
    """A function as a module.

    >>> Function(torch.tanh)(torch.zeros(1))
    tensor([0.])
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's value."""
        return self.function(x)


def differing_attribute(module: nn.Module, other: nn.Module, ignored: Collection[str] = ()) -> str:
    """The first plain attribute in which a module differs from another; "" if there is none.

    >>> differing_attribute(nn.Dropout(0.1), nn.Dropout(0.2))
    'p'
    """
    for key, value in vars(module).items():
        plain = value is None or isinstance(value, int | float | str)
        plain |= isinstance(value, tuple) and all(isinstance(x, int | float | str) for x in value)
        now = vars(other).get(key)
        if plain and not key.startswith("_") and key not in ignored and now != value and value == value:
            return key
    return ""


def equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors are the same, or both there are none; NaN equals NaN."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.layout != torch.strided or (a.data_ptr() == b.data_ptr() and a.stride() == b.stride()):
        return True
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())
