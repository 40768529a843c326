"""The modules that conversions put into networks: subclasses of those that were there, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from relucid.nn import MeanNorm
from relucid.nn.activation import both_signs


class _Mixin:
    """What a module of an existing class is given in addition; pickled by that class, as the new one has no name."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _blank, type(self).__bases__, self.__dict__.copy()


@cache
def mixed(mixin: Any, kind: Any) -> type[nn.Module]:
    """The subclass of a class of modules with a mixin before it.

    >>> cls = mixed(BothSigns, nn.Linear)
    >>> cls.__name__, issubclass(cls, nn.Linear)
    ('BothSignsLinear', True)
    """
    return type(f"{mixin.__name__}{kind.__name__}", (mixin, kind), {"__module__": __name__})


def _become(module: Any, mixin: Any) -> Any:
    """Give a module the subclass of its class with a mixin."""
    kind: Any = type(module)
    module.__class__ = mixed(mixin, kind)
    return module


def _blank(mixin: Any, kind: Any) -> nn.Module:
    cls = mixed(mixin, kind)
    return cls.__new__(cls)


class BothSigns(_Mixin):
    """A module that returns ``[y, -y]`` for its value y: a ReLU that follows is then CReLU (crelu Definition 2.1)."""

    signs_dim: int
    signs_groups: int
    signs_paired: int | None

    @staticmethod
    def make(module: nn.Module, dim: int, groups: int = 1, paired: int | None = None) -> None:
        """Make a module return both signs of its value; its parameters, hooks and mode stay.

        Args:
            module: Any module that returns a tensor.
            dim: The dimension of the channels.
            groups: The channels are that many blocks, each followed by its own negation.
            paired: Only the first ``paired`` channels have a second sign; by default all.

        >>> layer = nn.Linear(2, 3)
        >>> y = layer(torch.ones(1, 2))
        >>> BothSigns.make(layer, dim=-1)
        >>> layer
        BothSignsLinear(in_features=2, out_features=3, bias=True, both_signs=True, dim=-1)
        >>> torch.equal(layer(torch.ones(1, 2)), torch.cat((y, -y), 1))
        True
        """
        own: Any = _become(module, BothSigns)
        own.signs_dim, own.signs_groups, own.signs_paired = dim, groups, paired

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """``[y, -y]``: relu([y, -y]) is CReLU of y."""
        y: Tensor = super().forward(*args, **kwargs)  # type: ignore[misc]
        return both_signs(y, self.signs_dim, self.signs_paired, self.signs_groups)

    def extra_repr(self) -> str:
        """The module's own arguments, and where it puts the second sign."""
        own: str = super().extra_repr()  # type: ignore[misc]
        return f"{own}{', ' if own else ''}both_signs=True, dim={self.signs_dim}"


class Momentum(_Mixin):
    """A sequence of residual blocks that adds beta_k (x_k - x_{k-1}) to some of them, beta_k = 0 at first."""

    weight_decay = False  # for its own parameters

    steps: tuple[int, ...]
    betas: nn.Parameter

    @staticmethod
    def make(module: nn.Module, steps: tuple[int, ...]) -> None:
        """Give a sequence of blocks momentum.

        Args:
            module: An ``nn.Sequential``.
            steps: The positions of the blocks that get a beta; the block before each keeps the shape.

        >>> stage = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> Momentum.make(stage, (1,))
        >>> stage.betas
        Parameter containing:
        tensor([0.], requires_grad=True)
        """
        like = next(module.parameters(), torch.empty(0))
        own: Any = _become(module, Momentum)
        own.steps = tuple(steps)
        own.betas = nn.Parameter(torch.zeros(len(steps), dtype=like.dtype, device=like.device))

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


class Centered(nn.Sequential):
    """A layer after input mean normalization: (the padding that was the layer's own,) IMN, the layer."""

    center: MeanNorm
    layer: nn.Module


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
