"""Random numbers that are the same every time, without a trace in the process."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


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
    python, numpys = random.getstate(), np.random.get_state()
    # Without CUDA in use, torch.manual_seed would leave its seed behind for the moment when CUDA begins.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpys)
