"""Train one network: the loop over epochs and batches.

Everything random in an epoch (order, augmentation, dropout) follows from the seed and the epoch, and a checkpoint keeps
the generators' states: a training that was killed ends with the bits of one that was not, wherever it stopped.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relucid.data import Examples, Moments, augment
from relucid.randomness import seeded
from relucid.train.batches import Batch, Batches, are_numbers, mix
from relucid.train.checkpoint import load, save
from relucid.train.engine import CONTIGUOUS, Engine, note, suited
from relucid.train.measure import DivergedError, measures
from relucid.train.plateau import PlateauState
from relucid.train.platform import Platform
from relucid.train.progress import progress
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine

VALIDATED = 500  # examples in a batch of validation
History = dict[str, list[float]]
PROGRESS = ("epoch", "step", "finished", "history", "totals", "plateau", "best")


def train_network(
    network: nn.Module,
    train: Examples,
    recipe: Recipe,
    validation: Examples | None,
    moments: Moments,
    seed: int,
    machine: Machine,
) -> tuple[History, torch.device, Engine]:
    """Train a network to the end of its recipe, from its checkpoint if there is one."""
    recipe = replace(recipe, precision=machine.precision or recipe.precision)
    platform = Platform.of(machine, recipe.precision)
    engine = _engine(network, train, moments, machine.engine, platform.device)
    note(engine, recipe.precision)  # before it can diverge
    if not network.training:  # if it is, some of its modules may be frozen on purpose
        network.train()
    with seeded(seed), engine.holding(network):  # the generators of the process stay as they are
        training = Training(platform, network, recipe, moments, engine)
        training.run(train, validation, seed, machine)
    network.cpu()
    return training.history, platform.device, engine


class Training:
    """A network in training on a device, in one process of several or alone; its `PROGRESS` goes into checkpoints."""

    def __init__(
        self, platform: Platform, network: nn.Module, recipe: Recipe, moments: Moments, engine: Engine
    ) -> None:
        self.platform, self.network, self.recipe = platform, network, recipe
        self.moments, self.engine = moments, engine
        self.epoch, self.step, self.finished = 0, 0, False  # the step within the epoch
        self.history: History = {}
        self.totals: dict[str, tuple[Tensor, int]] = {}  # sums of measures in this epoch
        self.plateau, self.best = PlateauState.start(1), dict[str, Tensor]()
        network.to(platform.device, torch.float64 if recipe.precision == "64-true" else None)
        self.optimizer = recipe.make_optimizer(network)
        self.model = platform.distributed(engine.compiled(network))

    def run(self, train: Examples, validation: Examples | None, seed: int, machine: Machine) -> None:
        """Train to the end, or until the plateau or the target is reached; save after every epoch."""
        path = machine.directory and machine.directory / "last.ckpt"
        self._load(path)
        examples = self._batches(train, self.recipe.batch_size, machine)
        held = None if validation is None else self._batches(validation, VALIDATED, machine)
        steps = -(-len(train) // (self.recipe.batch_size or len(train)))
        with progress(self.recipe.epochs, steps, machine.progress and self.platform.rank == 0) as show:
            while self.epoch < self.recipe.epochs and not self.finished:
                start = mix(seed, self.epoch)
                if not self.step:
                    torch.manual_seed(mix(start, self.platform.rank))
                self._set_rate()
                for batch in examples.epoch(start, first=self.step):
                    self._learn(*batch)
                    self.step += 1
                    if machine.save_every and self.step % machine.save_every == 0:
                        self._save(path)
                    show(self)
                if held is not None:
                    self._validate(held.epoch())
                self._close_epoch()
                self._save(path)
        if self.best:
            self.network.load_state_dict(self.best)

    def _batches(self, examples: Examples, size: int | None, machine: Machine) -> Batches:
        share, pinned = self.platform, self.platform.device.type == "cuda"
        workers = machine.workers_for(examples)
        return Batches(examples, size, rank=share.rank, world=share.world, workers=workers, pinned=pinned)

    def _set_rate(self) -> None:
        rate, decay = self.recipe.rate_and_decay(self.epoch, self.history.get("train_error", []))
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.plateau.factor.item()
            group["weight_decay"] = decay if group["decays"] else 0.0

    def _learn(self, inputs: Any, targets: Tensor) -> None:
        outputs = self.platform.outputs(self.model, self._prepared(inputs, self.recipe.augment))
        measured = measures(self.recipe.loss, outputs, self.platform.moved(targets))
        self.platform.step(measured["loss"], self.network, self.optimizer, self.recipe.clip)
        self._add("train", measured, len(targets))

    def _add(self, part: str, means: dict[str, Tensor], count: int) -> None:
        """Add the means over a batch of `count` examples; no step waits for the device."""
        for name, mean in means.items():
            total, examples = self.totals.get(f"{part}_{name}", (torch.zeros_like(mean), 0))
            self.totals[f"{part}_{name}"] = total + mean.detach() * count, examples + count

    @torch.no_grad()
    def _validate(self, held: Iterable[Batch]) -> None:
        # Not by the distributed model, which would wait for processes with fewer batches.
        with in_evaluation(self.network):
            for inputs, targets in held:
                outputs = self.platform.outputs(self.network, self._prepared(inputs))
                measured = measures(self.recipe.loss, outputs, self.platform.moved(targets))
                self._add("val", measured, len(targets))

    def _prepared(self, inputs: Any, augmentations: Iterable[str] = ()) -> Any:
        inputs = self.platform.moved(inputs)
        if not are_numbers(inputs):
            return inputs
        inputs = augment(self.moments.normalize(inputs), tuple(augmentations), self.moments)
        return self.engine.arrange(inputs.to(next(self.network.parameters()).dtype))

    def _close_epoch(self) -> None:
        """Record the measures of the epoch, and decide whether to go on."""
        recipe = self.recipe
        means = {name: self._mean(*total) for name, total in self.totals.items()}
        if recipe.warmup and "train_error" not in means:
            raise ValueError("a warm-up ends at a training error, and these targets have none: give classes")
        if not math.isfinite(loss := means["train_loss"]):
            raise DivergedError(f"the training loss became {loss} in epoch {self.epoch + 1}", self.history)
        means["lr"] = self.optimizer.param_groups[0]["lr"]
        # Every process's batch norms have seen other examples.
        self.platform.share_first(self.network.buffers())
        for name, value in means.items():
            self.history.setdefault(name, []).append(value)
        if recipe.plateau is not None:
            if recipe.monitor not in means:
                raise ValueError(
                    f"monitor={recipe.monitor!r} is not measured here; there are {', '.join(means)}"
                )
            if self.plateau.update(torch.tensor([means[recipe.monitor]]).double(), recipe.plateau):
                self.best = {k: v.detach().cpu().clone() for k, v in self.network.state_dict().items()}
            self.finished = bool(self.plateau.waited >= recipe.plateau.stop)
        self.finished |= recipe.target_loss is not None and loss <= recipe.target_loss
        self.epoch, self.step, self.totals = self.epoch + 1, 0, {}

    def _mean(self, total: Tensor, count: int) -> float:
        """A mean over all examples of all processes."""
        whole, examples = self.platform.total(torch.stack([total, torch.full_like(total, count)]))
        return float(whole / examples)

    def _save(self, path: Path | None) -> None:
        """Write a checkpoint; every process takes part, since each has its own generators."""
        if path is None:
            return
        device = self.platform.device
        generators = [torch.get_rng_state()]
        if device.type == "cuda":
            generators.append(torch.cuda.get_rng_state(device))
        gathered = [self.platform.gathered(generator.to(device)).cpu() for generator in generators]
        if self.platform.rank == 0:
            trained = {
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.platform.scaler.state_dict(),
                "generators": gathered,
            }
            reached = {name: getattr(self, name) for name in PROGRESS} | {"plateau": vars(self.plateau)}
            save(path, trained | reached)

    def _load(self, path: Path | None) -> None:
        """Go on from a checkpoint, if there is one."""
        saved = load(path) if path else None
        if saved is None:
            return
        self.network.load_state_dict(saved.pop("network"))
        self.optimizer.load_state_dict(saved.pop("optimizer"))
        self.platform.scaler.load_state_dict(saved.pop("scaler"))
        # Clones, since a state that is a view of a larger tensor ends the process.
        generator, *devices = (states[self.platform.rank].clone() for states in saved.pop("generators"))
        torch.set_rng_state(generator)
        if devices:
            torch.cuda.set_rng_state(devices[0], self.platform.device)
        saved["plateau"] = PlateauState(**saved["plateau"])
        saved["totals"] = self.platform.moved(saved["totals"])
        for name in PROGRESS:
            setattr(self, name, saved[name])


def _engine(
    network: nn.Module, train: Examples, moments: Moments, wanted: Engine | None, device: torch.device
) -> Engine:
    """The engine that was asked for, or the nearest one that suits the network."""
    if wanted is None and device.type != "cpu":
        return CONTIGUOUS  # that channels-last is faster has been measured on CPUs
    inputs, _ = train.batch(torch.arange(min(2, len(train))))
    if are_numbers(inputs):
        inputs = moments.normalize(inputs).to(next(network.parameters()).dtype)
    return suited(wanted or Engine(), network, inputs)


@contextmanager
def in_evaluation(network: nn.Module) -> Iterator[None]:
    """Switch a network to evaluation; afterwards every module is in its own mode again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
