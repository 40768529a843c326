"""Geometric parameterization (gmp) as a torch parametrization, for any layer."""

from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from relucid.nn.sphere import direction, latitudes_of

Module = TypeVar("Module", bound=nn.Module)


def geometric(module: Module, name: str = "weight") -> Module:
    """The same module, with ``module.name`` parameterized by latitudes and a scale per row.

    A torch parametrization, in place and for any layer: each row of the weight (``weight[i]``, flattened) is a
    scale times a unit vector. The weight keeps its value, and the bias is left alone. Undo it with
    ``torch.nn.utils.parametrize.remove_parametrizations``.

    >>> layer = geometric(nn.Linear(3, 5))
    >>> {name: tuple(p.shape) for name, p in layer.named_parameters()}
    {'bias': (5,), 'parametrizations.weight.original0': (5, 2), 'parametrizations.weight.original1': (5,)}
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor) or weight.dim() < 1 or not weight.is_floating_point():
        raise ValueError(f"{type(module).__name__} has no floating-point tensor {name!r} to parameterize")
    if not weight.isfinite().all():
        raise ValueError(f"{name!r} holds NaN or infinity; it has no direction to keep")
    parametrize.register_parametrization(module, name, GeometricParametrization(weight.shape))
    return module


class GeometricParametrization(nn.Module):
    """Latitudes (units, n - 1) and scales (units,) of a weight of the given shape, for ``geometric``."""

    weight_decay: ClassVar[bool] = False

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, latitudes: Tensor, scale: Tensor) -> Tensor:
        """The weight: each row is its scale times its direction."""
        return direction(latitudes, scale).view(self.shape)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The latitudes and scales of a weight."""
        rows = weight.flatten(1) if weight.dim() > 1 else weight.unsqueeze(1)
        # In one dimension only the scale is left, so it takes the sign.
        scale = rows.double().norm(dim=1) if rows.shape[1] > 1 else rows[:, 0]
        return latitudes_of(rows), scale.to(weight.dtype)
