"""An optimizer without its past."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from relucid.remedies._effect import Optimizers, optimizers_in


def forget(optimizer: Optimizers, parameters: Iterable[Tensor] | None = None) -> int:
    """Reset an optimizer's state, steps included; return for how many parameters.

    Moments and counts of steps go; learning rates, groups and schedulers stay.

    Args:
        optimizer: One or several.
        parameters: Which to forget the state of; by default all.

    >>> import torch
    >>> weight = torch.ones(3, requires_grad=True)
    >>> optimizer = torch.optim.Adam([weight])
    >>> weight.sum().backward(); optimizer.step()
    >>> forget(optimizer), len(optimizer.state)
    (1, 0)
    """
    wanted = None if parameters is None else {id(p) for p in parameters}
    forgotten = 0
    for one in optimizers_in(optimizer):
        gone = [p for p in one.state if wanted is None or id(p) in wanted]
        for parameter in gone:
            del one.state[parameter]
        forgotten += len(gone)
    return forgotten
