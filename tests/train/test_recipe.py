from copy import deepcopy

import pytest
import torch
from torch import nn

from relucid.data import Split
from relucid.nn import GeometricLinear
from relucid.train import Plateau, Recipe, fit
from relucid.train.batches import Batches, mix

# crelu Appendix E
CRELU = (
    (10, 1e-2, 5e-4), (20, 1e-3, 5e-4), (25, 1e-4, 5e-4), (30, 5e-5, 0), (35, 1e-5, 0), (40, 5e-6, 0), (45, 1e-6, 0)
)  # fmt: skip


def test_a_table_gives_the_rate_and_the_decay_of_every_epoch():
    recipe = Recipe(epochs=45, table=CRELU)
    found = [recipe.rate_and_decay(epoch) for epoch in range(45)]
    expected = [(1e-2, 5e-4)] * 10 + [(1e-3, 5e-4)] * 10 + [(1e-4, 5e-4)] * 5
    expected += [(rate, 0) for rate in (5e-5, 1e-5, 5e-6, 1e-6) for _ in range(5)]
    assert found == expected


@pytest.mark.parametrize(
    "steps, factor, rates",
    [
        ((0.5, 0.75), 0.1, [0.1] * 150 + [0.01] * 75 + [0.001] * 75),
        ((150, 225), 0.1, [0.1] * 150 + [0.01] * 75 + [0.001] * 75),
        (range(25, 300, 25), 0.5, [0.1 * 0.5**k for k in range(12) for _ in range(25)]),
    ],
)
def test_steps_are_shares_of_the_training_or_epochs(steps, factor, rates):
    recipe = Recipe(epochs=300, lr=0.1, weight_decay=1e-4, steps=steps, factor=factor)
    found = [recipe.rate_and_decay(epoch) for epoch in range(300)]
    assert [rate for rate, _ in found] == pytest.approx(rates)
    assert {decay for _, decay in found} == {1e-4}


def test_a_warm_up_lasts_until_the_first_epoch_below_its_error_and_the_schedule_goes_on():
    recipe = Recipe(epochs=10, lr=0.1, steps=(4,), warmup=(0.01, 80))
    errors = [90.0, 85.0, 79.9, 95.0, 60.0]
    rates = [recipe.rate_and_decay(epoch, errors[:epoch])[0] for epoch in range(6)]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.1, 0.01, 0.01])


def test_patience_and_stop_make_a_plateau():
    assert Recipe(epochs=5000, patience=50, stop=100).plateau == Plateau(50, 100, 0.1)
    assert Recipe(epochs=9, patience=5, stop=10, threshold=0.01).plateau == Plateau(5, 10, 0.1, 0.01)
    assert Recipe(epochs=1).plateau is None


def test_weight_decay_spares_what_it_would_destroy():
    network = nn.Sequential(GeometricLinear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    groups = Recipe(epochs=1, weight_decay=0.1).make_optimizer(network).param_groups
    decayed = {id(p) for group in groups if group["decays"] for p in group["params"]}
    assert decayed == {id(p) for p in network[2].parameters()}
    groups = Recipe(epochs=1, weight_decay=0.1, decay="scales").make_optimizer(network).param_groups
    with_scales = {id(p) for group in groups if group["decays"] for p in group["params"]}
    assert with_scales == decayed | {id(network[0].scale)}


@pytest.mark.parametrize(
    "schedule, expected",
    [
        ({"weight_decay": 0.1}, 0.1),
        ({"table": ((1, 0.3, 0.2), (2, 0.1, 0.0))}, 0.2),
        ({"table": ((2, 0.3, 0),)}, 0),
    ],
)
def test_an_optimizer_has_the_weight_decay_of_the_first_epoch_from_the_start(schedule, expected):
    network = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))
    groups = Recipe(epochs=2, **schedule).make_optimizer(network).param_groups
    assert [(group["weight_decay"], group["decays"]) for group in groups] == [(expected, True), (0.0, False)]


def test_weight_decay_can_act_on_all_parameters_as_in_the_source_of_densenet():
    network = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = Recipe(epochs=1, lr=0.5, momentum=0.0, weight_decay=0.1, decay="all").make_optimizer(network)
    before = [p.detach().clone() for p in network.parameters()]
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, start in zip(network.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), start * (1 - 0.5 * 0.1))
    assert len(before) == 4


def test_dampened_momentum_takes_the_steps_of_the_source_of_vgg():
    recipe = Recipe(epochs=1, batch_size=10, lr=1.0, momentum=0.9, dampening=0.9, loss="mse", normalize=False)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(40, 3, generator=generator), torch.randn(40, 1, generator=generator)
    torch.manual_seed(1)
    network = nn.Linear(3, 1)
    reference = deepcopy(network)
    fit(network, Split(inputs, targets), recipe, seed=5)
    optimizer = torch.optim.SGD(reference.parameters(), lr=1, momentum=0.9, dampening=0.9)
    for x, y in Batches(Split(inputs, targets), 10).epoch(mix(5, 0)):
        optimizer.zero_grad()
        nn.functional.mse_loss(reference(x), y).backward()
        optimizer.step()
    assert network.weight.equal(reference.weight)
    assert network.bias.equal(reference.bias)


def test_under_a_constant_gradient_dampened_steps_stay_those_of_the_rate():
    weight = nn.ParameterList([torch.zeros(1)])
    optimizer = Recipe(epochs=1, lr=1.0, momentum=0.9, dampening=0.9).make_optimizer(weight)
    for step in range(1, 20):
        weight[0].grad = torch.ones(1)
        optimizer.step()
        assert weight[0].item() == pytest.approx(-step)


@pytest.mark.parametrize(
    "name, kind, nesterov",
    [("sgd", torch.optim.SGD, False), ("nesterov", torch.optim.SGD, True), ("adam", torch.optim.Adam, None)],
)
def test_optimizers_have_the_momentum_of_the_recipe(name, kind, nesterov):
    optimizer = Recipe(epochs=1, optimizer=name, lr=0.3, momentum=0.8).make_optimizer(nn.Linear(2, 2))
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.3
    assert group.get("nesterov") == nesterov
    assert group.get("momentum") == (None if nesterov is None else 0.8)
