"""How many layers each rule needs to minimize its network's objective."""

import math

import torch
from torch import Tensor

from relucid.nn.rules import Rule, per_layer, rule_of
from relucid_reproductions.structure.objective import Objective


def layers_to_reach(
    rule: str | Rule,
    objective: Objective,
    x: Tensor,
    target: Tensor,
    tolerance: float = 1e-6,
    limit: int = 100_000,
) -> int:
    """Count the layers until x is within ``tolerance`` of the target, relative to its start; -1 beyond ``limit``.

    >>> objective = Objective(torch.eye(1) / 2, "relu")
    >>> layers_to_reach("plain", objective, torch.ones(1), torch.zeros(1), tolerance=0.01)
    7
    """
    rule = rule_of(rule)
    values = {
        name: per_layer(name, value, limit).tolist() for name, value in rule.coefficients(limit).items()
    }
    variables, goal = rule.begin(x, x), tolerance * (x - target).norm()
    for k in range(limit):
        if (variables[0] - target).norm() <= goal:
            return k
        coefficients = {name: value[k] for name, value in values.items()}
        variables = rule.step(*[objective.layer] * rule.paths, *variables, **coefficients)
    return -1


def strongly_convex(kappa: float, size: int = 100, seed: int = 0) -> tuple[Objective, Tensor]:
    """The objective of a ReLU network with L = 1 and mu = 1 / kappa, and its minimizer.

    The eigenvalues of I - W are spaced evenly on a log scale from mu to 0.99; the Hessian of f lies between
    I - W and I. The bias makes a random positive x the minimizer: all units are active there, so that mu is
    attained. (If some were inactive, gradient descent would do better than kappa predicts.)

    >>> objective, minimizer = strongly_convex(kappa=100)
    >>> torch.allclose(objective.gradient(minimizer), torch.zeros(100, dtype=torch.float64))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    values = 1 - torch.logspace(-math.log10(kappa), math.log10(0.99), size, dtype=torch.float64)
    weight = q * values @ q.T
    minimizer = torch.randn(size, dtype=torch.float64, generator=generator).abs()
    return Objective((weight + weight.T) / 2, "relu", minimizer - minimizer @ weight), minimizer
