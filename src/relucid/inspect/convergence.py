"""How many layers each rule needs to minimize its network's objective."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relucid.inspect.objective import Objective
from relucid.nn.rules import HeavyBall, Nesterov, Plain, Rule, per_layer, rule_of
from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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


@dataclass(frozen=True)
class Convergence(Summarized):
    """Layers needed to reach the minimizer, by rule and condition number kappa = L / mu; -1 means over 100,000."""

    kappa: tuple[float, ...]
    layers: dict[str, tuple[int, ...]]

    def summary(self) -> str:
        """A table with a line per rule and a column per condition number, and the theory's predictions."""
        bounds = {"L / mu": list(self.kappa), "sqrt(L / mu)": [math.sqrt(kappa) for kappa in self.kappa]}
        rows = {"layers at kappa =": self.kappa, **self.layers, **bounds}
        return "\n".join(f"{name:28}" + "".join(f"{n:10.0f}" for n in row) for name, row in rows.items())

    def figure(self) -> "Figure":
        """Plot layers against kappa, log-log: slope 1 for gradient descent, 1/2 for the accelerated rules."""
        from plotly.graph_objects import Figure, Scatter

        lines = [Scatter(x=self.kappa, y=layers, name=name) for name, layers in self.layers.items()]
        figure = Figure(lines)
        figure.update_xaxes(type="log", title="kappa = L / mu").update_yaxes(type="log", title="layers")
        return figure


def convergence(kappas: Sequence[float] = (10, 100, 1000), size: int = 100, seed: int = 0) -> Convergence:
    """Count the layers each rule needs to come within 1e-6 of the minimizer, relative to its start.

    Heavy ball uses the best beta for steps of 1 / L, (1 - sqrt(mu / L))^2; Nesterov's method runs with its own
    theta_k and with the constant of structure footnote 4. The counts depend on these choices and on the instance
    (:func:`strongly_convex`).

    >>> print(convergence(kappas=(10, 100)).summary())
    layers at kappa =                   10       100
    gradient descent                   108      1096
    Nesterov, theta_k                  117       852
    Nesterov, constant                  36       135
    heavy ball, best beta               37       144
    L / mu                              10       100
    sqrt(L / mu)                         3        10
    """
    counts: dict[str, list[int]] = {}
    for kappa in kappas:
        objective, minimizer = strongly_convex(kappa, size, seed)
        begin = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
        root = math.sqrt(1 / kappa)
        rules = {
            "gradient descent": Plain(),
            "Nesterov, theta_k": Nesterov(),
            "Nesterov, constant": Nesterov((1 - root) / (1 + root)),
            "heavy ball, best beta": HeavyBall((1 - root) ** 2),
        }
        for name, rule in rules.items():
            counts.setdefault(name, []).append(layers_to_reach(rule, objective, begin, minimizer))
    return Convergence(tuple(kappas), {name: tuple(row) for name, row in counts.items()})
