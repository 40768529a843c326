"""Shrink and perturb (Ash and Adams 2020): all weights go some of the way back to new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from relucid.inspect.execution import Method
from relucid.remedies._effect import Effect, Optimizers, RemedyError, check_network, moved_by, optimizers_in
from relucid.remedies._forget import forget


def mixed(weight: Tensor, fresh: Tensor, shrink: float, noise: float = 0.0) -> Tensor:
    """The weights shrink * weight + (1 - shrink) * fresh + noise * N(0, 1).

    >>> mixed(torch.tensor([2.0]), torch.tensor([-1.0]), 0.5)
    tensor([0.5000])
    """
    value = shrink * weight + (1 - shrink) * fresh
    return value + noise * torch.randn_like(value) if noise else value


def shrink_and_perturb(
    model: nn.Module,
    fresh: nn.Module | Callable[[], nn.Module] | None,
    shrink: float,
    noise: float = 0.0,
    *,
    optimizer: Optimizers = None,
    inputs: Any = None,
    call: Method | None = None,
) -> Effect:
    r"""Shrink all parameters and perturb them, in place: w <- shrink w + (1 - shrink) w_fresh + noise N(0, 1).

    Without ``fresh`` this is Ash and Adams' w <- shrink w + noise N(0, 1); with it, the perturbation is drawn as the
    network's own initialization is (Juliani and Ash 2024, Plasticine). Running statistics of norms stay.

    Args:
        model: Any network.
        fresh: A new network of the same architecture, or a function that makes one; None perturbs by noise alone.
        shrink: Share of each weight that is kept: 1 keeps it all, 0 takes the new one.
        noise: Standard deviation of the noise.
        optimizer: One or several, whose state is reset: it belongs to other weights.
        inputs: Inputs on which to measure by how much outputs move.
        call: How the network is used, if not through its forward.

    >>> net = nn.Linear(2, 3)
    >>> effect = shrink_and_perturb(net, lambda: nn.Linear(2, 3), 0.8, inputs=torch.ones(5, 2))
    >>> effect.moved > 0
    True
    """
    check_network(model)
    optimizers = optimizers_in(optimizer, model)
    if not 0 <= shrink <= 1 or not noise >= 0:
        raise RemedyError(f"shrink must be from 0 to 1 and noise 0 or more; got {shrink} and {noise}")
    new = None if fresh is None else fresh if isinstance(fresh, nn.Module) else fresh()
    parameters = dict(model.named_parameters())
    others = {n: torch.zeros(()) for n in parameters} if new is None else dict(new.named_parameters())
    wrong = [
        n
        for n, p in parameters.items()
        if n not in others or (others[n].dim() and others[n].shape != p.shape)
    ]
    if wrong:
        raise RemedyError(
            f"the fresh network has no {wrong[0]} of the same shape: give one of the same architecture"
        )
    with moved_by(model, inputs, call) as moved, torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(mixed(parameter, others[name].to(parameter), shrink, noise))
        forget(optimizers, parameters.values())
        return Effect("shrink_and_perturb", dict.fromkeys(parameters, ()), moved())
