"""Where and how training runs: devices, directories, memory format."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from relucid.data import Examples
from relucid.data.dataset import Arrays, Part
from relucid.train.engine import Engine

DECODERS = 4  # more do not help a training that a few keep busy
OVERCOMMITTED = 16  # workers per core, at most: each holds files open


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; does not affect results beyond rounding and the pixels dropout picks.

    Args:
        directory: where checkpoints are kept; training resumes from the one it finds there.
        accelerator: "auto", "cpu", "gpu" (whichever there is), or a device's type as torch names it.
        devices: per node; more than one, or more than one node, takes processes started by torchrun.
        nodes: machines.
        workers: processes that read examples while the network trains. By default none for data in memory, and for
            examples that are decoded when they are needed up to four, as many as there are cores for.
        jobs: how many trainings share the cores.
        progress: show a progress bar with the time left.
        save_every: steps between checkpoints within an epoch; one is written after every epoch anyway.
        engine: memory format and compilation. By default channels-last on a CPU for networks with convolutions, not
            compiled.

    >>> Machine(Path("runs")).within("first").directory.as_posix()
    'runs/first'
    """

    directory: Path | None = None
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int | None = None
    jobs: int = 1
    progress: bool = False
    save_every: int | None = None
    engine: Engine | None = None

    def workers_for(self, examples: Examples) -> int:
        """How many processes read these examples."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.workers is None:
            return 0 if isinstance(examples, Arrays | Part) else min(DECODERS, cores // self.jobs)
        if not 0 <= self.workers <= OVERCOMMITTED * cores:
            raise ValueError(
                f"workers={self.workers} is not within 0 to {OVERCOMMITTED * cores}, {OVERCOMMITTED} per core"
            )
        return self.workers

    def within(self, name: str) -> "Machine":
        """A copy with its own directory, for one of several trainings in a run."""
        return replace(self, directory=self.directory and self.directory / name)
