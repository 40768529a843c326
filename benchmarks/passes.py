"""A lower bound for weights from latitudes: the passes over them that neither direction can do without."""

from collections.abc import Callable

import torch


def passes(total: int, entries: int = 2**15, chain: int = 16) -> Callable[[], None]:
    """Weights from ``total`` latitudes and the gradient in them: nine passes, and nothing written without need.

    Products and sums run in chains of 16, which is as fast as torch computes them; joining the chains is left out.
    """
    latitudes, g = 0.03 * torch.randn(entries), torch.randn(entries)
    w, p, t = (torch.empty(entries) for _ in range(3))

    def block() -> None:
        torch.sin(latitudes, out=w)
        torch.cos(latitudes, out=p).view(-1, chain).cumprod_(-1)
        w.mul_(p)
        torch.div(w, p, out=t)
        w.mul_(g).view(-1, chain).cumsum_(-1)
        p.mul_(g).addcmul_(w, t, value=-1)

    def every_block() -> None:
        for _ in range(total // entries):
            block()

    return every_block
