"""Every remedy against its paper's definition, written out."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import relucid
from relucid.inspect import Watch, metrics
from relucid.remedies import (
    ContinualBackprop,
    L2Init,
    RemedyError,
    forget,
    inject,
    redo,
    reset,
    shrink_and_perturb,
)

DATA = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def mlp(seed=0, activation=nn.ReLU):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 12), activation(), nn.Linear(12, 8), activation(), nn.Linear(8, 3))
    with torch.no_grad():
        net[0].weight *= torch.logspace(-4, 0.5, 12).view(-1, 1)
        net[0].bias *= torch.logspace(-4, 0.5, 12)
        net[2].bias[:3] -= 50
    return net


class Convolutions(nn.Module):
    """Batch norm before the activation, pooling and flatten after it; ReLU as a function."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm, self.conv2 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3)
        self.head = nn.Linear(6 * 2 * 2, 2)

    def forward(self, x):
        x = self.norm(self.conv1(x)).relu()
        return self.head(nn.functional.max_pool2d(self.conv2(x).relu(), 2).flatten(1))


def trained(net, data=DATA, make=torch.optim.Adam, steps=30, **options):
    """An optimizer of a network, after some steps."""
    optimizer = make(net.parameters(), lr=1e-3, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()
    return optimizer


def dormant(x, tau):
    score = x.abs().mean(dim=(0, 2, 3) if x.ndim == 4 else 0)
    return score / score.mean() <= tau


# ReDo


@pytest.mark.parametrize("tau", [0.0, 0.025, 0.1])
def test_redo_draws_the_units_that_its_definition_names_and_zeroes_what_reads_them(tau):
    net = mlp()
    before = copy.deepcopy(net)
    masks = [dormant(before[:2](DATA), tau), dormant(before[:4](DATA), tau)]
    effect = redo(net, DATA, tau)
    expected = {
        name: tuple(mask.nonzero().flatten().tolist())
        for name, mask in zip("02", masks, strict=True)
        if mask.any()
    }
    assert effect.changed == expected
    assert 2 in masks[1].nonzero()
    for layer, reader, mask in ((0, 2, masks[0]), (2, 4, masks[1])):
        new, old = net[layer], before[layer]
        keep = torch.ones_like(new.weight, dtype=torch.bool)
        if layer == 2:
            keep[:, masks[0]] = False  # what reads a unit of the layer before is 0 there
        rows = ~mask
        assert torch.equal(new.weight[rows][keep[rows]], old.weight[rows][keep[rows]])
        assert torch.equal(new.bias[~mask], old.bias[~mask])
        assert not new.bias[mask].any()
        rows = ~masks[1] if layer == 0 else torch.ones(3, dtype=torch.bool)  # new units read what they like
        assert not net[reader].weight[rows][:, mask].any()
        bound = 1 / math.sqrt(new.in_features)  # as nn.Linear draws
        assert (new.weight[mask].abs() <= bound).all()
    assert torch.equal(net[4].bias, before[4].bias)
    assert effect.moved == pytest.approx((net(DATA) - before(DATA)).abs().max().item())
    if tau == 0.0:
        assert effect.moved == 0.0


def test_redo_goes_through_norms_pooling_and_flatten_and_changes_no_output_for_dead_units():
    net = Convolutions()
    trained(net, IMAGES)
    net.norm.bias.data[:2] = -100.0
    net.conv2.bias.data[4:] = -100.0
    net.eval()
    before = net(IMAGES)
    effect = redo(net, IMAGES, 0.0)
    assert effect.changed == {"conv1": (0, 1), "conv2": (4, 5)}
    assert torch.equal(net(IMAGES), before)
    assert effect.moved == 0.0
    assert not net.conv2.weight[:4, :2].any()
    assert net.conv2.weight[4:, :2].all()  # units drawn at the same time read each other
    assert not net.head.weight.view(2, 6, 4)[:, 4:].any()
    assert net.head.weight.view(2, 6, 4)[:, :4].all()
    assert torch.equal(net.norm.bias[:2], torch.zeros(2))
    assert torch.equal(net.norm.running_var[:2], torch.ones(2))
    assert metrics(net, IMAGES)["dead"] == 0.0


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.SiLU])
def test_redo_takes_any_activation(activation):
    net = mlp(activation=activation)
    assert metrics(net, DATA, tau=0.05, layers=True)["dormant/0"] > 0
    assert redo(net, DATA, 0.05).changed["0"]


@pytest.mark.parametrize(
    "make, options",
    [
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adagrad, {}),
    ],
)
def test_the_first_steps_of_units_drawn_again_are_not_longer_than_a_living_units(make, options):
    net = mlp()
    optimizer = trained(net, make=make, steps=300, **options)
    effect = redo(net, DATA, 0.1, optimizer=optimizer)
    units = list(effect.changed["2"])
    living = [i for i in range(8) if i not in units]
    assert units
    assert living
    for _ in range(10):
        before = [p.detach().clone() for p in net.parameters()]
        optimizer.zero_grad()
        net(DATA).square().mean().backward()
        optimizer.step()
        steps = [(p.detach() - q).abs() for p, q in zip(net.parameters(), before, strict=True)]
        assert steps[4][:, units].max() <= 1.5e-3  # of the weights that read them; 3.2 to 6.5 rates otherwise
        assert steps[2][units].max() <= 1.5e-3


def test_the_state_of_living_entries_stays_and_that_of_others_is_as_described():
    net = mlp()
    optimizer = trained(net)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    effect = redo(net, DATA, 0.0, optimizer=[optimizer])
    units = list(effect.changed["2"])
    living = [i for i in range(8) if i not in units]
    assert units
    assert living
    state = optimizer.state[net[4].weight]
    assert not state["exp_avg"][:, units].any()
    assert torch.equal(state["exp_avg"][:, living], before[4]["exp_avg"][:, living])
    mean = before[4]["exp_avg_sq"][:, living].mean(1, keepdim=True)
    mean = mean.clamp(min=mean.mean())
    torch.testing.assert_close(state["exp_avg_sq"][:, units], mean.expand(3, len(units)))
    assert state["step"] == before[4]["step"]


def test_of_a_layer_that_is_wholly_dead_the_state_starts_anew():
    net = mlp()
    optimizer = trained(net)
    net[2].bias.data[:] = -100.0
    redo(net, DATA, 0.0, optimizer=optimizer)
    assert net[2].weight not in optimizer.state or not optimizer.state[net[2].weight]
    net(DATA).square().mean().backward()
    optimizer.step()


def test_units_that_are_added_or_returned_are_left_alone_and_said_so():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            x = self.first(x).relu()
            return self.head(x + self.second(x).relu()), x

    net = Sum()
    net.first.bias.data[:] = -100.0
    net.second.bias.data[:] = -100.0
    before = copy.deepcopy(net.state_dict())
    effect = redo(net, DATA, 0.0)
    assert not effect.changed
    assert effect.refused.keys() == {"first", "second"}
    assert all(torch.equal(v, before[n]) for n, v in net.state_dict().items())


def test_units_that_two_activations_read_are_left_alone_and_said_so():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(5, 6), nn.Linear(12, 2)

        def forward(self, x):
            x = self.first(x)
            return self.head(torch.cat([x.relu(), x.tanh()], 1))

    net = Twice()
    net.first.bias.data[:] = -100.0
    effect = redo(net, DATA, 0.0)
    assert not effect.changed
    assert effect.refused["first"] == "several activations read its units"


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(), mlp(1)

    def get_action_and_value(self, x):
        return self.actor(x), self.critic(x)


def test_redo_takes_agents_without_forward_and_what_a_watch_has_seen():
    agent = Agent()
    effect = redo(agent, DATA, 0.1, call="get_action_and_value")
    assert {"actor.2", "critic.2"} <= effect.changed.keys()
    agent, effects = Agent(), []
    optimizer = torch.optim.Adam(agent.parameters())
    watch = Watch(
        agent,
        every=10,
        limit=0.2,
        act=lambda watch: effects.append(redo(watch.model, watch.inputs, 0.1, optimizer=optimizer)),
    ).attach(optimizer)
    for _ in range(20):
        optimizer.zero_grad()
        sum(x.square().mean() for x in agent.get_action_and_value(torch.randn(32, 5))).backward()
        optimizer.step()
    assert watch.time == 20
    assert {"actor.2", "critic.2"} <= effects[0].changed.keys()


# Shrink and perturb


def test_shrink_and_perturb_is_what_its_definition_says():
    net, fresh = mlp(), mlp(1)
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = trained(copy.deepcopy(net))
    optimizer.param_groups[0]["params"] = list(net.parameters())
    effect = shrink_and_perturb(net, fresh, 0.8, optimizer=optimizer, inputs=DATA)
    for new, old, other in zip(net.parameters(), before, fresh.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), 0.8 * old + 0.2 * other.detach())
    assert effect.moved > 0
    assert len(effect.changed) == 6


def test_without_a_fresh_network_the_noise_is_ash_and_adams():
    net = nn.Linear(300, 300)
    before = net.weight.detach().clone()
    torch.manual_seed(0)
    shrink_and_perturb(net, None, 0.4, noise=0.01)
    noise = net.weight.detach() - 0.4 * before
    assert float(noise.std()) == pytest.approx(0.01, rel=0.02)
    assert abs(float(noise.mean())) < 1e-4


# L2 towards the start


def test_the_penalty_and_its_gradient_are_those_of_regenerative_regularization():
    net = mlp()
    penalty = L2Init(net, 0.01)
    start = [p.detach().clone() for p in net.parameters()]
    assert penalty().item() == 0.0
    trained(net)
    apart = [p.detach() - q for p, q in zip(net.parameters(), start, strict=True)]
    assert penalty().item() == pytest.approx(0.01 * sum(float(d.square().sum()) for d in apart), rel=1e-5)
    net.zero_grad()
    penalty().backward()
    for parameter, difference in zip(net.parameters(), apart, strict=True):
        torch.testing.assert_close(parameter.grad, 0.02 * difference)
    other = L2Init(net, 0.01)
    other.load_state_dict(penalty.state_dict())
    assert other().item() == penalty().item()
    net[0] = nn.Linear(5, 13)
    with pytest.raises(RemedyError, match="make a new L2Init"):
        penalty()


# Plasticity injection


def test_injection_changes_no_output_and_trains_the_new_network_only():
    net, fresh = mlp(), mlp(1)
    optimizer = trained(net)
    before = net(DATA).detach()
    injected = inject(net, fresh, optimizer=optimizer)
    assert torch.equal(injected(DATA), before)
    old, frozen = copy.deepcopy(net.state_dict()), copy.deepcopy(injected.frozen.state_dict())
    optimizer.zero_grad()
    injected(DATA).square().mean().backward()
    optimizer.step()
    assert all(torch.equal(v, old[n]) for n, v in injected.old.state_dict().items())
    assert all(torch.equal(v, frozen[n]) for n, v in injected.frozen.state_dict().items())
    expected = net(DATA) + fresh(DATA) - injected.frozen(DATA)
    torch.testing.assert_close(injected(DATA), expected)
    assert not torch.equal(injected(DATA), before)
    assert {id(p) for p in optimizer.state} == {id(p) for p in fresh.parameters()}


# Reset and forget


def test_a_reset_layer_starts_anew_with_its_state_and_the_others_stay():
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters())
    sum(x.square().mean() for x in agent.get_action_and_value(DATA)).backward()
    optimizer.step()
    before = copy.deepcopy(agent.state_dict())
    effect = reset(agent, "actor.4", optimizer=optimizer, inputs=DATA, call="get_action_and_value")
    changed = {name for name, value in agent.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"actor.4.weight", "actor.4.bias"}
    assert agent.actor[4].weight.abs().max() <= 1 / math.sqrt(8)
    assert agent.actor[4].weight not in optimizer.state
    assert agent.actor[2].weight in optimizer.state
    assert effect.moved > 0
    fresh = Agent()
    reset(agent, ["critic"], fresh)
    assert all(
        torch.equal(p, q) for p, q in zip(agent.critic.parameters(), fresh.critic.parameters(), strict=True)
    )


def test_what_is_forgotten_starts_with_its_first_step():
    net = mlp()
    optimizer = trained(net)
    assert forget(optimizer, net[0].parameters()) == 2
    assert net[2].weight in optimizer.state
    assert forget([optimizer]) == 4
    net(DATA).square().mean().backward()
    optimizer.step()
    assert optimizer.state[net[0].weight]["step"] == 1


# Continual backprop


def test_utilities_are_those_of_continual_backprop():
    # Dohare et al., shibhansh/loss-of-plasticity lop/algos/gnt.py, for an MLP of Linear and ReLU
    net, decay = mlp(), 0.9
    recycle = ContinualBackprop(net, rate=0.0, maturity=0, decay=decay, example=DATA[:2])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    utility = [torch.zeros(12), torch.zeros(8)]
    for age, batch in enumerate(DATA.split(20), 1):
        with torch.no_grad():  # passes without gradients do not count
            features = [net[:2](batch), net[:4](batch)]
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        recycle.step()
        for i, (name, reader) in enumerate({"0": net[2], "2": net[4]}.items()):
            new = reader.weight.detach().abs().sum(0) * features[i].abs().mean(0)
            utility[i] = decay * utility[i] + (1 - decay) * new
            torch.testing.assert_close(recycle.utility[name], utility[i] / (1 - decay**age))
            assert (recycle.age[name] == age).all()


def test_mature_units_of_least_utility_are_replaced_at_the_rate_and_their_mean_goes_into_the_bias():
    net = mlp()
    recycle = ContinualBackprop(net, rate=0.1, maturity=5, example=DATA[:2])
    for step in range(1, 8):
        before, utility = copy.deepcopy(net), recycle.utility
        net(DATA)
        effect = recycle.step(DATA)
        if step <= 5:
            assert not effect.changed
            continue
        if "0" in effect.changed:
            break
    (unit,) = effect.changed["0"]  # 12 units at 0.1: the first is due in the first step after maturity
    assert step == 6
    assert unit == int(utility["0"].argmin())
    mean = before[:2](DATA).mean(0)[unit]
    taken_over = before[2].bias + before[2].weight[:, unit] * mean
    torch.testing.assert_close(net[2].bias, taken_over, rtol=1e-4, atol=1e-6)
    assert not net[2].weight[:, unit].any()
    assert recycle.age["0"][unit] == 0
    assert effect.moved == pytest.approx((net(DATA) - before(DATA)).abs().max().item())


def test_continual_backprop_acts_after_the_optimizers_steps_at_its_rate():
    net = Convolutions()
    recycle = ContinualBackprop(net, rate=0.01, maturity=10)
    optimizer = torch.optim.Adam(net.parameters())
    recycle.attach(optimizer)
    for _ in range(60):
        optimizer.zero_grad()
        net(IMAGES).square().mean().backward()
        optimizer.step()
    # Before 11 steps no unit is mature; those replaced are not again for as long.
    assert 0 < recycle.replaced["conv1"] <= 8 * 0.01 * 50
    assert recycle.replaced["conv1"] >= int(8 * 0.01 * 50 - 0.01 * 10 * recycle.replaced["conv1"] - 1)
    assert recycle.age["conv1"].max() == 60
    recycle.detach()
    before = recycle.age["conv1"].max()
    optimizer.step()
    assert recycle.age["conv1"].max() == before
    pickle.loads(pickle.dumps(net))(IMAGES)


def test_continual_backprop_goes_on_after_a_conversion_and_from_a_checkpoint():
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters())
    recycle = ContinualBackprop(net, rate=0.01, maturity=10).attach(optimizer)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            net(DATA).square().mean().backward()
            optimizer.step()

    train(20)
    again = ContinualBackprop(net, rate=0.01, maturity=10, example=DATA[:2])
    again.load_state_dict(recycle.state_dict())
    assert torch.equal(again.utility["0"], recycle.utility["0"])
    again.detach()
    relucid.to_crelu(net, DATA[:2], layers=["1"], inplace=True, optimizer=optimizer)
    train(20)
    assert recycle.age.keys() == {"2"}
    assert "0" in str(recycle.refused) or "1" in str(recycle.refused)


# Refusals: nothing has changed


REFUSALS = {
    "negative tau": lambda net, o: redo(net, DATA, -1.0),
    "no optimizer": lambda net, o: redo(net, DATA, optimizer=net),
    "of another network": lambda net, o: redo(net, DATA, optimizer=torch.optim.Adam(mlp().parameters())),
    "lbfgs": lambda net, o: redo(net, DATA, optimizer=torch.optim.LBFGS(net.parameters())),
    "no network": lambda net, o: redo(lambda x: x, DATA),
    "another architecture": lambda net, o: shrink_and_perturb(net, nn.Linear(5, 12), 0.5, optimizer=o),
    "shrink": lambda net, o: shrink_and_perturb(net, mlp(), 1.5),
    "no such layer": lambda net, o: reset(net, "head", optimizer=o),
    "itself": lambda net, o: inject(net, net, optimizer=o),
    "strength": lambda net, o: L2Init(net, -1.0),
    "rate": lambda net, o: ContinualBackprop(net, 2.0, 10),
    "no forward": lambda net, o: ContinualBackprop(Agent(), 0.1, 10),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_done_is_refused_before_anything_changes(name):
    net = mlp()
    optimizer = trained(net)
    before, state = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RemedyError):
        REFUSALS[name](net, optimizer)
    assert all(torch.equal(v, before[n]) for n, v in net.state_dict().items())
    assert str(optimizer.state_dict()) == str(state)
    assert not any(m._forward_pre_hooks for m in net.modules())
