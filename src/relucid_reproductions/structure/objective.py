"""The function that a network minimizes as it propagates (structure Lemma 1)."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from relucid.nn.rules import ADMM, HeavyBall, Nesterov, Nesterov2, Plain, Rule, per_layer, rule_of

Function = Callable[[Tensor], Tensor]


def softplus(t: Tensor) -> Tensor:
    """Compute log(e^t + 1) elementwise; F.softplus returns t for t > 20, which is off by 2e-9."""
    return torch.logaddexp(t, torch.zeros_like(t))


def softplus_integral(t: Tensor) -> Tensor:
    """Compute -polylog(2, -e^t) elementwise: an antiderivative of softplus.

    With w = e^t / (1 + e^t) it is polylog(2, w) + log(1 + e^t)^2 / 2 (Landen's identity). For t <= 0, w <= 1/2
    and 50 terms of the series sum_n w^n / n^2 reach float64's precision; for t > 0 it is t^2 / 2 + pi^2 / 6 minus
    the value at -t.

    >>> softplus_integral(torch.tensor(0.0, dtype=torch.float64)) * 12 / math.pi**2
    tensor(1., dtype=torch.float64)
    """
    negative = -t.abs()
    n = torch.arange(1, 51, dtype=t.dtype, device=t.device)
    series = (torch.sigmoid(negative)[..., None] ** n / n**2).sum(-1)
    left = series + softplus(negative) ** 2 / 2
    return torch.where(t > 0, t**2 / 2 + math.pi**2 / 6 - left, left)


@dataclass(frozen=True)
class Activation:
    """Elementwise function Phi and its antiderivative Psi."""

    phi: Function
    psi: Function


# structure Table 1; its Softsign and ELU are corrected for negative t, and constants are left out.
ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": Activation(torch.sigmoid, softplus),
    "tanh": Activation(torch.tanh, lambda t: t + softplus(-2 * t)),
    "softplus": Activation(softplus, softplus_integral),
    "softsign": Activation(F.softsign, lambda t: t.abs() - torch.log1p(t.abs())),
    "relu": Activation(torch.relu, lambda t: torch.relu(t) ** 2 / 2),
    "leaky_relu": Activation(F.leaky_relu, lambda t: t * F.leaky_relu(t) / 2),
    "elu": Activation(F.elu, lambda t: torch.where(t > 0, t**2 / 2, torch.expm1(t.clamp(max=0)) - t)),
    "swish": Activation(F.silu, lambda t: t * softplus(t) - softplus_integral(t)),
}


class Objective:
    """Function F(x) = f(U x), U = sqrt(W), that layers x -> Phi(W x + b) minimize by gradient descent.

    f(z) = |z|^2 / 2 - sum_i Psi(U_i^T z + b_i) with Psi' = Phi (structure Eq. 8; the paper has b = 0), so that
    z - grad f(z) = U Phi(U z + b): in the variable z = U x, a gradient step on f is a layer (Lemma 1).

    >>> objective = Objective(torch.tensor([[0.5, 0.2], [0.2, 0.5]]), "tanh")
    >>> x = torch.tensor([0.3, -0.1])
    >>> z = objective.to_z(x)
    >>> torch.allclose(objective.to_x(z - objective.f_gradient(z)), objective.layer(x))
    True

    Args:
        weight: W, symmetric and positive definite, (n, n).
        activation: A name in ``ACTIVATIONS``, or an :class:`Activation`.
        bias: b, (n,); 0 by default. With b = 0, x = 0 minimizes F for any Phi with Phi(0) = 0, such as ReLU.
    """

    def __init__(self, weight: Tensor, activation: str | Activation, bias: Tensor | None = None) -> None:
        if isinstance(activation, str):
            if activation not in ACTIVATIONS:
                raise ValueError(f"unknown activation {activation!r}: give one of {', '.join(ACTIVATIONS)}")
            activation = ACTIVATIONS[activation]
        self.activation, self.weight = activation, weight
        self.bias = weight.new_zeros(len(weight)) if bias is None else bias
        self.root = _square_root(weight)

    def layer(self, x: Tensor) -> Tensor:
        """Apply one layer, Phi(W x + b), (..., n)."""
        return self.activation.phi(x @ self.weight + self.bias)

    def to_z(self, x: Tensor) -> Tensor:
        """The variable z = U x, (..., n)."""
        return x @ self.root

    def to_x(self, z: Tensor) -> Tensor:
        """The variable x = U^-1 z, (..., n)."""
        x: Tensor = torch.linalg.solve(self.root, z[..., None])[..., 0]
        return x

    def f(self, z: Tensor) -> Tensor:
        """Evaluate the objective in z, (..., n) -> (...)."""
        return (z**2).sum(-1) / 2 - self.activation.psi(z @ self.root + self.bias).sum(-1)

    def f_gradient(self, z: Tensor) -> Tensor:
        """The gradient of f, z - U Phi(U z + b) (structure Eq. 9), (..., n)."""
        return z - self.activation.phi(z @ self.root + self.bias) @ self.root

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the objective in x, F(x) = f(U x), (..., n) -> (...)."""
        return self.f(self.to_z(x))

    def gradient(self, x: Tensor) -> Tensor:
        """The gradient of F, U grad f(U x) = W (x - Phi(W x + b)), (..., n)."""
        return (x - self.layer(x)) @ self.weight


def _square_root(weight: Tensor) -> Tensor:
    """The symmetric positive definite square root of a matrix; refuse a matrix without one."""
    if weight.dim() != 2 or weight.shape[0] != weight.shape[1] or not torch.allclose(weight, weight.T):
        raise ValueError(f"W must be a symmetric matrix; this one, of shape {tuple(weight.shape)}, is not")
    values, vectors = torch.linalg.eigh(weight)
    if values.min() <= len(weight) * torch.finfo(weight.dtype).eps * values.max():
        raise ValueError(f"W must be positive definite; its smallest eigenvalue is {values.min():.2g}")
    root: Tensor = vectors * values.sqrt() @ vectors.T
    return root


def minimize(rule: str | Rule, objective: Objective, z: Tensor, steps: int) -> Tensor:
    """The iterates z_0 = z, ..., z_steps of a rule's algorithm, run on f: (steps + 1, ..., n).

    Plain is gradient descent (structure Eq. 1), heavy_ball Eq. 2, nesterov the z and nesterov2 the y of Eq. 3,
    admm the y of Eq. 6, all in the algorithms' own variables. The states of a stage made of the objective's layers
    are ``objective.to_x(iterates)``.

    >>> objective = Objective(torch.eye(2) / 2, "relu")
    >>> minimize("plain", objective, torch.tensor([1.0, -1.0]), steps=2)
    tensor([[ 1.0000, -1.0000],
            [ 0.5000,  0.0000],
            [ 0.2500,  0.0000]])
    """
    rule, gradient = rule_of(rule), objective.f_gradient
    beta = {name: per_layer(name, value, steps).tolist() for name, value in rule.coefficients(steps).items()}
    iterates: Iterable[Tensor]
    match rule:
        case Plain():
            iterates = _heavy_ball(gradient, z, [0.0] * steps)
        case HeavyBall(beta1=None, beta2=None):
            iterates = _heavy_ball(gradient, z, beta["beta1"])
        case Nesterov(beta1=None, beta2=None):
            iterates = [z, *(z for _, z in _accelerated(gradient, z, [-beta2 for beta2 in beta["beta2"]]))]
        case Nesterov2():
            iterates = [y for y, _ in _accelerated(gradient, z, [0.0, *beta["beta"]])]
        case ADMM():
            iterates = _admm(gradient, z, steps)
        case _:
            raise ValueError(f"{rule} joins layers but is not an algorithm that minimizes f")
    return torch.stack(list(iterates))


def _heavy_ball(gradient: Function, z: Tensor, betas: Sequence[float]) -> Iterable[Tensor]:
    """Yield the iterates of Eq. 2, or of Eq. 1 with beta = 0."""
    before = z
    yield z
    for beta in betas:
        z, before = z - gradient(z) + beta * (z - before), z
        yield z


def _accelerated(gradient: Function, z: Tensor, betas: Sequence[float]) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield the pairs (y_k, z_{k+1}) of Eq. 3."""
    before = z
    for beta in betas:
        y = z + beta * (z - before)
        z, before = y - gradient(y), z
        yield y, z


def _admm(gradient: Function, z: Tensor, steps: int) -> Iterable[Tensor]:
    """Yield the y of Eq. 6: each argmin is where the derivative of its quadratic is 0."""
    y, multiplier = z, torch.zeros_like(z)
    yield y
    for _ in range(steps):
        z = (z - gradient(z) - multiplier + y) / 2
        y = (y - gradient(y) + multiplier + z) / 2
        multiplier = multiplier + (z - y)
        yield y
