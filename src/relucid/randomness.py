"""Random numbers that are the same every time, without a trace in the process."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
import torch

State = TypeVar("State")


class SharedState(Generic[State]):
    """A state of the process that several threads may change at once.

    What the last to leave puts back is what the first one found.

    Args:
        get: reads the state.
        put: writes it.
        stacked: whether the others put back what they found, too, as blocks inside each other must.
    """

    def __init__(self, get: Callable[[], State], put: Callable[[State], object], stacked: bool) -> None:
        self.get, self.put, self.stacked = get, put, stacked
        self._lock, self._kept = Lock(), list[list[State]]()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put the state back at the end."""
        with self._lock:
            before = [self.get()]
            if not self._kept:
                self._first = before
            self._kept.append(before)
        try:
            yield
        finally:
            with self._lock:
                self._kept = [each for each in self._kept if each is not before]
                if not self._kept:
                    self.put(*self._first)
                elif self.stacked:
                    self.put(*before)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Go back to the state before the latest `kept`, which is put back as this block leaves it."""
        with self._lock:
            inside, latest = self.get(), self._kept[-1:]
            for before in latest:
                self.put(*before)
        try:
            yield
        finally:
            with self._lock:
                for before in latest:
                    before[0] = self.get()
                    self.put(inside)


def _states() -> tuple[object, ...]:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()


def _put_states(states: tuple[object, ...]) -> None:
    random.setstate(states[0])  # type: ignore[arg-type]
    np.random.set_state(states[1])  # type: ignore[arg-type]
    torch.default_generator.set_state(states[2])  # type: ignore[arg-type]


_RANDOM = SharedState(_states, _put_states, stacked=True)
_FAST_PATH = SharedState(
    torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, stacked=False
)


@contextmanager
def users_own() -> Iterator[None]:
    """Inside `seeded`, draw from the random state before it, as new layers do.

    >>> state = torch.get_rng_state()
    >>> with seeded(), users_own():
    ...     first = torch.rand(3)
    >>> _ = torch.set_rng_state(state)
    >>> torch.equal(first, torch.rand(3))
    True
    """
    with _RANDOM.outside():
        yield


@contextmanager
def no_fast_path() -> Iterator[None]:
    """Let transformer layers call their modules, where they would otherwise be one opaque operation."""
    with _FAST_PATH.kept():
        torch.backends.mha.set_fastpath_enabled(False)
        yield


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Draw the same random numbers every time, from torch, numpy and Python, whose states are put back.

    >>> state = torch.get_rng_state()
    >>> with seeded():
    ...     first = torch.rand(3)
    >>> with seeded():
    ...     again = torch.rand(3)
    >>> torch.equal(first, again), torch.equal(torch.get_rng_state(), state)
    (True, True)
    """
    # Without CUDA in use, torch.manual_seed would leave its seed behind for the moment when CUDA begins.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices, enabled=bool(devices)), _RANDOM.kept():
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        yield
