"""Where and how training runs: devices, directories, memory format."""

from dataclasses import dataclass, replace
from pathlib import Path

from relucid.train.engine import Engine


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; does not affect results beyond rounding and the pixels dropout picks.

    Args:
        directory: where checkpoints are kept; training resumes from the one it finds there.
        accelerator: "auto", "cpu", "gpu" (whichever there is), or a device's type as torch names it.
        devices: per node; more than one, or more than one node, takes processes started by torchrun.
        nodes: machines.
        workers: processes that decode photographs.
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
    workers: int = 0
    progress: bool = False
    save_every: int | None = None
    engine: Engine | None = None

    def within(self, name: str) -> "Machine":
        """A copy with its own directory, for one of several trainings in a run."""
        return replace(self, directory=self.directory and self.directory / name)
