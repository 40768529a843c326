"""Parameter groups for optimizers: which parameters get weight decay, and which must not."""

import math
from numbers import Real
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from relucid._torch import BatchNormNd
from relucid.nn._geometric import GeometricLayer
from relucid.nn.parametrization import GeometricParametrization

_NORMS = (
    *(BatchNormNd, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
)


def parameter_groups(
    model: nn.Module, weight_decay: float, *, decay_scale: bool = False
) -> list[dict[str, Any]]:
    """Two groups for an optimizer: parameters with weight decay, and parameters that decay would harm.

    Decay pulls latitudes to 0 and so moves all of u into its last coordinate. Offsets, scales, norms and the
    coefficients of a propagation rule should not decay either. A module exempts its own parameters with the
    attribute ``weight_decay = False``.

    A recipe that decays weights w = r u decays r: |w|^2 = r^2. With ``decay_scale`` the scales of geometric layers
    decay, as their weights would under such a recipe.

    The groups include frozen parameters: an optimizer skips them while they have no gradient, and trains them
    once they are unfrozen.

    >>> from relucid.nn import GeometricLinear
    >>> net = nn.Sequential(GeometricLinear(4, 8, activation=nn.ReLU()), nn.Linear(8, 2))
    >>> [(len(group["params"]), group["weight_decay"]) for group in parameter_groups(net, 1e-4)]
    [(2, 0.0001), (3, 0.0)]
    """
    if not isinstance(weight_decay, Real) or not 0 <= weight_decay < math.inf:
        raise ValueError(f"weight_decay must be a number of at least 0, not {weight_decay!r}")
    exempt = {
        id(parameter)
        for module in model.modules()
        if _is_exempt(module)
        for parameter in module.parameters(recurse=False)
        if not (decay_scale and parameter is _scale(module))
    }
    decayed = [p for p in model.parameters() if id(p) not in exempt]
    kept = [p for p in model.parameters() if id(p) in exempt]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _scale(module: nn.Module) -> nn.Parameter | None:
    """The scales r of a geometric layer or parametrization; None for any other module."""
    if isinstance(module, ParametrizationList) and isinstance(module[0], GeometricParametrization):
        _, scale = module.parameters(recurse=False)  # latitudes first
        return scale
    return module.scale if isinstance(module, GeometricLayer) else None


def _is_exempt(module: nn.Module) -> bool:
    if isinstance(module, ParametrizationList):  # holds the parameters of the parametrizations inside it
        return any(_is_exempt(parametrization) for parametrization in module)
    return isinstance(module, _NORMS) or getattr(module, "weight_decay", None) is False
