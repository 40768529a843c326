"""Named layers drawn again: the remedy for a saturated policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from relucid.inspect.execution import Method
from relucid.remedies._effect import Effect, Optimizers, RemedyError, check_network, moved_by, optimizers_in
from relucid.remedies._forget import forget


def reset(
    model: nn.Module,
    layers: str | Sequence[str],
    fresh: nn.Module | None = None,
    *,
    optimizer: Optimizers = None,
    inputs: Any = None,
    call: Method | None = None,
) -> Effect:
    """Draw named layers again in place, with everything inside (Nikishin et al. 2022).

    It is what helps a policy whose outputs are saturated, where no remedy that keeps outputs can.

    Args:
        model: Any network.
        layers: Names or globs of modules, such as "action_net" or "critic.*".
        fresh: A new network of the same architecture, whose values the layers take; by default each draws its first
            values by its own ``reset_parameters``.
        optimizer: One or several, whose state of these parameters is reset, steps included.
        inputs: Inputs on which to measure by how much outputs move.
        call: How the network is used, if not through its forward.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    >>> effect = reset(net, "2", inputs=torch.randn(8, 4))
    >>> list(effect.changed), effect.moved > 0
    (['2'], True)
    """
    check_network(model)
    optimizers = optimizers_in(optimizer, model)
    chosen = _chosen(model, [layers] if isinstance(layers, str) else layers)
    owners = {
        f"{name}.{inner}".strip("."): m for name in chosen for inner, m in _owners(model.get_submodule(name))
    }
    others = None if fresh is None else dict(fresh.named_modules())
    for name, module in owners.items():
        if others is None and not callable(getattr(module, "reset_parameters", None)):
            raise RemedyError(
                f"{name} ({type(module).__name__}) cannot draw its own values: give a fresh network"
            )
        if others is not None and not _fits(module, others.get(name)):
            raise RemedyError(f"the fresh network has no {name} of the same shapes")
    with moved_by(model, inputs, call) as moved, torch.no_grad():
        for name, module in owners.items():
            if others is None:
                draw: Any = module.reset_parameters
                draw()
            else:
                for key, value in _values(module).items():
                    value.copy_(_values(others[name])[key])
        forget(optimizers, (p for module in owners.values() for p in module.parameters(recurse=False)))
        return Effect("reset", dict.fromkeys(chosen, ()), moved())


def _chosen(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """The outermost modules whose names match."""
    names = [name for name, _ in model.named_modules() if name]
    chosen: list[str] = []
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise RemedyError(f"no layer is named {pattern!r}; there are {', '.join(names)}")
        chosen += [
            name
            for name in matching
            if not any(name.startswith(f"{other}.") for other in (*chosen, *matching))
        ]
    return list(dict.fromkeys(chosen))


def _owners(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules with parameters or buffers of their own."""
    for name, module in root.named_modules():
        if _values(module):
            yield name, module


def _values(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))


def _fits(module: nn.Module, other: nn.Module | None) -> bool:
    if other is None:
        return False
    shapes = {name: value.shape for name, value in _values(module).items()}
    return shapes == {name: value.shape for name, value in _values(other).items()}
