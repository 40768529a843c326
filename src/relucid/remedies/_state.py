"""The optimizers that go along with a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

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
