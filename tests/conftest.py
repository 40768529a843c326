import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_configure():
    torch.set_num_threads(1)
