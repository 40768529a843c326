"""Checkpoints that survive a crash: written atomically, and set aside if damaged."""

import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from relucid.files import replacing

NEEDED = {"state_dict", "optimizer_states", "loops", "callbacks"}  # training resumes from it


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
