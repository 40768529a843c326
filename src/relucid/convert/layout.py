"""How the channels of a value changed: which new ones make up each old one."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """How the old channels of a value follow from its new ones: old[c] is the sum of scale[m] new[m], origin[m] = c.

    Usually one new channel has a scale other than 0. There are two where both phases of a unit make up its value.
    """

    dim: int  #: the dimension of the value that holds the channels
    origin: Tensor  #: (new channels,)
    scale: Tensor  #: (new channels,), float64

    @staticmethod
    def same(size: int, dim: int) -> "Layout":
        """Return the layout in which nothing has changed."""
        return Layout(dim, torch.arange(size), torch.ones(size, dtype=torch.float64))

    def terms(self) -> list[tuple[Tensor, Tensor]]:
        """Return [(positions, scale)], both (old channels,): old is the sum of scale * new[positions] over them.

        >>> Layout(1, torch.tensor([0, 1, 1]), torch.tensor([1.0, 1.0, -0.5])).terms()
        [(tensor([0, 1]), tensor([1., 1.])), (tensor([0, 2]), tensor([ 0.0000, -0.5000]))]
        """
        order = (self.scale == 0).int().argsort(stable=True)
        order = order[self.origin[order].argsort(stable=True)]  # by old channel, scales of 0 last
        sizes = self.origin.bincount()
        starts = sizes.cumsum(0) - sizes
        found = []
        for k in range(self._most()):
            exists = k < sizes
            at = order[torch.where(exists, starts + k, starts)]
            found.append((at, torch.where(exists, self.scale[at], 0)))
        return found

    def _most(self) -> int:
        """Return how many new channels the value of an old one is spread over at most."""
        counts = self.origin[self.scale != 0].bincount()
        return int(counts.max()) if counts.numel() else 1

    @property
    def is_split(self) -> bool:
        """Whether the value of some old channel is spread over several new ones."""
        return self._most() > 1

    @property
    def is_binary(self) -> bool:
        """Whether old channels are found as they were, so that any function of them may follow."""
        return bool(((self.scale == 0) | (self.scale == 1)).all()) and not self.is_split

    @property
    def is_positive(self) -> bool:
        """Whether no channel has changed its sign, so that maxima stay maxima."""
        return bool((self.scale >= 0).all()) and not self.is_split

    def at(self, dim: int) -> "Layout":
        """Return the same layout with the channels in another dimension."""
        return Layout(dim, self.origin, self.scale)
