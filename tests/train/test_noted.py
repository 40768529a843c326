from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from relucid import memory
from relucid.data import Split
from relucid.train import Computed, DivergedError, Engine, Machine, ensemble, fit, memory_is_kept, noting
from relucid.train.engine import CONTIGUOUS

from .problems import PLAIN, small_images, small_network

SHORT = replace(PLAIN, epochs=1)


def test_what_is_trained_is_noted_once_for_each_way_in_which_it_is_computed():
    machines = [Machine(engine=engine) for engine in (CONTIGUOUS, Engine("channels_last"), CONTIGUOUS)]
    with noting() as found:
        engines = [
            fit(small_network(), small_images(), SHORT, machine=machine).engine for machine in machines
        ]
    assert engines == [CONTIGUOUS, Engine("channels_last"), CONTIGUOUS]
    assert found == [Computed(layout, False, memory_is_kept()) for layout in ("contiguous", "channels_last")]


def test_the_allocator_is_noted_as_it_is_and_left_alone(monkeypatch):
    monkeypatch.setattr(memory, "_kept", False)
    part = Split(torch.rand(8, 1), torch.rand(8, 1))
    with noting() as found:
        ensemble([nn.Linear(1, 1)], [part], rates=[0.1], epochs=1, loss=mse_loss)
    assert found == [Computed("contiguous", False, memory_kept=False)]
    assert str(found[0]) == "contiguous, not compiled, freed memory returned"


def test_a_training_that_diverges_is_noted_too():
    with noting() as found, pytest.raises(DivergedError):
        fit(small_network(), small_images(), replace(SHORT, epochs=3, lr=1e30))
    assert [each.memory_format for each in found] == ["channels_last"]


def test_nothing_is_noted_outside_the_context():
    with noting() as found:
        pass
    fit(small_network(), small_images(), SHORT)
    assert found == []
