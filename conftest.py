"""What holds for all tests and doctests."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    """Tests and doctests draw the same random numbers every time."""
    torch.manual_seed(0)
