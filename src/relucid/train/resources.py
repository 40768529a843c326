"""Where and how training runs: devices, directories, memory format."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from relucid.train.engine import Engine


@dataclass(frozen=True)
class Machine:
    """Where and how training runs; does not affect results beyond rounding and the pixels dropout picks.

    Args:
        directory: where checkpoints are kept; training resumes from the one it finds there.
        accelerator: as Lightning names it.
        devices: per node; more than one, or more than one node, takes processes started by torchrun.
        nodes: machines.
        workers: processes that decode photographs.
        tensorboard: directory of TensorBoard logs, if any are wanted.
        progress: show a progress bar.
        engine: memory format and compilation. By default channels-last on a CPU for networks with convolutions, not
            compiled. "measure" times all of them at the start and keeps the fastest; two runs may then choose
            differently and differ by rounding, which is why studies name an engine.

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
    engine: Engine | Literal["measure"] | None = None

    def __post_init__(self) -> None:
        if self.engine == "measure" and self.devices * self.nodes > 1:
            raise ValueError("engine='measure' times a single process: name an Engine for several")

    def within(self, name: str) -> "Machine":
        """A copy with its own directories, for one of several trainings in a run."""
        return replace(
            self,
            directory=self.directory and self.directory / name,
            tensorboard=self.tensorboard and self.tensorboard / name,
        )
