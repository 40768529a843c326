"""Train many small networks of one architecture at once, as one vectorized computation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from relucid.data import Split
from relucid.nn.tracing import mapped_first
from relucid.printing import Summarized
from relucid.train._stack import Stack, Tensors, write
from relucid.train.engine import CONTIGUOUS, note
from relucid.train.measure import LOSSES, Loss, aligned
from relucid.train.plateau import Plateau, PlateauState

Observer = Callable[[int, Tensor, Tensors], None]
# Values per thread in one layer of all networks trained at once: roughly what caches hold.
LARGEST = 1_000_000


@dataclass(frozen=True, eq=False)
class Ensemble(Summarized):
    """The results of training M networks.

    Best value, number of epochs and whether the loss became infinite or NaN, each (M,); loss and value of each
    epoch, (epochs, M), NaN once a network has stopped.
    """

    best: Tensor
    epochs: Tensor
    diverged: Tensor
    losses: Tensor
    values: Tensor

    def summary(self) -> str:
        """Summarize how many networks there are, and how far they got."""
        epochs, best = self.epochs.tolist(), self.best.tolist()
        return (
            f"{len(best)} networks, {min(epochs)} to {max(epochs)} epochs, "
            f"best {min(best):.4g} to {max(best):.4g}, {int(self.diverged.sum())} diverged"
        )


def ensemble(
    networks: Sequence[nn.Module],
    train: Sequence[Split],
    monitor: Sequence[Split] | None = None,
    *,
    rates: Sequence[float],
    epochs: int,
    loss: Loss,
    measure: Loss | None = None,
    plateau: Plateau | None = None,
    batch_size: int | None = None,
    observe: Observer | None = None,
) -> Ensemble:
    """Train networks of one architecture with Adam, each on its own data at its own rate.

    Equivalent to a loop over them, up to rounding: the networks are independent.

    Args:
        networks: M networks; they end with their best weights, or with their last ones without a plateau.
        train: M parts of one size.
        monitor: M splits; the `measure` on them decides what is best. By default the training loss does.
        rates: M learning rates.
        epochs: the most epochs to train.
        loss: of the outputs (B, ...) and targets of one network, a mean over the examples. Integer targets
            are classes (B,), others values in the shape of the outputs.
        measure: likewise, for `monitor`; lower is better. The loss, by default.
        plateau: schedule of the rate and early stopping, for each network separately.
        batch_size: by default the whole part; otherwise each network shuffles its part in every epoch, seeded by its
            place in `networks`.
        observe: called after every step with the number of steps so far, the networks in training (m,) and
            their parameters and buffers (m, ...).

    >>> from torch.nn.functional import mse_loss
    >>> part = Split(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]]))
    >>> lines = [nn.Linear(1, 1) for _ in range(3)]
    >>> result = ensemble(lines, [part] * 3, rates=[0.1, 0.2, 0.3], epochs=300, loss=mse_loss)
    >>> [round(line.weight.item(), 3) for line in lines], result.epochs.tolist()
    ([2.0, 2.0, 2.0], [300, 300, 300])
    """
    count = len(networks)
    for name, given in {"train": train, "monitor": monitor, "rates": rates}.items():
        if given is not None and len(given) != count:
            raise ValueError(f"{count} networks need {count} {name}, not {len(given)}")
    result = Ensemble(
        best=torch.full((count,), torch.inf, dtype=torch.float64),
        epochs=torch.zeros(count, dtype=torch.long),
        diverged=torch.zeros(count, dtype=torch.bool),
        losses=torch.full((epochs, count), torch.nan, dtype=torch.float64),
        values=torch.full((epochs, count), torch.nan, dtype=torch.float64),
    )
    note(CONTIGUOUS)
    width = max(parameter.shape[:1].numel() for parameter in networks[0].parameters())  # 1 for a number
    rows = min(batch_size or len(train[0]), len(train[0]))
    for members in torch.arange(count).split(max(1, LARGEST * torch.get_num_threads() // (rows * width))):
        stack = _Ensemble(members.tolist(), networks, train, monitor, rates)
        for epoch in range(epochs):
            losses = stack.learn(loss, batch_size, observe)
            values = losses if monitor is None else stack.evaluate(measure or loss)
            stack.note(result, epoch, losses, values, plateau)
            if 4 * int(stack.stopped.sum()) >= len(stack.stopped):  # dropping them costs a copy of the others
                stack.drop(stack.stopped)
            if not len(stack.members):
                break
        stack.drop(torch.ones_like(stack.stopped))
    return result


class _Ensemble(Stack):
    """Networks in training, each until it stops."""

    def __init__(
        self,
        members: list[int],
        networks: Sequence[nn.Module],
        train: Sequence[Split],
        monitor: Sequence[Split] | None,
        rates: Sequence[float],
    ) -> None:
        super().__init__([networks[i] for i in members])
        self.members, self.networks = torch.tensor(members), networks
        self.best = {name: values.detach().clone() for name, values in self.state().items()}
        self.rates = torch.tensor([rates[i] for i in members], dtype=torch.float64)
        self.orders = [torch.Generator().manual_seed(i) for i in members]
        self.train = _stacked([train[i] for i in members])
        self.monitor = None if monitor is None else _stacked([monitor[i] for i in members])
        self.plateau = PlateauState.start(len(members))
        self.stopped = torch.zeros(len(members), dtype=torch.bool)

    def learn(self, loss: Loss, batch_size: int | None, observe: Observer | None) -> Tensor:
        """Train for one epoch and return the mean loss of each network, (m,)."""
        self.template.train()
        total = torch.zeros(len(self.members), dtype=torch.float64)
        for inputs, targets in self._batches(batch_size):
            losses = self._losses(loss, inputs, targets)
            self.step(losses, self.rates * self.plateau.factor)
            if observe is not None:
                observe(self.steps, self.members, {k: v.detach() for k, v in self.state().items()})
            total += losses.detach() * (inputs.shape[1] / self.train.inputs.shape[1])
        return total

    @torch.no_grad()
    def evaluate(self, measure: Loss) -> Tensor:
        """The measure of each network on its monitored split, (m,)."""
        self.template.eval()
        assert self.monitor is not None
        return self._losses(measure, self.monitor.inputs, self.monitor.targets).double()

    def note(
        self, result: Ensemble, epoch: int, losses: Tensor, values: Tensor, plateau: Plateau | None
    ) -> None:
        """Record the epoch and the best weights so far; decide which networks stop."""
        running, finite = ~self.stopped, losses.isfinite()
        better = running & finite
        if plateau is not None:
            better &= self.plateau.update(values, plateau)
            self.stopped = self.stopped | (self.plateau.waited >= plateau.stop)
        self.stopped = self.stopped | ~finite
        if better.any():
            for name, state in self.state().items():
                self.best[name][better] = state.detach()[better]
        members = self.members[running]
        result.losses[epoch, members], result.values[epoch, members] = losses[running], values[running]
        result.epochs[members], result.diverged[members] = epoch + 1, ~finite[running]
        result.best[self.members[better]] = values[better]

    def drop(self, which: Tensor) -> None:
        """Write the best weights back to these networks and continue without them."""
        for place in which.nonzero().flatten().tolist():
            write(self.networks[int(self.members[place])], self.best, place)
        places = (~which).nonzero().squeeze(1)
        self.keep(places)
        self.best = {name: tensor[places] for name, tensor in self.best.items()}
        self.members, self.rates, self.stopped = (
            self.members[places],
            self.rates[places],
            self.stopped[places],
        )
        self.orders = [self.orders[place] for place in places]
        self.plateau, self.train = self.plateau.take(places), self.train.take(places)
        self.monitor = None if self.monitor is None else self.monitor.take(places)

    def _losses(self, loss: Loss, inputs: Tensor, targets: Tensor) -> Tensor:
        def one(state: Tensors, x: Tensor, y: Tensor) -> Tensor:
            outputs = functional_call(self.template, state, (x,))
            return loss(outputs, aligned(outputs, y, classes=_takes_classes(loss, y)))

        with _OnePassLinear():
            losses: Tensor = vmap(one)(self.state(), inputs, targets)
        return losses

    def _batches(self, batch_size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, targets = self.train.inputs, self.train.targets
        if batch_size is None:
            yield inputs, targets
            return
        order = torch.stack([torch.randperm(inputs.shape[1], generator=draws) for draws in self.orders])
        networks = torch.arange(len(order)).unsqueeze(1)
        for batch in order.split(batch_size, 1):
            yield inputs[networks, batch], targets[networks, batch]


def _takes_classes(loss: Loss, targets: Tensor) -> bool:
    """Whether a loss takes one class per example; for an unknown loss, integer targets are taken as classes."""
    values = (LOSSES["mae"], LOSSES["mse"], LOSSES["bce"])
    return not targets.is_floating_point() and loss not in values


def _stacked(parts: Sequence[Split]) -> Split:
    """Stack splits of equal size; the first dimension is their number."""
    return Split(torch.stack([part.inputs for part in parts]), torch.stack([part.targets for part in parts]))


class _OnePassLinear(TorchFunctionMode):
    """Mode in which linear layers under vmap multiply and add their bias in one pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs and len(args) == 3 and args[2] is not None and args[0].dim() == 2:
            return _Linear.apply(*args)
        return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """x, weight, bias -> F.linear; only ever called under vmap, where the derivatives are those of baddbmm."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        x, weight, bias = mapped_first(info, in_dims, inputs)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT), 0
