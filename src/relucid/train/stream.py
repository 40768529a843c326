"""Many small networks of one architecture that keep learning, as one vectorized computation."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Adam

from relucid.train.adam import adam_step
from relucid.train.measure import Loss

Tensors = dict[str, Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's names for them


class Stream:
    """M networks, each with its own Adam, which take every step together.

    Equivalent to a loop over the networks, up to rounding: they are independent. Whoever changes the tensors in
    ``params``, ``first`` and ``second`` (Adam's moments), all (M, ...), changes the networks.

    Args:
        networks: M networks of one architecture.
        optimizers: M optimizers, each of all trainable parameters of its network, with as many steps behind them and
            alike except for their rates.

    >>> lines = [nn.Linear(1, 1) for _ in range(3)]
    >>> stream = Stream(lines, [Adam(line.parameters(), lr=rate) for line, rate in zip(lines, (0.1, 0.2, 0.3))])
    >>> x = torch.tensor([[0.0], [1.0]]).expand(3, 2, 1)
    >>> for _ in range(300):
    ...     outputs = stream.learn(x, 1 + 2 * x, nn.functional.mse_loss)
    >>> stream.write()
    >>> [round(line.weight.item(), 3) for line in lines]
    [2.0, 2.0, 2.0]
    """

    def __init__(self, networks: Sequence[nn.Module], optimizers: Sequence[Adam]) -> None:
        self.networks, self.optimizers = list(networks), list(optimizers)
        self.template = deepcopy(networks[0])
        params, self.buffers = stack_module_state(self.networks)
        self.params = {name: value for name, value in params.items() if value.requires_grad}
        self.frozen = {name: value for name, value in params.items() if not value.requires_grad}
        groups = [_only_group(optimizer) for optimizer in optimizers]
        self.rates = torch.tensor([group["lr"] for group in groups], dtype=torch.float64)
        self.betas, self.epsilon, self.decay = (groups[0][name] for name in ("betas", "eps", "weight_decay"))
        self.steps = _steps(optimizers)
        self.first, self.second = ({name: self._moment(name, key) for name in self.params} for key in MOMENTS)

    def _moment(self, name: str, key: str) -> Tensor:
        if not self.steps:
            return torch.zeros_like(self.params[name]).detach()
        values = [
            optimizer.state[network.get_parameter(name)][key]
            for network, optimizer in zip(self.networks, self.optimizers, strict=True)
        ]
        return torch.stack(values)

    def __call__(self, inputs: Tensor, **options: Any) -> Any:
        """What the networks return for their inputs (M, B, ...); options go to their `forward`."""

        def one(params: Tensors, fixed: Tensors, x: Tensor) -> Any:
            return functional_call(self.template, (params, fixed), (x,), options)

        return vmap(one, randomness="different")(self.params, {**self.frozen, **self.buffers}, inputs)

    def learn(self, inputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
        """Take one step on a batch (M, B, ...) of each network; return the outputs before it."""
        outputs: Tensor = self(inputs)
        # A network's loss depends on its own parameters alone: the gradient of the sum is all gradients.
        total = vmap(loss)(outputs, targets).sum()
        parameters = [*self.params.values()]
        gradients = torch.autograd.grad(total, parameters)
        if self.decay:
            pairs = zip(gradients, parameters, strict=True)
            gradients = tuple(gradient.add(value.detach(), alpha=self.decay) for gradient, value in pairs)
        self.steps += 1
        moments = [*self.first.values()], [*self.second.values()]
        adam_step(parameters, gradients, *moments, self.rates, self.steps, self.betas, self.epsilon)
        return outputs.detach()

    @torch.no_grad()
    def write(self) -> None:
        """Write weights, buffers and the optimizers' state back to the networks and their optimizers."""
        for place, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            for name, value in self.buffers.items():
                network.get_buffer(name).copy_(value[place])
            for name, value in self.params.items():
                parameter = network.get_parameter(name)
                parameter.copy_(value[place])
                moments = (self.first[name][place].clone(), self.second[name][place].clone())
                state = {"step": torch.tensor(float(self.steps)), **dict(zip(MOMENTS, moments, strict=True))}
                optimizer.state[parameter] = state


def _only_group(optimizer: Adam) -> dict[str, Any]:
    if len(optimizer.param_groups) != 1:
        raise ValueError(
            f"an optimizer of a stream has one group of parameters, not {len(optimizer.param_groups)}"
        )
    return optimizer.param_groups[0]


def _steps(optimizers: Sequence[Adam]) -> int:
    """The number of steps behind every optimizer."""
    taken = {int(state["step"]) for optimizer in optimizers for state in optimizer.state.values()}
    if len(taken) > 1:
        raise ValueError(f"the optimizers have taken different numbers of steps: {sorted(taken)}")
    return taken.pop() if taken else 0
