import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid import memory
from relucid.data import Split
from relucid.models import create
from relucid.train import DivergedError, Engine, Machine, ensemble, fit, memory_is_kept, noting
from relucid.train.engine import CONTIGUOUS, suited

from .problems import PLAIN, same, small_images, small_network

SHORT = replace(PLAIN, epochs=2)
compiles = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")


class Viewing(nn.Module):
    """A network as many write it: `view` does not take channels-last images."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(64, 2)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).view(len(x), -1))


def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 2))


def shortcut(channels):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 8, 1, stride=2), nn.Flatten(), nn.LazyLinear(2)
    )


def initialized(network):
    network(torch.zeros(1, 3, 6, 6))
    return network


def test_convolutions_are_trained_channels_last_and_end_contiguous():
    seen = []
    network = small_network()
    network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    fitted = fit(network, small_images(), SHORT)
    assert fitted.engine == Engine("channels_last")
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in seen)
    assert network[0].weight.is_contiguous()


def test_both_formats_end_at_the_same_weights_but_for_rounding():
    networks = []
    for engine in (CONTIGUOUS, Engine("channels_last")):
        networks.append(small_network().double())
        assert fit(networks[-1], small_images(), SHORT, machine=Machine(engine=engine)).engine == engine
    for one, other in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("engine", [None, CONTIGUOUS])
def test_training_repeats_bit_for_bit_and_evaluation_too(engine):
    def run():
        torch.manual_seed(3)
        network = create("resnet20", num_classes=2, width=0.25)
        return fit(network, small_images(32, size=8), SHORT, seed=1, machine=Machine(engine=engine))

    first, second = run(), run()
    assert first.engine == second.engine == (engine or Engine("channels_last"))
    assert same(first.network, second.network)
    assert first.history == second.history
    assert first.evaluate(small_images(9, size=8)) == second.evaluate(small_images(9, size=8))


@pytest.mark.parametrize("build", [Viewing, flat, lambda: initialized(shortcut(4))])
def test_a_network_that_gains_nothing_or_fails_channels_last_is_trained_contiguous(build):
    fitted = fit(build(), small_images(), SHORT, machine=Machine(engine=Engine("channels_last")))
    assert fitted.engine == CONTIGUOUS
    assert fitted.history["train_loss"][-1] < fitted.history["train_loss"][0]


@pytest.mark.parametrize("channels, takes_it", [(1, False), (7, False), (8, True)])
def test_a_strided_1x1_convolution_of_few_channels_is_never_channels_last(channels, takes_it):
    network = initialized(shortcut(channels))
    assert (suited(Engine(), network, torch.zeros(2, 3, 6, 6)) == Engine()) == takes_it


def test_the_trial_leaves_the_network_and_the_random_numbers_as_they_were():
    network = small_network()
    before, state = {k: v.clone() for k, v in network.state_dict().items()}, torch.get_rng_state()
    assert suited(Engine(), network, torch.randn(2, 3, 6, 6, generator=torch.Generator())) == Engine()
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())
    assert network[0].weight.is_contiguous()
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("name", ["crelu/convpool-half", "vgg6", "structure/agdnet40"])
@pytest.mark.parametrize("choices", [{}, {"weights": "geometric", "norm": "mean"}])
def test_our_networks_are_the_same_in_both_formats(name, choices):
    torch.manual_seed(0)
    network = create(name, num_classes=2, width=0.25, **choices).double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert suited(Engine(), network, images) == Engine()
    outputs = network(images)
    with Engine().holding(network):
        torch.testing.assert_close(network(Engine().arrange(images)), outputs)


@compiles
@pytest.mark.slow
def test_compiled_training_repeats_bit_for_bit_and_is_the_same_but_for_rounding():
    def train(engine):
        recipe = replace(SHORT, batch_size=30)
        return fit(small_network().double(), small_images(), recipe, machine=Machine(engine=engine))

    first, second, plain = (train(Engine(compile=compiled)) for compiled in (True, True, False))
    assert first.engine == Engine(compile=True)
    assert same(first.network, second.network)
    for name, weight in plain.network.state_dict().items():
        torch.testing.assert_close(first.network.state_dict()[name], weight, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_training_survives_the_convolution_that_corrupts_memory_on_older_processors():
    code = """
import torch
from torch import nn
from relucid.data import Split
from relucid.train import Recipe, fit
network = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2), nn.Flatten(), nn.Linear(8 * 64, 2))
data = Split(torch.randn(64, 4, 16, 16), torch.randint(2, (64,)))
fit(network, data, Recipe(epochs=5, batch_size=32))
"""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_what_is_trained_is_noted_once_for_each_way_in_which_it_is_computed():
    machines = [Machine(engine=engine) for engine in (CONTIGUOUS, Engine("channels_last"), CONTIGUOUS)]
    with noting() as found:
        engines = [
            fit(small_network(), small_images(), SHORT, machine=machine).engine for machine in machines
        ]
    assert engines == [CONTIGUOUS, Engine("channels_last"), CONTIGUOUS]
    kept = "kept" if memory_is_kept() else "returned"
    assert [*map(str, found)] == [
        f"{layout}, not compiled, freed memory {kept}" for layout in ("contiguous", "channels-last")
    ]


def test_the_allocator_is_noted_as_it_is_and_left_alone(monkeypatch):
    monkeypatch.setattr(memory, "_kept", False)
    part = Split(torch.rand(8, 1), torch.rand(8, 1))
    with noting() as found:
        ensemble([nn.Linear(1, 1)], [part], rates=[0.1], epochs=1, loss=F.mse_loss)
    assert [*map(str, found)] == ["contiguous, not compiled, freed memory returned"]


def test_a_training_that_diverges_is_noted_too():
    with noting() as found, pytest.raises(DivergedError):
        fit(small_network(), small_images(), replace(SHORT, epochs=3, lr=1e30))
    assert [each.engine.memory_format for each in found] == ["channels_last"]


def test_nothing_is_noted_outside_the_context():
    with noting() as found:
        pass
    fit(small_network(), small_images(), SHORT)
    assert found == []
