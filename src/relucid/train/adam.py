"""Steps of Adam for many networks at once, each at its own rate."""

from collections.abc import Sequence

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # as torch.optim.Adam has them


@torch.no_grad()
def adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    rates: Tensor,
    number: int,
    betas: tuple[float, float] = (BETA1, BETA2),
    epsilon: float = EPSILON,
) -> None:
    """Take one step, by the operations of torch.optim.Adam in the same order.

    Args:
        parameters: Those of M networks, each (M, ...); changed in place, as are their moments.
        gradients: The gradient of every parameter.
        first: The first moment of every parameter.
        second: The second moment of every parameter.
        rates: (M,), in float64.
        number: Of the step, from 1.
        betas: As in torch.optim.Adam.
        epsilon: As in torch.optim.Adam.
    """
    beta1, beta2 = betas
    size = rates / (1 - beta1**number)
    correction = (1 - beta2**number) ** 0.5
    for parameter, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
        m.lerp_(gradient, 1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step = m * -size.to(m.dtype).view(-1, *[1] * (m.dim() - 1))
        parameter.addcdiv_(step, v.sqrt().div_(correction).add_(epsilon))
