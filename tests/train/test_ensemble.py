from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.data import Split
from relucid.models import create
from relucid.nn import HeavyBall
from relucid.train import Plateau, _ensemble, ensemble
from relucid.train.measure import LOSSES

DESIGNS = {
    "standard": {},
    "two hidden layers": {"hidden": (8, 6)},
    "avr": {"activation": "avr"},
    "weight norm": {"weights": "weightnorm"},
    "batch norm": {"norm": "batch"},
    "mean norm": {"weights": "weightnorm", "norm": "mean"},
    "geometric": {"weights": "geometric"},
    "geometric crelu": {
        "activation": "crelu",
        "weights": "geometric",
        "norm": "input_mean",
        "hidden": (8, 6),
    },
    "heavy ball": {"propagation": "heavy_ball", "norm": "batch", "hidden": (6, 6, 6)},
    "learned momentum": {
        "propagation": HeavyBall(beta1=1.0, beta2=-0.9, learnable=True),
        "hidden": (6, 6, 6),
    },
}


def network(kind):
    return create("mlp", num_classes=1, in_channels=3, **{"hidden": (8,), **DESIGNS[kind]}).double()


def loop(
    network,
    train,
    monitor,
    rate,
    epochs,
    plateau,
    batch_size=None,
    seed=0,
    loss=F.l1_loss,
    measure=F.mse_loss,
):
    """What `ensemble` does, for one network, as one would write it."""
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    best, waited, weights, values = float("inf"), 0, None, []
    for _ in range(epochs):
        network.train()
        order = (
            torch.arange(len(train))
            if batch_size is None
            else torch.randperm(len(train), generator=generator)
        )
        for batch in order.split(batch_size or len(train)):
            optimizer.zero_grad()
            loss(network(train.inputs[batch]), train.targets[batch]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            value = measure(network(monitor.inputs), monitor.targets).item()
        values.append(value)
        if value < best:
            best, waited, weights = value, 0, deepcopy(network.state_dict())
            continue
        waited += 1
        if waited % plateau.patience == 0:
            optimizer.param_groups[0]["lr"] *= plateau.factor
        if waited >= plateau.stop:
            break
    network.load_state_dict(weights)
    return best, len(values)


def part(n, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    noise = 0.3 * torch.randn(n, 1, dtype=torch.float64, generator=generator)
    return Split(inputs, inputs.prod(1, keepdim=True).sin() + noise)


def problem(kind, rates):
    torch.manual_seed(0)
    networks = [network(kind) for _ in rates]
    return networks, [part(40, i) for i in range(len(rates))], [part(15, 100 + i) for i in range(len(rates))]


def largest_difference(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize(
    "kind, batch_size", [*((kind, None) for kind in DESIGNS), ("batch norm", 16), ("geometric", 16)]
)
def test_an_ensemble_is_a_loop_over_its_networks(kind, batch_size):
    rates, plateau = [0.001, 0.01, 0.03, 0.1], Plateau(patience=5, stop=12)
    networks, train, monitor = problem(kind, rates)
    alone = deepcopy(networks)
    result = ensemble(
        networks, train, monitor, rates=rates, epochs=50, loss=F.l1_loss, measure=F.mse_loss, plateau=plateau,
        batch_size=batch_size,
    )  # fmt: skip
    for i, network in enumerate(alone):
        best, epochs = loop(network, train[i], monitor[i], rates[i], 50, plateau, batch_size, seed=i)
        assert result.epochs[i] == epochs
        assert result.best[i].item() == pytest.approx(best, rel=1e-9)
        assert result.values[:epochs, i].min() == result.best[i]
        assert result.values[epochs:, i].isnan().all()
        assert largest_difference(networks[i], network) < 1e-7
    assert result.epochs.min() < 45, "no network stopped early: the test does not see what it should"
    assert not result.diverged.any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["standard", "weight norm", "batch norm", "geometric"])
def test_five_hundred_epochs_at_large_rates_end_at_the_weights_of_the_loop(kind):
    rates = [0.01, 0.03, 0.1]
    networks, train, _ = problem(kind, rates)
    alone = deepcopy(networks)
    ensemble(networks, train, rates=rates, epochs=500, loss=F.l1_loss)
    for i, network in enumerate(alone):
        optimizer = torch.optim.Adam(network.parameters(), lr=rates[i])
        for _ in range(500):
            optimizer.zero_grad()
            F.l1_loss(network(train[i].inputs), train[i].targets).backward()
            optimizer.step()
        assert largest_difference(networks[i], network) < 1e-6


def test_the_result_does_not_depend_on_the_company(monkeypatch):
    rates, plateau = [0.001, 0.03, 0.1, 0.01, 0.3], Plateau(5, 10)
    networks, train, monitor = problem("batch norm", rates)
    settings = {"rates": rates, "epochs": 60, "loss": F.mse_loss, "plateau": plateau}
    together, apart = deepcopy(networks), deepcopy(networks)
    ensemble(together, train, monitor, **settings)
    monkeypatch.setattr(_ensemble, "LARGEST", 2 * 40 * 8)  # two at a time
    ensemble(apart, train, monitor, **settings)
    assert max(map(largest_difference, together, apart)) < 1e-9


def test_classes_and_any_measure_can_be_monitored():
    def error(outputs, targets):
        return (outputs.argmax(1) != targets).double().mean()

    networks = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double() for _ in range(2)]
    parts = [Split(p.inputs, (p.targets[:, 0] > 0).long()) for p in (part(40, 1), part(40, 2))]
    result = ensemble(
        networks, parts, parts, rates=[0.1, 0.1], epochs=80, loss=F.cross_entropy, measure=error
    )
    for network, own, last in zip(networks, parts, result.values[-1], strict=True):
        assert error(network(own.inputs), own.targets) == last
    assert result.values[-1].max() < result.values[0].max()


def test_a_network_that_diverges_stops_alone_and_is_marked():
    rates = [0.01, 0.01]
    networks, train, _ = problem("standard", rates)
    broken = Split(train[0].inputs, train[0].targets * torch.inf)
    start = deepcopy(networks[0])
    result = ensemble(networks, [broken, train[1]], rates=rates, epochs=30, loss=F.mse_loss)
    assert result.diverged.tolist() == [True, False]
    assert result.epochs.tolist() == [1, 30]
    assert largest_difference(networks[0], start) == 0
    assert result.losses[-1, 1] < result.losses[0, 1]


@pytest.mark.parametrize("batch_size, steps_an_epoch", [(None, 1), (16, 3)])
def test_an_observer_sees_parameters_and_buffers_of_the_networks_in_training_after_every_step(
    batch_size, steps_an_epoch
):
    rates = [0.01, 0.1, 0.03]
    networks, train, monitor = problem("batch norm", rates)
    seen = []
    result = ensemble(
        networks, train, monitor, rates=rates, epochs=40, loss=F.mse_loss, plateau=Plateau(3, 6), batch_size=batch_size,
        observe=lambda step, members, state: seen.append((step, members.tolist(), deepcopy(state))),
    )  # fmt: skip
    assert [step for step, _, _ in seen] == list(range(1, len(seen) + 1))
    assert len(seen) == result.epochs.max() * steps_an_epoch
    assert seen[0][1] == [0, 1, 2]
    best = int(result.values[:, 2].nan_to_num(nan=torch.inf).argmin())
    _, members, state = seen[(best + 1) * steps_an_epoch - 1]
    for name, tensor in networks[2].state_dict().items():
        assert state[name][members.index(2)].equal(tensor), name


def test_it_repeats_bit_for_bit():
    rates = [0.01, 0.1]
    first, train, monitor = problem("batch norm", rates)
    second = deepcopy(first)
    for networks in (first, second):
        ensemble(networks, train, monitor, rates=rates, epochs=5, loss=F.mse_loss, batch_size=8)
    assert max(map(largest_difference, first, second)) == 0


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, LOSSES["bce"]])
@pytest.mark.parametrize("kind", [torch.float64, torch.long])
def test_targets_without_a_second_dimension_are_those_with_one(loss, kind):
    networks, parts, _ = problem("standard", [0.1])
    column = Split(parts[0].inputs, (parts[0].targets > 0).to(kind))
    flat = Split(column.inputs, column.targets.squeeze(1))
    settings = {"rates": [0.1], "epochs": 3, "loss": loss}
    expected = ensemble(deepcopy(networks), [column], [column], **settings)
    found = ensemble(deepcopy(networks), [flat], [flat], **settings)
    assert found.losses.equal(expected.losses)
    assert found.values.equal(expected.values)
