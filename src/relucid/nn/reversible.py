"""Heavy ball run backwards: activation memory in training does not grow with depth.

The recursion of structure Eq. 16 is undone by the same sum,

    x_{k+1} = T(x_k) + beta1 x_k + beta2 x_{k-1}    <=>    x_{k-1} = (T(x_k) + beta1 x_k - x_{k+1}) / -beta2,

so backpropagation needs only the last two states and recomputes T on its way back. States recovered in float32
drift, ReLUs flip, and gradients are off by 1% after 200 layers. Here the state is float64 while T keeps the
model's precision, and the output of T is rounded to a multiple of 2^-36. Then all sums with beta1 = 1 and
beta2 = -1 are exact at any depth, as long as the state stays below 2^17. In all other cases, the first states,
which are stored, show how far the recovered ones are off.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import functional_call

from relucid.nn.tracing import uncached_autocast

# From 2^16 to 2^17, float64 numbers are 2^-36 apart, so adding and subtracting this number rounds anything within
# +-2^15 to a multiple of 2^-36. The gradient is 1, as it should be; that of torch.round is 0.
_ROUNDER = 1.5 * 2.0**16

# How far a recovered state may be off, relative to its norm, where the sums are not exact. A difference in the last
# bit of the state changes what float32 computes by about 1e-6.
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
    """``transform(x)`` as a state; computed in ``dtype`` if the state has its own dtype.

    >>> transformed(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]).double(), torch.float32, torch.float64)
    tensor([0., 2.], dtype=torch.float64)
    """
    # Copied even where the dtypes agree: a transform may begin in place.
    y = transform(x if state_dtype is None else x.to(dtype, copy=True))
    _check_shape(x, y)
    return to_state(y, state_dtype)


def _check_shape(x: Tensor, y: Tensor) -> None:
    if y.shape != x.shape:
        raise ValueError(
            f"a transform turns shape {tuple(x.shape)} into {tuple(y.shape)}; in a stage it must keep the "
            "shape: give a block that changes it as `first`"
        )


def _as_state_like(x: Tensor, y: Tensor) -> Tensor:
    """``y`` as a state, in the memory layout of ``x``: in another layout a transform may round differently."""
    return torch.empty_like(x).copy_(y).add_(_ROUNDER).sub_(_ROUNDER)


def reversible_heavy_ball(
    transforms: Sequence[nn.Module],
    previous: Tensor,
    x: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The last two states of structure Eq. 16, (x_{K-1}, x_K); backward needs only these and the first two.

    ``previous`` and ``x`` are x_{-1} and x_0 as returned by :func:`to_state`; ``beta1`` and ``beta2`` have
    shape (K,); the transforms compute in ``dtype``. Backward compares the first two states with those it
    recovers and raises a RuntimeError if they differ. If the last state exceeds 2^17 as well, the network
    diverges, and its gradients are NaN.
    """
    layers = [_Layer.of(transform) for transform in transforms]
    parameters = list({id(p): p for layer in layers for p in layer.parameters.values()}.values())
    # Not a decorator: torch.compiler.disable imports the compiler, which takes longer than all of torch.
    apply: Callable[..., tuple[Tensor, Tensor]] = _Reversible.apply
    if torch.compiler.is_compiling():
        apply = torch.compiler.disable(apply)
    return apply(layers, dtype, previous, x, beta1, beta2, *parameters)


class _Layer(NamedTuple):
    """A transform with the names and values of its trained parameters in forward."""

    transform: nn.Module
    parameters: dict[str, Tensor]

    @classmethod
    def of(cls, transform: nn.Module) -> "_Layer":
        return cls(transform, {n: p for n, p in transform.named_parameters() if p.requires_grad})

    def __call__(self, x: Tensor) -> Tensor:
        """T(x), of the shape of x."""
        y: Tensor = self.transform(x)
        _check_shape(x, y)
        return y

    def again(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """T(x) with these parameters and copies of its buffers: running statistics count one pass only."""
        copies = {name: buffer.clone() for name, buffer in self.transform.named_buffers()}
        y: Tensor = functional_call(
            self.transform, {**dict(zip(self.parameters, parameters, strict=True)), **copies}, (x,)
        )
        return y


class _Reversible(torch.autograd.Function):
    """Parameters are inputs so that autograd and DDP see them."""

    @staticmethod
    def forward(
        ctx: Any,
        layers: Sequence[_Layer],
        dtype: torch.dtype,
        previous: Tensor,
        x: Tensor,
        beta1: Tensor,
        beta2: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        first = previous, x
        index = {id(parameter): i for i, parameter in enumerate(parameters)}
        ctx.layers, ctx.dtype = layers, dtype
        ctx.indices = [[index[id(p)] for p in layer.parameters.values()] for layer in layers]
        ctx.autocast, ctx.random = uncached_autocast(x.device.type), []
        random = _random_state(x.device)
        with ctx.autocast:
            for layer, b1, b2 in zip(layers, beta1.tolist(), beta2.tolist(), strict=True):
                # Copied even where the dtypes agree: a transform may begin in place.
                y = _as_state_like(x, layer(x.to(dtype, copy=True)))
                before, random = random, _random_state(x.device)
                ctx.random.append(None if all(map(torch.equal, before, random)) else before)
                previous, x = x, y.add_(x, alpha=b1).add_(previous, alpha=b2)
        ctx.save_for_backward(*first, previous, x, beta1, beta2, *parameters)
        return previous, x

    @staticmethod
    def backward(ctx: Any, grad_previous: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a reversible stage has no second derivatives; use reversible=False for create_graph=True"
            )
        first_previous, first, previous, x, beta1, beta2, *parameters = ctx.saved_tensors  # unpacked once
        coefficients = list(zip(beta1.tolist(), beta2.tolist(), strict=True))
        grad_beta1, grad_beta2 = torch.zeros_like(beta1), torch.zeros_like(beta2)
        grad_parameters: list[Tensor | None] = [None] * len(parameters)
        last, learned = x, any(ctx.needs_input_grad[4:6])
        with ctx.autocast, _random_state_kept(ctx, x.device):
            for k in reversed(range(len(coefficients))):
                b1, b2 = coefficients[k]
                y, grad_x, grad_weights = _pull_back(ctx, k, parameters, previous, grad)
                before = y.add_(previous, alpha=b1).sub_(x)
                if b2 != -1:
                    before.mul_(-1 / b2)
                if learned:
                    grad_beta1[k], grad_beta2[k] = (grad * previous).sum(), (grad * before).sum()
                for i, g in grad_weights.items():
                    known = grad_parameters[i]
                    grad_parameters[i] = g if known is None or g is None else known + g
                grad_previous, grad = b2 * grad, torch.add(grad_previous, grad, alpha=b1).add_(grad_x)
                previous, x = before, previous
        exact = bool(((beta1 == beta1.round()) & (beta2 == -1)).all())
        grads = [grad_previous, grad, grad_beta1, grad_beta2, *grad_parameters]
        if not _is_recovered((previous, x), (first_previous, first), last, exact=exact):
            grads = [None if g is None else torch.full_like(g, torch.nan) for g in grads]
        return None, None, *grads


def _pull_back(
    ctx: Any, k: int, parameters: Sequence[Tensor], x: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, dict[int, Tensor | None]]:
    """T_k(x), recomputed, and the gradients of <grad, T_k(x)> in x and in the parameters, by index."""
    if ctx.random[k] is not None:
        _set_random_state(x.device, ctx.random[k])
    layer, indices = ctx.layers[k], ctx.indices[k]
    # Without their hooks, which run once: when autograd receives the result of backward.
    weights = {i: parameters[i].detach().requires_grad_() for i in indices}
    inputs = x.to(ctx.dtype, copy=True).requires_grad_()
    with torch.enable_grad():
        y = layer.again(inputs, [weights[i] for i in indices])
    if not y.requires_grad:
        return _as_state_like(x, y), torch.zeros_like(x), {}
    _refuse_others(layer.transform, y, (inputs, *weights.values()))
    grads = torch.autograd.grad(y, (inputs, *weights.values()), grad.to(y.dtype), allow_unused=True)
    grad_x = torch.zeros_like(x) if grads[0] is None else grads[0]
    return _as_state_like(x, y.detach()), grad_x, dict(zip(weights, grads[1:], strict=True))


_looked_at: WeakSet[nn.Module] = WeakSet()


def _refuse_others(transform: nn.Module, y: Tensor, known: Sequence[Tensor]) -> None:
    """Raise an error if a transform computes with tensors that want gradients and are not its own; looks once."""
    if transform in _looked_at:
        return
    stack, seen = [y.grad_fn], {tensor.grad_fn for tensor in known}
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and not any(variable is tensor for tensor in known):
            raise RuntimeError(
                f"{type(transform).__name__} computes with a tensor of shape {tuple(variable.shape)} that is not its "
                "parameter, and in a reversible stage would have no gradient: register it, or use reversible=False"
            )
        stack += [following for following, _ in node.next_functions]
    _looked_at.add(transform)


def _is_recovered(recovered: Sequence[Tensor], first: Sequence[Tensor], last: Tensor, *, exact: bool) -> bool:
    """Whether backward arrived where forward began; if not, False if the stage diverges, else an error."""
    size, drift = first[1].norm(), max((a - b).norm() for a, b in zip(recovered, first, strict=True))
    if drift <= _MAX_DRIFT * size:  # False if it is not a number
        return True
    if not last.abs().max() < 2.0**17:  # NaN gradients, as for any network that diverges
        return False
    reason = (
        "a transform does not repeat its own result: use reversible=False"
        if exact
        else "rounding errors grow where beta2 is not -1: store the state more often (store_every)"
    )
    raise RuntimeError(f"a reversible stage missed its input, of norm {size:.1e}, by {drift:.1e}: {reason}")


@contextmanager
def _random_state_kept(ctx: Any, device: torch.device) -> Iterator[None]:
    """Restore the random state afterwards, if a transform draws numbers."""
    if all(state is None for state in ctx.random):
        yield
    else:
        with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
            yield


def _random_state(device: torch.device) -> list[Tensor]:
    others = [] if device.type == "cpu" else [torch.get_device_module(device).get_rng_state(device)]
    return [torch.get_rng_state(), *others]


def _set_random_state(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
