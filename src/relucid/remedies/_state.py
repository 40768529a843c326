"""The state that optimizers keep for entries of parameters that were drawn again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relucid.remedies._effect import RemedyError

Optimizers = Any  # one torch.optim.Optimizer, a wrapper of one, or several


def optimizers_in(optimizer: Optimizers, model: nn.Module | None = None) -> list[Any]:
    """The optimizers as a list; refuse what is none, and those that train nothing of the network.

    >>> optimizers_in(None)
    []
    """
    given = (
        [] if optimizer is None else [*optimizer] if isinstance(optimizer, Sequence | set) else [optimizer]
    )
    known = set() if model is None else {id(p) for p in model.parameters()}
    for one in given:
        if not hasattr(one, "param_groups"):
            raise RemedyError(
                f"optimizer= takes one torch.optim.Optimizer or several, not a {type(one).__name__}"
            )
        if model is not None and not any(
            id(p) in known for group in one.param_groups for p in group["params"]
        ):
            raise RemedyError("the optimizer trains no parameter of this network: give the one that does")
        if isinstance(one, torch.optim.LBFGS):
            raise RemedyError(
                "LBFGS keeps one history of all parameters, which would be wrong: use a new LBFGS"
            )
    return given


def drawn_again(optimizers: Iterable[Any], parameter: Tensor, dim: int, units: Tensor) -> None:
    r"""Let the state of some entries start so that their first step is not longer than a living unit's.

    A first moment starts at 0. A second moment that started at 0, while Adam's count of steps goes on, would make the
    first step (1 - beta1) / sqrt(1 - beta2) = 3.2 times the rate and the tenth 6.5 times, at which units die again. It
    starts at the mean of the living units' instead, entry by entry; where none lives, all state is reset.

    Args:
        optimizers: Those that may train the parameter.
        parameter: The parameter, whose entries were drawn again.
        dim: The dimension of its units.
        units: The indices of the units drawn again.
    """
    living = torch.ones(parameter.shape[dim], dtype=torch.bool, device=parameter.device)
    living[units] = False
    for state in states_of(optimizers, parameter):
        entries = [v for v in state.values() if isinstance(v, Tensor) and v.dim()]
        if not bool(living.any()) or any(v.shape != parameter.shape for v in entries):
            state.clear()
            continue
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.dim():
                rows = value.movedim(dim, 0)
                squares = key.endswith(("sq", "sum", "square_avg", "inf")) and not bool((value < 0).any())
                rows[units] = rows[living].mean(0) if squares else torch.zeros_like(rows[0])


def states_of(optimizers: Iterable[Any], parameter: Tensor) -> Iterator[dict[str, Any]]:
    """Yield the state that each optimizer keeps for a parameter."""
    for optimizer in optimizers:
        if parameter in optimizer.state:
            yield optimizer.state[parameter]
