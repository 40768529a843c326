"""Train one network with Lightning: on any device, resumable, repeatable."""

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from relucid.data import Examples, Moments, Part, moments, ten_crops
from relucid.train.batches import Batches
from relucid.train.measure import measures
from relucid.train.module import Course, Module
from relucid.train.progress import Bar
from relucid.train.recipe import Recipe


@dataclass(frozen=True)
class Machine:
    """Where and how training runs: nothing here changes what comes of it, but for rounding.

    Args:
        directory: where checkpoints are kept; training goes on from the one it finds there.
        accelerator: as Lightning names it.
        devices: a node; more than one, or more than one node, takes processes started by torchrun.
        nodes: machines.
        workers: processes that decode photographs.
        tensorboard: directory of TensorBoard logs, if any are wanted.
        progress: show a progress bar.
    """

    directory: Path | None = None
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int = 0
    tensorboard: Path | None = None
    progress: bool = False

    def within(self, name: str) -> "Machine":
        """The same for one of several trainings that make up a run, with a directory of its own."""
        inner = {key: path / name for key in ("directory", "tensorboard") if (path := getattr(self, key))}
        return replace(self, **inner)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained network, the moments its inputs are normalized with, and the figures of every epoch."""

    network: nn.Module
    moments: Moments
    history: dict[str, list[float]]
    loss: str
    device: torch.device

    @torch.no_grad()
    def predict(self, examples: Examples, crops: int | None = None, batch_size: int = 500) -> Tensor:
        """The outputs (N, ...); with `crops`, the log of the mean probabilities over ten crops of that size."""
        self.network.eval().to(self.device)
        dtype = next(self.network.parameters()).dtype
        outputs = []
        for inputs, _ in Batches(examples, batch_size):
            inputs = self.moments.normalize(inputs.to(self.device)).to(dtype)
            if crops is None:
                outputs.append(self.network(inputs).cpu())
            else:
                scores = self.network(ten_crops(inputs, crops).flatten(0, 1)).softmax(1)
                outputs.append(scores.unflatten(0, (-1, 10)).mean(1).log().cpu())
        return torch.cat(outputs)

    def evaluate(self, examples: Examples, crops: int | None = None) -> dict[str, float]:
        """The loss on these examples, and the errors in percent or the squared error."""
        found = measures(self.loss, self.predict(examples, crops), examples.targets)
        return {name: value.item() for name, value in found.items()}


def fit(
    network: nn.Module,
    train: Examples,
    recipe: Recipe,
    validation: Examples | None = None,
    *,
    seed: int = 0,
    machine: Machine | None = None,
) -> Fitted:
    """Train a network by a recipe; a training that was killed goes on where its last epoch ended.

    Raises:
        DivergedError: if the loss becomes NaN or infinite.

    >>> from relucid.data import digits
    >>> data = digits()
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> fitted = fit(network, data.train, Recipe(epochs=3, lr=0.05))
    >>> len(fitted.history["train_loss"]), fitted.evaluate(data.test)["error"] < 10
    (3, True)
    """
    machine = machine or Machine()
    normal = _moments(train, recipe)
    checkpoint = machine.directory / "last.ckpt" if machine.directory else None
    course, module = Course(recipe, checkpoint), Module(network, recipe, normal)
    resume = checkpoint if checkpoint and checkpoint.exists() else None
    held = None if validation is None else Batches(validation, 500, workers=machine.workers)
    with _quietly():
        trainer = _trainer(recipe, machine, course)
        batches = Batches(train, recipe.batch_size, seed, lambda: trainer.current_epoch, machine.workers)
        try:
            trainer.fit(module, batches, held, ckpt_path=resume, weights_only=True)
        except SystemExit:  # what Lightning makes of Ctrl-C, once it has cleaned up
            raise KeyboardInterrupt from None
    if course.best is not None:
        network.load_state_dict(course.best)
    return Fitted(network, normal, course.history, recipe.loss, trainer.strategy.root_device)


def _moments(train: Examples, recipe: Recipe) -> Moments:
    if recipe.normalize:
        return moments(train) if isinstance(train, Part) else moments(train, limit=5000)
    channels = train.batch(torch.tensor([0]))[0].shape[1]
    return Moments(torch.zeros(channels), torch.eye(channels))


def _trainer(recipe: Recipe, machine: Machine, course: Course) -> L.Trainer:
    logger: Any = False
    if machine.tensorboard is not None:
        from lightning.pytorch.loggers import TensorBoardLogger

        logger = TensorBoardLogger(machine.tensorboard, name=None, version="")
    callbacks: list[L.Callback] = [course]
    if machine.progress:
        callbacks.append(Bar())
    many = machine.devices * machine.nodes > 1
    return L.Trainer(
        max_epochs=recipe.epochs,
        accelerator=machine.accelerator,
        devices=machine.devices,
        num_nodes=machine.nodes,
        strategy="ddp" if many else "auto",
        precision=recipe.precision,
        gradient_clip_val=recipe.clip,
        callbacks=callbacks,
        plugins=[AtomicCheckpoints()],
        logger=logger,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints that are either the old one or the new one, never a half: written aside, then renamed."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint in the place of the last one."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        with aside.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)


@contextmanager
def _quietly() -> Iterator[None]:
    """Lightning without its announcements and advice, and Ctrl-C working as before once it is through."""
    log = logging.getLogger("lightning.pytorch")
    level, handler = log.level, signal.getsignal(signal.SIGINT)
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            warnings.filterwarnings(
                "ignore", message=".*LeafSpec", category=FutureWarning
            )  # of its own doing
            yield
    finally:
        log.setLevel(level)
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)
