"""Heavy ball run backwards: training in an activation memory that does not grow with depth.

The recursion of structure Eq. 16 is undone by the same sum,

    x_{k+1} = T(x_k) + beta1 x_k + beta2 x_{k-1}    <=>    x_{k-1} = (T(x_k) + beta1 x_k - x_{k+1}) / -beta2,

so backpropagation needs the last two states only and recomputes T on its way. Recovered in float32 the states
drift, ReLUs flip, and gradients are off by 1% after 200 layers. Here the state is float64 while T keeps the
model's precision, and what T returns is rounded to a multiple of 2^-36. While the state stays below 2^17, all
sums with beta1 = 1 and beta2 = -1 are then exact, at any depth.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

# From 2^16 to 2^17 float64 numbers are 2^-36 apart, so adding and subtracting this one rounds all within
# +-2^15 to a multiple of 2^-36. Unlike torch.round, whose gradient is 0, that has the gradient wanted: 1.
_ROUNDER = 1.5 * 2.0**16

# How far a recovered state may be off, as a share of its norm, where the sums are not exact. What float32 itself
# makes of a difference in the last bit of the state is about 1e-6 (benchmarks/reversible.py).
_MAX_DRIFT = 1e-5


def to_state(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """``x`` as the state of a stage: in ``dtype`` (None: as it is), float64 rounded to a multiple of 2^-36.

    >>> float(to_state(torch.tensor(0.1), torch.float64) * 2**36).is_integer()
    True
    """
    if dtype is None:
        return x
    x = x.to(dtype, copy=True)
    return x.add_(_ROUNDER).sub_(_ROUNDER) if dtype == torch.float64 else x


def transformed(
    transform: Callable[[Tensor], Tensor], x: Tensor, dtype: torch.dtype, state_dtype: torch.dtype | None
) -> Tensor:
    """``transform(x)`` as a state; computed in ``dtype`` where the state has a dtype of its own.

    >>> transformed(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]).double(), torch.float32, torch.float64)
    tensor([0., 2.], dtype=torch.float64)
    """
    # A copy even where the dtypes agree: a transform may begin in place, and the state must stay as it is.
    y = transform(x if state_dtype is None else x.to(dtype, copy=True))
    # torch.fx traces with a Proxy, which has no shape to compare.
    if isinstance(y, Tensor) and y.shape != x.shape:
        raise ValueError(
            f"a transform turns shape {tuple(x.shape)} into {tuple(y.shape)}; in a stage it must keep the "
            "shape: give a block that changes it as `first`"
        )
    return to_state(y, state_dtype)


def reversible_heavy_ball(
    transforms: Sequence[nn.Module],
    previous: Tensor,
    x: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The last two states of structure Eq. 16, (x_{K-1}, x_K); backward needs only these and the first two.

    ``previous`` and ``x`` are x_{-1} and x_0 as :func:`to_state` gives them, ``beta1`` and ``beta2`` have
    shape (K,); the transforms compute in ``dtype``. Backward compares the first two states with what it
    recovers of them, and raises a RuntimeError if they differ.
    """
    parameters: dict[Tensor, int] = {}  # each once, transforms may share them
    for transform in transforms:
        for parameter in transform.parameters():
            if parameter.requires_grad:
                parameters.setdefault(parameter, len(parameters))
    names = [{n: parameters[p] for n, p in T.named_parameters() if p in parameters} for T in transforms]
    # Not a decorator: torch.compiler.disable imports the compiler, which takes longer than all of torch.
    apply: Callable[..., tuple[Tensor, Tensor]] = _Reversible.apply
    if torch.compiler.is_compiling():
        apply = torch.compiler.disable(apply)
    return apply(transforms, names, dtype, previous, x, beta1, beta2, *parameters)


class _Reversible(torch.autograd.Function):
    """Parameters are inputs, so that autograd and DDP see them; ``names[k]`` says which of them T_k has."""

    @staticmethod
    def forward(
        ctx: Any,
        transforms: Sequence[nn.Module],
        names: Sequence[dict[str, int]],
        dtype: torch.dtype,
        previous: Tensor,
        x: Tensor,
        beta1: Tensor,
        beta2: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        first = previous, x
        ctx.transforms, ctx.names, ctx.dtype = transforms, names, dtype
        ctx.autocast, ctx.random = _autocast_now(x.device.type), []
        for transform, b1, b2 in zip(transforms, beta1.tolist(), beta2.tolist(), strict=True):
            random = _random_state(x.device)
            with ctx.autocast:
                y = transformed(transform, x, dtype, x.dtype)
            ctx.random.append(None if all(map(torch.equal, random, _random_state(x.device))) else random)
            previous, x = x, y.add_(x, alpha=b1).add_(previous, alpha=b2)
        ctx.save_for_backward(*first, previous, x, beta1, beta2, *parameters)
        return previous, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_previous: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        *first, previous, x, beta1, beta2 = ctx.saved_tensors[:6]
        parameters, coefficients = (
            ctx.saved_tensors[6:],
            list(zip(beta1.tolist(), beta2.tolist(), strict=True)),
        )
        grad_beta1, grad_beta2 = torch.zeros_like(beta1), torch.zeros_like(beta2)
        grad_parameters: list[Tensor | None] = [None] * len(parameters)
        with torch.random.fork_rng([] if x.device.type == "cpu" else [x.device], device_type=x.device.type):
            for k in reversed(range(len(coefficients))):
                b1, b2 = coefficients[k]
                weights = {name: parameters[i] for name, i in ctx.names[k].items()}
                y, grad_x, *grad_weights = _pull_back(ctx, k, weights, previous, grad)
                before = y.add_(previous, alpha=b1).sub_(x).div_(-b2)
                if any(ctx.needs_input_grad[5:7]):
                    grad_beta1[k], grad_beta2[k] = (grad * previous).sum(), (grad * before).sum()
                for i, g in zip(ctx.names[k].values(), grad_weights, strict=True):
                    grad_parameters[i] = g if grad_parameters[i] is None else grad_parameters[i] + g
                grad_previous, grad = b2 * grad, torch.add(grad_previous, grad, alpha=b1).add_(grad_x)
                previous, x = before, previous
        _check_recovered((previous, x), first, exact=bool(((beta1 == beta1.round()) & (beta2 == -1)).all()))
        return None, None, None, grad_previous, grad, grad_beta1, grad_beta2, *grad_parameters


def _pull_back(ctx: Any, k: int, weights: dict[str, Tensor], x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    """T_k(x), computed once more, with the gradients of <grad, T_k(x)> in x and in the weights."""
    # Detached: a parameter's own hooks run once, when autograd receives what backward returns.
    inputs = [tensor.detach().requires_grad_() for tensor in (x, *weights.values())]
    # Clones: running statistics are those of one forward pass.
    buffers = {name: buffer.clone() for name, buffer in ctx.transforms[k].named_buffers()}
    tensors = buffers | dict(zip(weights, inputs[1:], strict=True))
    if ctx.random[k] is not None:
        _set_random_state(x.device, ctx.random[k])
    with torch.enable_grad(), ctx.autocast:
        transform = partial(functional_call, ctx.transforms[k], tensors)
        y = transformed(transform, inputs[0], ctx.dtype, x.dtype)
    return y.detach(), *torch.autograd.grad(y, inputs, grad, materialize_grads=True)


def _check_recovered(recovered: Sequence[Tensor], first: Sequence[Tensor], *, exact: bool) -> None:
    size, drift = first[1].norm(), max((a - b).norm() for a, b in zip(recovered, first, strict=True))
    if drift <= (0 if exact else _MAX_DRIFT * size):  # False if it is not a number
        return
    reason = (
        "a transform does not repeat its own result, or the state exceeds 2^17: use reversible=False"
        if exact
        else "rounding errors grow where beta2 is not -1: store the state more often (store_every)"
    )
    raise RuntimeError(f"a reversible stage missed its input, of norm {size:.1e}, by {drift:.1e}: {reason}")


def _autocast_now(device_type: str) -> torch.autocast:
    """The autocast in force; not its cache, which in older torch hands on weights cast without gradients."""
    return torch.autocast(
        device_type,
        dtype=torch.get_autocast_dtype(device_type),
        enabled=torch.is_autocast_enabled(device_type),
        cache_enabled=False,
    )


def _random_state(device: torch.device) -> list[Tensor]:
    others = [] if device.type == "cpu" else [torch.get_device_module(device).get_rng_state(device)]
    return [torch.get_rng_state(), *others]


def _set_random_state(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
