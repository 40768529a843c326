"""Random numbers that a network draws in Python, where no graph sees them."""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from relucid.convert.graph import ConversionError


def drawn() -> tuple[Any, bytes]:
    """Return the state of Python's and numpy's generators of random numbers."""
    return random.getstate(), pickle.dumps(np.random.get_state(legacy=False))


def refuse_draws(before: tuple[Any, bytes]) -> None:
    """Raise an error if random numbers were drawn in Python since ``before``: a graph would repeat them."""
    if drawn() != before:
        raise ConversionError("it draws random numbers in Python, and a graph would repeat what came of them")


@contextmanager
def draws_undone() -> Iterator[None]:
    """Give back, after the block, what was drawn within it."""
    python, numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
