"""What holds for all tests and doctests."""

import os
import signal
import sys
import warnings

import pytest
import torch

from relucid.randomness import seeded


def state_of_the_process():
    """What a test, and so what it calls, must leave as it was; random states are put back for it."""
    return {
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "working directory": os.getcwd(),
        **changed_by_imports(),
    }


def changed_by_imports():
    """What libraries change, too, when they are first imported, as a test may be the first to do."""
    return {
        "warnings filters": list(warnings.filters),
        "environment": {n: value for n, value in os.environ.items() if n != "PYTEST_CURRENT_TEST"},
    }


@pytest.fixture(autouse=True)
def _process():
    """The same random numbers for every test and doctest, and a process that is left as it was."""
    modules, before = len(sys.modules), state_of_the_process()
    with seeded():
        yield
    after = state_of_the_process()
    excused = changed_by_imports() if len(sys.modules) > modules else {}
    changed = {name: (value, after[name]) for name, value in before.items() if value != after[name]}
    assert not changed.keys() - excused.keys(), changed
