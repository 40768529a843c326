"""Where and how a training runs."""

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """Where and how a training runs: nothing here changes what comes of it, but for rounding.

    Args:
        directory: where checkpoints are kept; training goes on from the one it finds there.
        accelerator: as Lightning names it.
        devices: of a node; more than one, or more than one node, takes processes started by torchrun.
        nodes: machines.
        workers: processes that decode photographs.
        tensorboard: directory of TensorBoard logs, if any are wanted.
        progress: show a progress bar.

    >>> Machine(Path("runs")).within("first").directory.as_posix()
    'runs/first'
    """

    directory: Path | None = None
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int = 0
    tensorboard: Path | None = None
    progress: bool = False

    def within(self, name: str) -> "Machine":
        """The same for one of several trainings that make up a run, with directories of its own."""
        return replace(
            self,
            directory=self.directory and self.directory / name,
            tensorboard=self.tensorboard and self.tensorboard / name,
        )
