"""A lower bound for weights from latitudes: the passes over them that neither direction can do without."""

from collections.abc import Callable

import torch
from torch import Tensor


def passes(total: int, *, returned: bool, entries: int = 2**17, chain: int = 16) -> Callable[[], None]:
    """Weights from ``total`` latitudes and the gradient in them: nine passes, and nothing written without need.

    Products and sums run in chains of 16, which is as fast as torch computes them; joining the chains is left out.

    Args:
        total: Number of latitudes.
        returned: Whether the weights and the gradient are new tensors, as a function must return them, and what they
            are computed from is read from memory. Otherwise everything stays in the cache.
        entries: Number of latitudes at a time: torch uses several threads only for more than 32,768.
        chain: Length of products and sums.
    """
    size = total if returned else entries
    latitudes, grad = 0.03 * torch.randn(size), torch.randn(size)
    weights, pull = torch.empty(2, entries)
    across, ratio = torch.empty(2, entries)

    def block(x: Tensor, g: Tensor, w: Tensor, out: Tensor) -> None:
        p, t = across[: len(x)], ratio[: len(x)]
        torch.sin(x, out=w)
        torch.cos(x, out=p).view(-1, chain).cumprod_(-1)
        w.mul_(p)
        torch.div(w, p, out=t)
        torch.mul(p, g, out=out)
        torch.mul(w, g, out=p).view(-1, chain).cumsum_(-1)
        out.addcmul_(p, t, value=-1)

    def once() -> None:
        arrays = (latitudes, grad, torch.empty(total), torch.empty(total))
        for parts in zip(*(each.split(entries) for each in arrays), strict=True):
            block(*parts)

    def in_cache() -> None:
        for _ in range(total // entries):
            block(latitudes, grad, weights, pull)

    return once if returned else in_cache
