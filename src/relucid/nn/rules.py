"""How layers follow each other: each rule is the iteration of an optimization algorithm.

A layer T(x) = Phi(W x) is, in suitable variables, a gradient step on some function (structure Lemma 1). So any
algorithm made of gradient steps is a way to join layers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

Transform = Callable[[Tensor], Tensor]
Coefficient = float | Sequence[float]  # one for all layers, or one per layer
Triangle = float | Sequence[Sequence[float]]  # one for all pairs of layers, or rows of 1, 2, ..., K


def momentum(steps: int) -> Tensor:
    """Nesterov's beta_1, ..., beta_steps in float64, shape (steps,).

    beta_k = theta_k (1 - theta_{k-1}) / theta_{k-1}, where theta_0 = 1 and (1 - theta_k) / theta_k^2 =
    1 / theta_{k-1}^2 (structure Eq. 3).

    >>> momentum(3)
    tensor([0.0000, 0.2818, 0.4340], dtype=torch.float64)
    """
    theta, betas = 1.0, []
    for _ in range(steps):
        theta, before = theta * (math.sqrt(theta**2 + 4) - theta) / 2, theta
        betas.append(theta * (1 - before) / before)
    return torch.tensor(betas, dtype=torch.float64, device="cpu")  # on the CPU: its values are read at once


def nesterov_weights(depth: int) -> Tensor:
    """The h_{k+1,j} of structure Eq. 5: row k has the weights of layers j = 0..k; shape (depth, depth).

    >>> nesterov_weights(3)
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 1.2818, 0.0000],
            [0.0000, 0.1223, 1.4340]], dtype=torch.float64)
    """
    h = torch.zeros(depth, depth, dtype=torch.float64, device="cpu")
    for k, beta in enumerate(momentum(depth).tolist()):
        if k > 0:
            h[k] = beta * h[k - 1]
            h[k, k - 1] -= beta
        h[k, k] = 1 + beta
    return h


class Rule:
    """How x_{k+1} follows from the layers before it. Plain data: learned parameters belong to the stage.

    A rule carries a tuple of variables from layer to layer, x_k first.
    """

    paths: ClassVar[int] = 1
    learnable: bool = False

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "beta1", "beta2"):
            for value in _leaves(getattr(self, name, None)):
                if not isinstance(value, Real) or not math.isfinite(value):
                    raise ValueError(f"{name} must be a finite number, or a list of them, not {value!r}")

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """(Initial) values by name, float64: shape () if shared by all layers, else (depth, ...)."""
        return {}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Any, ...]:
        """The variables at layer 0, given x_0 and x_{-1}."""
        return (x,)

    def step(self, *variables: Any, **coefficients: Any) -> tuple[Any, ...]:
        """The variables after one more layer, given its T, the variables before it, and its coefficients."""
        raise NotImplementedError

    def end(self, *variables: Any) -> Tensor:
        """The output of the stage, given the variables after its last layer."""
        last: Tensor = variables[0]
        return last


@dataclass(frozen=True)
class Plain(Rule):
    """x_{k+1} = T(x_k) (structure Eq. 7): gradient descent, an ordinary feedforward network."""

    def step(self, T: Transform, x: Tensor) -> tuple[Tensor]:
        """Eq. 7."""
        return (T(x),)


@dataclass(frozen=True)
class Residual(Rule):
    """x_{k+1} = T(x_k) + x_k (structure Eq. 16, beta1 = 1, beta2 = 0): ResNet without ReLU after the sum."""

    def step(self, T: Transform, x: Tensor) -> tuple[Tensor]:
        """Eq. 16 with beta2 = 0."""
        return (T(x) + x,)


@dataclass(frozen=True)
class HeavyBall(Rule):
    """x_{k+1} = T(x_k) + beta (x_k - x_{k-1}) (structure Eq. 11); beta = 1 in HB-Net.

    Given ``beta1`` or ``beta2`` it is T(x_k) + beta1 x_k + beta2 x_{k-1} (Eq. 16). Each is one number for all
    layers or a sequence with one per layer; ``learnable=True`` makes both parameters of the stage.
    """

    beta: Coefficient = 1.0
    beta1: Coefficient | None = None
    beta2: Coefficient | None = None
    learnable: bool = False

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """beta1, beta2."""
        beta = _tensor(self.beta)
        return {"beta1": _given(self.beta1, beta), "beta2": _given(self.beta2, -beta)}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """x_0, x_{-1}."""
        return x, previous

    def step(
        self, T: Transform, x: Tensor, previous: Tensor, *, beta1: Any, beta2: Any
    ) -> tuple[Tensor, Tensor]:
        """Eq. 16."""
        return T(x) + beta1 * x + beta2 * previous, x


@dataclass(frozen=True)
class Nesterov(Rule):
    """x_{k+1} = T(x_k + beta_k (x_k - x_{k-1})) (structure Eq. 12), the z-sequence of Eq. 3.

    ``beta`` is Nesterov's own sequence (None), or a constant as in footnote 4, for strongly convex functions.
    Given ``beta1`` or ``beta2`` it is T(beta1 x_k + beta2 x_{k-1}) (Eq. 17).
    """

    beta: Coefficient | None = None
    beta1: Coefficient | None = None
    beta2: Coefficient | None = None
    learnable: bool = False

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """beta1, beta2."""
        # Eq. 3 does not need beta_0, because there x_{-1} = x_0. It is 0: no past, no momentum.
        beta = _given(self.beta, torch.cat([_tensor([0.0]), momentum(depth)])[:depth])
        return {"beta1": _given(self.beta1, 1 + beta), "beta2": _given(self.beta2, -beta)}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """x_0, x_{-1}."""
        return x, previous

    def step(
        self, T: Transform, x: Tensor, previous: Tensor, *, beta1: Any, beta2: Any
    ) -> tuple[Tensor, Tensor]:
        """Eq. 17."""
        return T(beta1 * x + beta2 * previous), x


@dataclass(frozen=True)
class Nesterov2(Rule):
    """x_{k+1} = x_k + sum_j h_{k+1,j} (T(x_j) - x_j) (structure Eq. 13), the y-sequence of Eq. 3.

    Since h_{k+1,j} = beta_{k+1} h_{k,j} except at j = k-1 and k (Eq. 5), one running sum serves all layers:
    z_{k+1} - x_k + beta_{k+1} (z_{k+1} - z_k) with z_{k+1} = T(x_k). ``beta`` as in :class:`Nesterov`.
    """

    beta: Coefficient | None = None

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """beta_1, ..., beta_depth."""
        return {"beta": _given(self.beta, momentum(depth))}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """x_0, z_0 = x_0."""
        return x, x

    def step(self, T: Transform, x: Tensor, z: Tensor, *, beta: float) -> tuple[Tensor, Tensor]:
        """Eq. 13."""
        z, before = T(x), z
        # z + beta (z - before) in one pass; under autocast, T may return another dtype than that of x_0.
        return torch.lerp(before.to(z.dtype), z, 1 + beta), z


@dataclass(frozen=True)
class LatestNesterov2(Rule):
    """x_{k+1} = x_k + sum_j h_{k+1,j} (T_{k+1}(x_j) - x_j): Eq. 13 with the new layer's weights on all x_j.

    Eq. 13 has one T for all layers and can be read in two ways. In :class:`Nesterov2` each x_j has its own T_{j+1};
    here layer k + 1 is applied to all x_j, k + 1 times, and all x_j are stored.
    """

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """The lower triangle h of Eq. 5."""
        return {"h": nesterov_weights(depth)}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Any, ...]:
        """x_0, and no layers before it."""
        return x, ()

    def step(self, T: Transform, x: Tensor, xs: Any, *, h: Any) -> tuple[Any, ...]:
        """Eq. 13."""
        xs = (*xs, x)
        steps = [weight * (T(x_j) - x_j) for weight, x_j in zip(h, xs, strict=False) if weight != 0]
        return sum(steps, x), xs


@dataclass(frozen=True)
class RelaxedNesterov2(Rule):
    """x_{k+1} = sum_j alpha_{k+1}^j T(x_j) + sum_j beta_{k+1}^j x_j over all j = 0..k (structure Eq. 18).

    ``alpha`` and ``beta`` are one number for all pairs of layers, or rows of 1, 2, ..., K numbers, of which
    row k is for x_{k+1}; by default those of Eq. 13. All layers are stored.
    """

    alpha: Triangle | None = None
    beta: Triangle | None = None
    learnable: bool = False

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """Alpha, beta: lower triangles."""
        h = nesterov_weights(depth)
        return {
            "alpha": _triangle(self.alpha, h),
            "beta": _triangle(self.beta, torch.eye(depth, dtype=h.dtype, device=h.device) - h),
        }

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Any, ...]:
        """x_0, and no layers before it."""
        return x, (), ()

    def step(self, T: Transform, x: Tensor, Ts: Any, xs: Any, *, alpha: Any, beta: Any) -> tuple[Any, ...]:
        """Eq. 18."""
        Ts, xs = (*Ts, T(x)), (*xs, x)
        return _weighted(alpha, Ts) + _weighted(beta, xs), Ts, xs


@dataclass(frozen=True)
class ADMM(Rule):
    """Linearized ADMM: two paths, x' and x, pulled together by lambda (structure Eq. 14); the output is x.

    x'_{k+1} = (T'(x'_k) + x_k - lambda_k) / 2, then x_{k+1} = (T(x_k) + x'_{k+1} + lambda_k) / 2, where
    lambda_k is the sum of x'_t - x_t up to t = k. A layer is a pair of transforms, (T', T).
    """

    paths: ClassVar[int] = 2

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Any, ...]:
        """x_0, x'_0 = x_0, lambda = 0."""
        return x, x, 0.0

    def step(self, T_: Transform, T: Transform, x: Tensor, x_: Tensor, multiplier: Any) -> tuple[Any, ...]:
        """Eq. 14."""
        multiplier = multiplier + (x_ - x)
        x_ = (T_(x_) + x - multiplier) / 2
        x = (T(x) + x_ + multiplier) / 2
        return x, x_, multiplier


@dataclass(frozen=True)
class RelaxedADMM(Rule):
    """Two paths, x'_{k+1} = T'(x'_k) + s_k and x_{k+1} = T(x_k) + s_k (structure Eq. 20).

    s_k = sum_t alpha_k^t x'_t + sum_t beta_k^t x_t, coefficients as in :class:`RelaxedNesterov2`; by default
    alpha_k^k = beta_k^k = 1/2 and the others are 0: DMRNet. The paper prints alpha_t, the same in all layers, in
    sums from t = 1, which cannot express DMRNet. Eq. 14 is no special case of Eq. 20: its signs differ between the
    paths. A layer is a pair of transforms, (T', T). The output is the mean of x and x': x alone would not depend on
    the last T'.
    """

    paths: ClassVar[int] = 2
    alpha: Triangle | None = None
    beta: Triangle | None = None
    learnable: bool = False

    def coefficients(self, depth: int) -> dict[str, Tensor]:
        """Alpha, beta: lower triangles."""
        half = torch.eye(depth, dtype=torch.float64, device="cpu") / 2
        return {"alpha": _triangle(self.alpha, half), "beta": _triangle(self.beta, half)}

    def begin(self, x: Tensor, previous: Tensor) -> tuple[Any, ...]:
        """x_0, x'_0 = x_0, and no layers before them."""
        return x, x, (), ()

    def step(
        self, T_: Transform, T: Transform, x: Tensor, x_: Tensor, xs_: Any, xs: Any, *, alpha: Any, beta: Any
    ) -> tuple[Any, ...]:
        """Eq. 20."""
        xs_, xs = (*xs_, x_), (*xs, x)
        shared = _weighted(alpha, xs_) + _weighted(beta, xs)
        return T(x) + shared, T_(x_) + shared, xs_, xs

    def end(self, x: Tensor, x_: Tensor, xs_: Any, xs: Any) -> Tensor:
        """The mean of both paths."""
        return (x + x_) / 2


RULES: dict[str, type[Rule]] = {
    "plain": Plain,
    "residual": Residual,
    "heavy_ball": HeavyBall,
    "nesterov": Nesterov,
    "nesterov2": Nesterov2,
    "admm": ADMM,
}
"""Propagation rules by name."""


def rule_of(rule: str | Rule) -> Rule:
    """The rule with this name in ``RULES``; a rule is returned as it is.

    >>> rule_of("heavy_ball")
    HeavyBall(beta=1.0, beta1=None, beta2=None, learnable=False)
    """
    if isinstance(rule, Rule):
        return rule
    if rule not in RULES:
        raise ValueError(
            f"unknown rule {rule!r}: give one of {', '.join(RULES)}, or a rule such as HeavyBall()"
        )
    return RULES[rule]()


def per_layer(name: str, value: Tensor, depth: int) -> Tensor:
    """A rule's coefficient for each of ``depth`` layers, (depth, ...); a single number is repeated.

    >>> per_layer("beta", torch.tensor(0.3), depth=2)
    tensor([0.3000, 0.3000])
    """
    if value.dim() > 0 and len(value) != depth:
        raise ValueError(f"{name} has {len(value)} values for {depth} layers: give 1 or {depth}")
    return value.expand(depth) if value.dim() == 0 else value


def _leaves(value: Any) -> Iterator[Any]:
    """All numbers in a coefficient, or what is there in place of a number."""
    if hasattr(value, "tolist"):  # a tensor or an array
        value = value.tolist()
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value


def _tensor(value: Coefficient) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device="cpu")


def _given(value: Coefficient | None, default: Tensor) -> Tensor:
    return default if value is None else _tensor(value)


def _triangle(value: Triangle | None, default: Tensor) -> Tensor:
    """(K, K), zero above the diagonal."""
    if value is None:
        return default
    if isinstance(value, int | float):
        return torch.full_like(default, value).tril()
    lengths, depth = [len(row) for row in value], len(default)
    if lengths != list(range(1, depth + 1)):
        raise ValueError(f"coefficients of {depth} layers are rows of 1 to {depth} numbers, not of {lengths}")
    rows = [[*row, *[0.0] * (depth - len(row))] for row in value]
    return torch.tensor(rows, dtype=torch.float64, device="cpu").reshape(depth, depth)


def _weighted(weights: Any, tensors: Sequence[Tensor]) -> Tensor:
    """The sum of weight times tensor; a constant 0 costs nothing. Surplus weights are ignored."""
    total = torch.zeros_like(tensors[0])
    factors = weights.unbind() if isinstance(weights, Tensor) else weights
    for weight, tensor in zip(factors[: len(tensors)], tensors, strict=True):
        if isinstance(weight, Tensor) or weight != 0:
            total = total + weight * tensor
    return total
