"""Many small networks of one architecture that keep learning, as one vectorized computation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.optim import Adam

from relucid.train._stack import Stack, write
from relucid.train.measure import Loss

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's names for them
OPTIONS = {"betas": "betas", "epsilon": "eps", "decay": "weight_decay"}  # and for its options


class Stream(Stack):
    """A stack of networks that learns from batches as they come, and hands back its optimizers.

    Whoever changes the tensors in ``params``, ``first`` and ``second`` (Adam's moments), all (M, ...), changes them.

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
        super().__init__(networks)
        self.networks, self.optimizers = list(networks), list(optimizers)
        groups = [_only_group(optimizer) for optimizer in optimizers]
        self.rates = torch.tensor([group["lr"] for group in groups], dtype=torch.float64)
        self.options = {name: groups[0][theirs] for name, theirs in OPTIONS.items()}
        self.steps = _steps(optimizers)
        if self.steps:
            self.first, self.second = (
                {name: self._moment(name, key) for name in self.params} for key in MOMENTS
            )

    def _moment(self, name: str, key: str) -> Tensor:
        pairs = zip(self.networks, self.optimizers, strict=True)
        return torch.stack(
            [optimizer.state[network.get_parameter(name)][key] for network, optimizer in pairs]
        )

    def learn(self, inputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
        """Take one step on a batch (M, B, ...) of each network; return the outputs before it."""
        outputs: Tensor = self(inputs)
        self.step(vmap(loss)(outputs, targets), self.rates, **self.options)
        return outputs.detach()

    def write(self) -> None:
        """Write weights, buffers and the optimizers' state back to the networks and their optimizers."""
        for place, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            write(network, self.state(), place)
            for name in self.params:
                moments = (self.first[name][place].clone(), self.second[name][place].clone())
                state = {"step": torch.tensor(float(self.steps)), **dict(zip(MOMENTS, moments, strict=True))}
                optimizer.state[network.get_parameter(name)] = state


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
