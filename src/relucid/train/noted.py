"""How training was computed, noted for those who keep its results."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass

from relucid.train.engine import Engine, MemoryFormat

_listening: ContextVar[list["Computed"] | None] = ContextVar("listening", default=None)


@dataclass(frozen=True)
class Computed:
    """How the steps of a training were computed.

    Args:
        memory_format: see `Engine`.
        compile: see `Engine`.
        memory_kept: whether the process kept the memory that it freed, see `keep_memory`.
    """

    memory_format: MemoryFormat
    compile: bool
    memory_kept: bool

    def __str__(self) -> str:
        layout = self.memory_format.replace("_", "-")
        compiled, kept = "" if self.compile else "not ", "kept" if self.memory_kept else "returned"
        return f"{layout}, {compiled}compiled, freed memory {kept}"


@contextmanager
def noting() -> Iterator[list[Computed]]:
    """A list that fills with how everything that is trained within the context is computed, each way once."""
    found: list[Computed] = []
    token = _listening.set(found)
    try:
        yield found
    finally:
        _listening.reset(token)


def note(engine: Engine, memory_kept: bool) -> None:
    """Record how a training is about to be computed, for all open contexts."""
    found, computed = _listening.get(), Computed(**asdict(engine), memory_kept=memory_kept)
    if found is not None and computed not in found:
        found.append(computed)
