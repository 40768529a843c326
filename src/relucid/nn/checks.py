"""Checks of arguments that several layers share; each raises an error of one sentence."""

from collections.abc import Callable

import torch
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


def check_positive(**sizes: int) -> None:
    """Refuse a size of 0 or less."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def check_callable(activation: Activation | None) -> None:
    """Refuse anything but None or a callable: the name of an activation, for example."""
    if activation is not None and not callable(activation):
        raise TypeError(f"an activation is a module or a function, such as nn.ReLU(), not {activation!r}")


def check_homogeneous(activation: Activation, like: Tensor, spatial: int) -> None:
    """Refuse an activation g unless g(a s) = a g(s): otherwise a scale cannot be moved out of it.

    With a = 4,096, far beyond the bound of a ReLU6, and still within half precision.
    """
    probe = torch.linspace(-3, 3, like.shape[0], dtype=torch.float64).to(like)
    probe = torch.stack((probe, -probe)).view(2, -1, *(1,) * spatial)
    with torch.no_grad():
        if not torch.allclose(activation(4096 * probe), 4096 * activation(probe)):
            raise ValueError(
                f"{name_of(activation)} is not positively homogeneous, so the scale cannot be moved outside it; "
                "use ReLU, leaky ReLU, AVR or CReLU, or keep the activation outside the layer"
            )


def name_of(activation: Activation) -> str:
    """A short name for messages: ``tanh`` for ``torch.tanh``, ``ReLU()`` for a module."""
    return getattr(activation, "__name__", None) or repr(activation)
