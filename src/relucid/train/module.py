"""A network in training as Lightning sees it: what a step is, and what happens between epochs."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor, nn

from relucid.data import Moments, augment
from relucid.train.batches import are_numbers
from relucid.train.engine import Engine
from relucid.train.measure import DivergedError, measures
from relucid.train.plateau import PlateauState
from relucid.train.recipe import Recipe

LabeledBatch = tuple[Tensor, Tensor]
Predict = Callable[[Tensor], Tensor]


class Module(L.LightningModule):
    """A network in training for Lightning: normalizes, augments, predicts, measures."""

    def __init__(self, network: nn.Module, recipe: Recipe, moments: Moments, engine: Engine) -> None:
        super().__init__()
        self.network, self.recipe, self.moments, self.engine = network, recipe, moments, engine
        # a method, since a compiled network would become a submodule and be in the checkpoint twice
        self.predict: Predict = engine.compiled(network).__call__
        self.totals: dict[str, tuple[Tensor, int]] = {}

    def on_after_batch_transfer(self, batch: LabeledBatch, _: int) -> LabeledBatch:
        """Prepare a batch for the network, on the network's device."""
        inputs, targets = batch
        if not are_numbers(inputs):
            return batch
        inputs = self.moments.normalize(inputs)
        if self.trainer.training:
            inputs = augment(inputs, tuple(self.recipe.augment), self.moments)
        return self.engine.arrange(inputs.to(next(self.network.parameters()).dtype)), targets

    def training_step(self, batch: LabeledBatch, _: int) -> Tensor:
        """Measure a training batch, and return its loss."""
        return self._measure("train", batch)

    def validation_step(self, batch: LabeledBatch, _: int) -> None:
        """Measure a validation batch."""
        self._measure("val", batch)

    # Lightning's own log() takes longer than a step of a small network.
    def _measure(self, part: str, batch: LabeledBatch) -> Tensor:
        inputs, targets = batch
        found = measures(self.recipe.loss, self.predict(inputs), targets)
        for name, mean in found.items():
            total, count = self.totals.get(f"{part}_{name}", (torch.zeros_like(mean), 0))
            self.totals[f"{part}_{name}"] = total + mean.detach() * len(targets), count + len(targets)
        return found["loss"]

    def epoch_means(self) -> dict[str, float]:
        """The means of the measures over all examples since the last call, across processes."""
        totals, self.totals = self.totals, {}
        reduce = partial(self.trainer.strategy.reduce, reduce_op="sum")
        return {
            name: float(reduce(total) / reduce(torch.full_like(total, count)))
            for name, (total, count) in totals.items()
        }

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimizer; `TrainingSchedule` follows its schedule."""
        return self.recipe.make_optimizer(self.network)


class TrainingSchedule(L.Callback):
    """The schedule of training: rates and decays, history, best weights, checkpoints, and when to stop."""

    def __init__(self, recipe: Recipe, checkpoint: Path | None) -> None:
        self.recipe, self.checkpoint = recipe, checkpoint
        self.history: dict[str, list[float]] = {}
        self.plateau = PlateauState.start(1)
        self.best: dict[str, Tensor] | None = None
        self.finished = False

    @property
    def state_key(self) -> str:
        """The key of this callback in a checkpoint: the name it had when the first checkpoints were written."""
        return "Course"

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: tensors and plain values only."""
        plateau = vars(self.plateau)
        return {"history": self.history, "best": self.best, "finished": self.finished, "plateau": plateau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what a checkpoint kept."""
        self.history, self.best, self.finished = state["history"], state["best"], state["finished"]
        self.plateau = PlateauState(**state["plateau"])

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Stop at once if nothing is left to do: the checkpoint may be from the last epoch."""
        trainer.should_stop = self.finished

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Set the rate and the weight decay of the epoch."""
        errors = self.history.get("train_error", [])
        rate, decay = self.recipe.rate_and_decay(trainer.current_epoch, errors)
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = rate * self.plateau.factor.item()
            group["weight_decay"] = decay if group["decays"] else 0.0

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Record the epoch's measures, apply the schedule and save a checkpoint to resume from."""
        assert isinstance(module, Module)
        means = module.epoch_means()
        if self.recipe.warmup and "train_error" not in means:
            raise ValueError("a warm-up ends at a training error, and these targets have none: give classes")
        if not math.isfinite(means["train_loss"]):
            loss, epoch = means["train_loss"], trainer.current_epoch + 1
            raise DivergedError(f"the training loss became {loss} in epoch {epoch}", self.history)
        means["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        module.log_dict(means, prog_bar=True)
        _share_buffers(module.network)
        for name, value in means.items():
            self.history.setdefault(name, []).append(value)
        self._judge(means, module.network)
        if self.checkpoint is not None:
            trainer.save_checkpoint(self.checkpoint, weights_only=False)
        trainer.should_stop = self.finished

    def _judge(self, means: dict[str, float], network: nn.Module) -> None:
        plateau, target = self.recipe.plateau, self.recipe.target_loss
        if plateau is not None:
            if self.recipe.monitor not in means:
                known = ", ".join(means)
                raise ValueError(f"monitor={self.recipe.monitor!r} is not measured here; there are {known}")
            value = torch.tensor([means[self.recipe.monitor]], dtype=torch.float64)
            if self.plateau.update(value, plateau):
                state = network.state_dict()
                self.best = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
            self.finished = bool(self.plateau.waited >= plateau.stop)
        if target is not None and means["train_loss"] <= target:
            self.finished = True


def _share_buffers(network: nn.Module) -> None:
    """Give every process the buffers of the first: each process's batch norms have seen different examples."""
    if dist.is_initialized():
        for buffer in network.buffers():
            dist.broadcast(buffer, 0)
