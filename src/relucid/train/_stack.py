"""Networks of one architecture as one: every tensor has their number as its first dimension, every step is one."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.parametrize import ParametrizationList

from relucid._torch import WeightNorm

Tensors = dict[str, Tensor]
BETAS, EPSILON = (0.9, 0.999), 1e-8  # as torch.optim.Adam has them


class Stack:
    """M networks of one architecture, each with its own Adam, which take every step together.

    Equivalent to a loop over the networks, up to rounding: they are independent.

    Args:
        networks: M of them, which stay as they are until `write`.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.template = _vmappable(networks[0])
        params, self.buffers = stack_module_state(list(networks))
        self.params = {name: value for name, value in params.items() if value.requires_grad}
        self.frozen = {name: value for name, value in params.items() if not value.requires_grad}
        self.first, self.second = ({k: torch.zeros_like(p) for k, p in self.params.items()} for _ in range(2))
        self.steps = 0

    def state(self) -> Tensors:
        """All parameters and buffers, each (M, ...)."""
        return {**self.params, **self.frozen, **self.buffers}

    def __call__(self, inputs: Tensor, **options: Any) -> Any:
        """What the networks return for their inputs (M, B, ...); options go to their `forward`."""

        def one(state: Tensors, x: Tensor) -> Any:
            return functional_call(self.template, state, (x,), options)

        return vmap(one, randomness="different")(self.state(), inputs)

    def step(
        self,
        losses: Tensor,
        rates: Tensor,
        betas: tuple[float, float] = BETAS,
        epsilon: float = EPSILON,
        decay: float = 0.0,
    ) -> None:
        """Step along the gradients of the losses (M,), at rates (M,) in float64, as torch.optim.Adam does."""
        parameters = [*self.params.values()]
        # A network's loss depends on its own parameters alone: the gradient of the sum is all gradients.
        gradients = torch.autograd.grad(losses.sum(), parameters, allow_unused=True, materialize_grads=True)
        self.steps += 1
        moments = zip(self.first.values(), self.second.values(), strict=True)
        size = rates / (1 - betas[0] ** self.steps)
        correction = (1 - betas[1] ** self.steps) ** 0.5
        with torch.no_grad():
            for parameter, gradient, (m, v) in zip(parameters, gradients, moments, strict=True):
                if decay:
                    gradient = gradient.add(parameter, alpha=decay)
                m.lerp_(gradient, 1 - betas[0])
                v.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
                step = m * -size.to(m.dtype).view(-1, *[1] * (m.dim() - 1))
                parameter.addcdiv_(step, v.sqrt().div_(correction).add_(epsilon))

    def keep(self, places: Tensor) -> None:
        """Go on with the networks in these places alone."""
        for group in (self.params, self.frozen, self.buffers, self.first, self.second):
            for name, tensor in group.items():
                group[name] = tensor.detach()[places].requires_grad_(tensor.requires_grad)


@torch.no_grad()
def write(network: nn.Module, state: Tensors, place: int) -> None:
    """Give a network the parameters and buffers (M, ...) of one place."""
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        tensor.copy_(state[name][place])


def _vmappable(network: nn.Module) -> nn.Module:
    """A copy of a network without torch's own weight norm: vmap has no rule for it and falls back to a loop."""
    network = deepcopy(network)
    for module in network.modules():
        if isinstance(module, ParametrizationList):
            for place, parametrization in enumerate(module):
                if isinstance(parametrization, WeightNorm):
                    module[place] = _PlainWeightNorm(parametrization.dim)
    return network


class _PlainWeightNorm(WeightNorm):
    """Weight norm in operations that vmap supports."""

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        over = [dim for dim in range(v.dim()) if dim != self.dim]
        length: Tensor = torch.linalg.vector_norm(v, dim=over, keepdim=True)
        return v * (g / length)
