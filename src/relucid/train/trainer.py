"""Train under Lightning's Trainer.

Lightning has the loop, distributed training, precision, resumption and the progress bar. Ours are the schedule between
epochs, the means over an epoch (Lightning's log() takes longer than a step of a small network), and the writing of
checkpoints (Lightning writes them elsewhere first, and then copies them where that is another disk).
"""

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn

from relucid.data import Examples, Moments
from relucid.files import replacing
from relucid.train.batches import Batches, are_numbers
from relucid.train.engine import CONTIGUOUS, Engine, note, suited
from relucid.train.module import Module, TrainingSchedule
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine

NEEDED = {"state_dict", "optimizer_states", "loops", "callbacks"}  # training resumes from it


def train_network(
    network: nn.Module,
    train: Examples,
    recipe: Recipe,
    validation: Examples | None,
    moments: Moments,
    seed: int,
    machine: Machine,
) -> tuple[dict[str, list[float]], torch.device, Engine]:
    """Train a network to the end of its recipe, from its checkpoint if there is one.

    Returns:
        The history, the device and the engine it was trained with.
    """
    checkpoint = machine.directory and machine.directory / "last.ckpt"
    resume = checkpoint if checkpoint and usable(checkpoint) else None
    schedule = TrainingSchedule(recipe, checkpoint)
    held = None if validation is None else Batches(validation, 500, workers=machine.workers)
    with _quietly():
        trainer = _trainer(recipe, machine, schedule)
        batches = Batches(train, recipe.batch_size, seed, lambda: trainer.current_epoch, machine.workers)
        engine = _engine(network, train, moments, machine, trainer.strategy.root_device)
        note(engine)  # before it can diverge
        try:
            with engine.holding(network):
                module = Module(network, recipe, moments, engine)
                trainer.fit(module, batches, held, ckpt_path=resume, weights_only=True)
        except SystemExit:  # what Lightning makes of Ctrl-C, once it has cleaned up
            raise KeyboardInterrupt from None
    if schedule.best is not None:
        network.load_state_dict(schedule.best)
    return schedule.history, trainer.strategy.root_device, engine


def _engine(
    network: nn.Module, train: Examples, moments: Moments, machine: Machine, device: torch.device
) -> Engine:
    """The engine that the machine asks for, or the nearest one that suits the network."""
    if machine.engine is None and device.type != "cpu":
        return CONTIGUOUS  # that channels-last is faster has been measured on CPUs
    inputs, _ = train.batch(torch.arange(min(2, len(train))))
    if are_numbers(inputs):
        inputs = moments.normalize(inputs).to(next(network.parameters()).dtype)
    return suited(machine.engine or Engine(), network, inputs)


def _trainer(recipe: Recipe, machine: Machine, schedule: TrainingSchedule) -> L.Trainer:
    many = machine.devices * machine.nodes > 1
    return L.Trainer(
        max_epochs=recipe.epochs,
        accelerator=machine.accelerator,
        devices=machine.devices,
        num_nodes=machine.nodes,
        strategy="ddp" if many else "auto",
        precision=recipe.precision,
        gradient_clip_val=recipe.clip,
        callbacks=[schedule],
        plugins=[AtomicCheckpoints()],
        logger=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=machine.progress,
    )


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoint writer that is atomic: a temporary file is renamed over the old checkpoint."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint in place of the last one."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(Path(path)) as new, new.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())


def usable(checkpoint: Path) -> bool:
    """Whether training can resume from this file; a damaged one is renamed to `.damaged`, with a warning."""
    try:
        file = checkpoint.open("rb")
    except FileNotFoundError:
        return False
    with file:
        damage = _damage(file)
    if damage is None:
        return True
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    with suppress(FileNotFoundError):  # another process of this training has done it
        checkpoint.replace(aside)
    warnings.warn(
        f"{checkpoint} is damaged ({damage}): moved to {aside.name}, training starts from scratch",
        stacklevel=2,
    )
    return False


def _damage(file: Any) -> str | None:
    """What is wrong with a checkpoint, if anything."""
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and torch each raise their own
        return type(error).__name__
    missing = NEEDED - (found.keys() if isinstance(found, dict) else set())
    return f"without {', '.join(sorted(missing))}" if missing else None


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence Lightning's announcements and advice, and restore Ctrl-C handling afterwards."""
    log = logging.getLogger("lightning.pytorch")
    level, handler = log.level, signal.getsignal(signal.SIGINT)
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # Lightning's own doing
            yield
    finally:
        log.setLevel(level)
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)
