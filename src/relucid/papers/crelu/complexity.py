"""Empirical Rademacher complexity of units followed by ReLU or CReLU and a linear map (crelu Section 4.1)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from relucid.printing import Summarized


@dataclass(frozen=True)
class MonteCarlo:
    """A Monte-Carlo mean and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.1g}"


@dataclass(frozen=True)
class Complexity(Summarized):
    """Complexities of one class of units and the bounds on them, all from the same random signs."""

    units: MonteCarlo  #: R(F)
    absolute: MonteCarlo  #: R(|F|)
    relu: MonteCarlo  #: R(H o ReLU o G): d units, ReLU, then a linear map of norm at most B
    crelu: MonteCarlo  #: R(H o CReLU o G)
    printed: MonteCarlo  #: sqrt(d) B R(F), crelu Theorem 4.1 as printed, which does not bound ``crelu``
    corrected: MonteCarlo  #: sqrt(d) B (R(F) + R(|F|)) / sqrt(2), which does

    def summary(self) -> str:
        """A summary in one sentence."""
        return (
            f"ReLU {self.relu}, CReLU {self.crelu}; Theorem 4.1 as printed {self.printed}, "
            f"corrected {self.corrected}"
        )


def complexity(
    values: Tensor,
    *,
    width: int = 1,
    bound: float = 1.0,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> Complexity:
    r"""Estimate the empirical Rademacher complexities of a class of units with these values on L inputs.

    R(F) = E sup_f |2/L sum_i s_i f(x_i)| over random signs s (crelu Definition B.1, which prints a sum over f
    for the supremum). With ``width`` = d arbitrary units of the class, followed by weights of norm at most
    ``bound`` = B, the supremum over the weights is a norm: B sqrt(d) E sup_f |2/L sum_i s_i rho(f(x_i))|. For CReLU
    that is (a^2 + b^2)^(1/2) with a, b the two phases' sums. Theorem 4.1 equates it with |a - b|, which is false:
    for x = (1, -1) and f = +-x the left side is sqrt(2), the right side 1. Since
    a^2 + b^2 = ((a - b)^2 + (a + b)^2) / 2, what holds is sqrt(d) B (R(F) + R(|F|)) / sqrt(2).

    Args:
        values: (units, L): f(x_i) of every unit of a finite class.
        width: d, the number of units of the layer.
        bound: B, the norm of the weights that follow.
        draws: Number of random sign vectors.
        generator: Random generator for the signs.

    >>> found = complexity(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), draws=10_000)   # the counterexample
    >>> found.crelu.value > found.printed.value and found.crelu.value <= found.corrected.value
    True
    """
    if values.dim() != 2 or not values.numel() or draws < 2:
        raise ValueError(
            f"complexity takes values (units, inputs) and at least 2 draws; got {tuple(values.shape)}, {draws}"
        )
    f = values.detach().double()
    coin = torch.randint(2, (draws, f.shape[1]), generator=generator)
    signs = (2 * coin - 1).to(f) * (2 / f.shape[1])
    positive, negative = signs @ f.clamp_min(0).T, signs @ (-f).clamp_min(0).T  # (draws, units)
    plain = (positive - negative).abs().amax(1)
    absolute = (positive + negative).abs().amax(1)
    factor = math.sqrt(width) * bound
    return Complexity(
        units=_estimate(plain),
        absolute=_estimate(absolute),
        relu=_estimate(factor * positive.abs().amax(1)),
        crelu=_estimate(factor * torch.hypot(positive, negative).amax(1)),
        printed=_estimate(factor * plain),
        corrected=_estimate(factor * (plain + absolute) / math.sqrt(2)),
    )


def _estimate(samples: Tensor) -> MonteCarlo:
    return MonteCarlo(float(samples.mean()), float(samples.std() / math.sqrt(len(samples))))
