"""How a network is trained, as plain data: optimizer, schedule, loss, augmentation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import nn

from relucid.data._augment import AUGMENTATIONS
from relucid.nn import parameter_groups
from relucid.train.measure import LOSSES, Loss
from relucid.train.plateau import Plateau
from relucid.train.resources import Precision

Decay = Literal["groups", "scales", "all"]
OPTIMIZERS = ("sgd", "nesterov", "adam")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what training does to a network, except its data and seed.

    One of three schedules, or none:

    - `steps`: the rate is multiplied by `factor` at these epochs, or at shares of training where they are below 1:
      (0.5, 0.75) with factor 0.1 is structure's;
    - `table`: rows (last epoch, rate, weight decay), as crelu Appendix E prints them;
    - `patience` and `stop`: on a plateau of `monitor` (see `Plateau`); the best weights are restored.

    >>> [Recipe(epochs=300, lr=1.0, steps=(0.5, 0.75)).rate_and_decay(epoch)[0] for epoch in (149, 150, 299)]
    [1.0, 0.1, 0.010000000000000002]
    """

    epochs: int
    batch_size: int | None = 128  # None: the whole training split
    loss: str | Loss = "cross_entropy"  # by name, or a function of outputs and targets
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    dampening: float = 0.0  # of the momentum: Torch7's SGD dampens by the momentum itself
    weight_decay: float = 0.0
    decay: Decay = "groups"  # which parameters it acts on: see `parameter_groups`; "scales" too, or "all"
    steps: Sequence[float] = ()
    factor: float = 0.1
    table: Sequence[Sequence[float]] = ()
    patience: int | None = None
    stop: int | None = None
    threshold: float = 0.0  # the least progress that counts on a plateau, in units of `monitor`
    monitor: str = "val_error"
    # a rate, and the training error in percent: until an epoch's error is below it, the rate is this one
    warmup: Sequence[float] = ()
    target_loss: float | None = None  # stop once the training loss reaches it
    augment: Sequence[str] = ()
    # "mean" of the channels, or a "mean_image": it is subtracted, and nothing divided (bytes by 255)
    normalize: bool | Literal["mean", "mean_image"] = True
    clip: float | None = None  # largest norm of the gradient
    precision: Precision = "32-true"  # of Lightning's names; networks in float64 stay in float64

    def __post_init__(self) -> None:
        self._check_numbers()
        if isinstance(self.loss, str):
            _check("loss", self.loss, LOSSES)
        _check("optimizer", self.optimizer, OPTIMIZERS)
        _check("decay", self.decay, get_args(Decay))
        _check("precision", self.precision, get_args(Precision))
        if not isinstance(self.normalize, bool):
            _check("way to normalize", self.normalize, ("mean", "mean_image"))
        if self.dampening and self.optimizer != "sgd":
            raise ValueError(f"dampening={self.dampening:g} needs optimizer='sgd', not {self.optimizer!r}")
        for name in self.augment:
            _check("augmentation", name, AUGMENTATIONS)
        if (self.patience is None) != (self.stop is None):
            raise ValueError("a plateau needs both patience and stop")
        _ = self.plateau  # checks them
        if self.threshold and self.patience is None:
            raise ValueError(f"threshold={self.threshold:g} needs a plateau: give patience and stop")
        if sum((bool(self.steps), bool(self.table), self.patience is not None)) > 1:
            raise ValueError("a recipe has one schedule: steps, a table, or patience and stop")
        if len(self.warmup) not in (0, 2):
            raise ValueError(
                f"a warm-up is a rate and the training error at which it ends, not {self.warmup!r}"
            )
        if self.table and self.table[-1][0] < self.epochs:
            raise ValueError(f"the table ends at epoch {self.table[-1][0]:g} of {self.epochs}")

    def _check_numbers(self) -> None:
        _check_number("epochs", self.epochs, 1)
        if self.batch_size is not None:
            _check_number("batch_size", self.batch_size, 1)
        for name in ("lr", "momentum", "dampening", "weight_decay", "factor"):
            _check_number(name, getattr(self, name), 0)
        for number in self.warmup:
            _check_number("a number of the warm-up", number, 0)
        for last, rate, decay in self.table:
            _check_number(f"the rate up to epoch {last}", rate, 0)
            _check_number(f"the weight decay up to epoch {last}", decay, 0)

    @property
    def plateau(self) -> Plateau | None:
        """The schedule on a plateau, if this is one."""
        if self.patience is None or self.stop is None:
            return None
        return Plateau(self.patience, self.stop, self.factor, self.threshold)

    def rate_and_decay(self, epoch: int, errors: Sequence[float] = ()) -> tuple[float, float]:
        """The learning rate and weight decay of an epoch, counted from 0, after these training errors.

        >>> recipe = Recipe(epochs=100, lr=0.1, warmup=(0.01, 80))  # He et al.'s, for ResNet-110
        >>> [recipe.rate_and_decay(len(errors), errors)[0] for errors in ([], [88.0], [88.0, 79.0])]
        [0.01, 0.01, 0.1]
        """
        rate, decay = self._scheduled(epoch)
        if self.warmup and not any(error < self.warmup[1] for error in errors):
            rate = self.warmup[0]
        return rate, decay

    def _scheduled(self, epoch: int) -> tuple[float, float]:
        for last, rate, decay in self.table:
            if epoch < last:
                return rate, decay
        passed = sum(epoch >= (step if step >= 1 else step * self.epochs) for step in self.steps)
        return self.lr * self.factor**passed, self.weight_decay

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a network's parameters, set to the rate and the weight decay of the first epoch.

        A group's entry "decays" says whether the weight decay of later epochs acts on it.
        """
        rate, weight_decay = self.rate_and_decay(0)
        groups = [
            {"params": params, "weight_decay": weight_decay if decays else 0.0, "decays": decays}
            for params, decays in self._decayed(network)
        ]
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, lr=rate)
        nesterov = self.optimizer == "nesterov"
        return torch.optim.SGD(groups, rate, self.momentum, self.dampening, nesterov=nesterov)

    def _decayed(self, network: nn.Module) -> list[tuple[list[nn.Parameter], bool]]:
        """The trainable parameters in groups, each with a flag for weight decay."""
        if self.decay == "all":
            return [([p for p in network.parameters() if p.requires_grad], True)]
        groups = parameter_groups(network, 1.0, decay_scale=self.decay == "scales")
        return [(group["params"], group["weight_decay"] > 0) for group in groups]


def _check_number(what: str, value: object, least: int) -> None:
    if not isinstance(value, Real) or not least <= float(value) < math.inf:
        raise ValueError(f"{what} must be a number of at least {least}, not {value!r}")


def _check(what: str, name: str, known: Any) -> None:
    if name not in known:
        raise ValueError(f"there is no {what} {name!r}; there are {', '.join(known)}")
