"""How large blocks of values are, and squared norms in blocks: fresh memory would cost more than computing them."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1 << 17  # values per thread at a time: they and their squares stay in a core's own cache
LARGE_BLOCK = 1 << 22  # on other devices than a CPU, where every block costs time of its own


def squared_norms(x: Tensor, dim: int) -> Tensor:
    """The squared norms along ``dim``, which is not the first: in float32, or in float64 if ``x`` is.

    Args:
        x: (N, ...).
        dim: The dimension of each vector's entries.

    >>> squared_norms(torch.tensor([[3.0, 4.0], [1.0, 0.0]]), dim=1)
    tensor([25.,  1.])
    """
    size = BLOCK * threads() if x.device.type == "cpu" else LARGE_BLOCK
    rows = max(1, size * len(x) // max(x.numel(), 1))
    return torch.cat([wide(block).square().sum(dim) for block in x.split(rows)])


def threads() -> int:
    """Number of threads that share a block; at most 16, so that float32 counts the values in it exactly."""
    return min(torch.get_num_threads(), 16)


def wide(x: Tensor) -> Tensor:
    """``x`` in float32, or in float64 if it is."""
    return x if x.dtype == torch.float64 else x.float()
