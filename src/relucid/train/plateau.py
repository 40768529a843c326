"""Reduce the learning rate on a plateau and stop on a long one, for one network or for many at once."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Plateau:
    """The rate is multiplied by `factor` at every `patience` epochs in a row without a better value.

    Training ends after `stop` such epochs. A value is better if it is lower than all before it.
    """

    patience: int
    stop: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.patience <= self.stop:
            raise ValueError(f"patience={self.patience} must be at least 1 and at most stop={self.stop}")


@dataclass
class PlateauState:
    """The state of M networks: best value, epochs since then, factor on the rate; each (M,).

    >>> state = PlateauState.start(members=1)
    >>> for value in (3.0, 2.0, 2.0, 5.0, 2.0, 2.0):
    ...     _ = state.update(torch.tensor([value]), Plateau(patience=2, stop=4))
    >>> state.best.item(), state.waited.item(), round(state.factor.item(), 6)
    (2.0, 4, 0.01)
    """

    best: Tensor
    waited: Tensor
    factor: Tensor

    @classmethod
    def start(cls, members: int) -> "PlateauState":
        """The state before the first epoch."""
        best = torch.full((members,), torch.inf, dtype=torch.float64)
        return cls(best, torch.zeros(members, dtype=torch.long), torch.ones_like(best))

    def update(self, value: Tensor, plateau: Plateau) -> Tensor:
        """Record an epoch's values (M,) and return which of them are the best so far."""
        better = value < self.best
        self.best = torch.where(better, value.double(), self.best)
        self.waited = torch.where(better, 0, self.waited + 1)
        due = (self.waited > 0) & (self.waited % plateau.patience == 0)
        self.factor = torch.where(due, self.factor * plateau.factor, self.factor)
        return better

    def take(self, keep: Tensor) -> "PlateauState":
        """The state of these networks alone."""
        return PlateauState(self.best[keep], self.waited[keep], self.factor[keep])
