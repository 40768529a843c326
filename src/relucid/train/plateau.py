"""Reduce the learning rate on a plateau and stop on a long one, for one network or for many at once."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Plateau:
    """Schedule that multiplies the rate by `factor` after every `patience` epochs in a row without a better value.

    Training ends after `stop` such epochs. A value is better if it is lower than all before it; for the rate it must
    be lower by more than `threshold` than the last one that counted (Keras: 1e-4).
    """

    patience: int
    stop: int
    factor: float = 0.1
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.patience <= self.stop:
            raise ValueError(f"patience={self.patience} must be at least 1 and at most stop={self.stop}")


@dataclass
class PlateauState:
    """State of M networks: best value and epochs since then, the same by the threshold, factor on the rate; each (M,).

    >>> state = PlateauState.start(members=1)
    >>> for value in (3.0, 2.0, 2.0, 5.0, 2.0, 2.0):
    ...     _ = state.update(torch.tensor([value]), Plateau(patience=2, stop=4))
    >>> state.best.item(), state.waited.item(), round(state.factor.item(), 6)
    (2.0, 4, 0.01)
    """

    best: Tensor
    waited: Tensor
    reference: Tensor
    stalled: Tensor
    factor: Tensor

    @classmethod
    def start(cls, members: int) -> "PlateauState":
        """The state before the first epoch."""
        best = torch.full((members,), torch.inf, dtype=torch.float64)
        none = torch.zeros(members, dtype=torch.long)
        return cls(best, none, best.clone(), none.clone(), torch.ones_like(best))

    def update(self, value: Tensor, plateau: Plateau) -> Tensor:
        """Record an epoch's values (M,) and return which of them are the best so far."""
        better = value < self.best
        self.best = torch.where(better, value.double(), self.best)
        self.waited = torch.where(better, 0, self.waited + 1)
        progress = value < self.reference - plateau.threshold
        self.reference = torch.where(progress, value.double(), self.reference)
        self.stalled = torch.where(progress, 0, self.stalled + 1)
        due = (self.stalled > 0) & (self.stalled % plateau.patience == 0)
        self.factor = torch.where(due, self.factor * plateau.factor, self.factor)
        return better

    def take(self, keep: Tensor) -> "PlateauState":
        """The state of these networks alone."""
        return PlateauState(*(values[keep] for values in vars(self).values()))
