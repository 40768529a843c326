"""Where and how training runs: devices, directories, memory format."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from relucid.data import Examples
from relucid.data.dataset import Arrays, Part
from relucid.train.engine import Engine

DECODERS = 4  # more do not help a training that a few keep busy
OVERCOMMITTED, FILES_OPEN = 16, 16  # workers per core, at most, and open files for each
Precision = Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]


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
        precision: "32-true", "16-mixed", "bf16-mixed" or "64-true"; by default the recipe's.

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
    precision: Precision | None = None

    def workers_for(self, examples: Examples) -> int:
        """How many processes read these examples."""
        if self.workers is None:
            return 0 if isinstance(examples, Arrays | Part) else min(DECODERS, cores() // self.jobs)
        self.check_workers()
        return self.workers

    def check_workers(self) -> None:
        """Refuse more workers than cores can serve, or than files may be open."""
        most = min(OVERCOMMITTED * cores(), _files() // FILES_OPEN)
        if self.workers is not None and not 0 <= self.workers <= most:
            raise ValueError(
                f"workers={self.workers} is not within 0 to {most}: {OVERCOMMITTED} per core, and one for every "
                f"{FILES_OPEN} files that a process may open (ulimit -n)"
            )

    def within(self, name: str) -> "Machine":
        """A copy with its own directory, for one of several trainings in a run."""
        return replace(self, directory=self.directory and self.directory / name)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _files() -> int:
    """How many files this process may open."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows
        return 1 << 20
    limit, _ = getrlimit(RLIMIT_NOFILE)
    return 1 << 20 if limit == RLIM_INFINITY else limit
