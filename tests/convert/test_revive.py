"""Dead units made alive again: no output changes, and their first steps are no longer than those of living units."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid import Watch, remedies
from relucid.convert import ConversionError, UnchangedWarning, restore, revive, to_crelu, to_geometric
from relucid.nn import MeanNorm

from .networks import Block

X = torch.randn(256, 6, generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(2))


class FunctionalReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.fc1, self.fc2 = nn.Linear(72, 12), nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.fc2(F.dropout(F.relu(self.fc1(x.flatten(1))), 0.2, self.training))


def linear():
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))


def convolution():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2), nn.ReLU6()),
        *(nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(4, 5)),
    )


def mean_norm():
    return nn.Sequential(nn.Linear(6, 10, bias=False), MeanNorm(10, bias=True), nn.ReLU(), nn.Linear(10, 3))


def geometric():
    return to_geometric(linear(), X).model


def geometric_convolution():
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(96, 5)),
    )
    return to_geometric(net, IMAGES).model


def residual():
    return nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), Block(6, 6, 1), nn.Flatten(), nn.Linear(384, 5))


# Networks, inputs, and the tensor whose first half is set so low that units die.
CASES = {
    "linear": (linear, X, ["0.bias", "2.bias"]),
    "convolution": (convolution, IMAGES, ["1.bias", "4.bias", "6.bias"]),
    "functional": (FunctionalReLU, IMAGES, ["norm.bias", "fc1.bias"]),
    "mean norm": (mean_norm, X, ["1.bias"]),
    "geometric": (geometric, X, ["0.offset", "2.offset"]),
    "geometric convolution": (geometric_convolution, IMAGES, ["0.offset", "3.bias"]),
    "residual": (residual, IMAGES, ["2.bn1.bias"]),
}


def killed(case):
    """A network with dead units, its inputs, and which units they are."""
    torch.manual_seed(0)
    build, x, names = CASES[case]
    net = build()
    for name in names:
        shift = net.get_parameter(name).data
        shift[: len(shift) // 2] = -100.0
    return net.eval(), x, names


def values(net, x, name):
    """What a layer or norm returns, (units, values)."""
    found = []
    module = net.get_submodule(name)
    handle = module.register_forward_hook(lambda m, a, y: found.append(y))
    with torch.no_grad():
        net(x)
    handle.remove()
    (value,) = found
    return value.movedim(1, 0).flatten(1)


@pytest.mark.parametrize("case", CASES)
def test_no_output_changes_and_units_are_active_on_half_of_the_data(case):
    net, x, names = killed(case)
    conversion = revive(net, x)
    after = conversion.model
    torch.testing.assert_close(after(x), net(x), rtol=0, atol=1e-6 * float(net(x).detach().abs().max()))
    assert conversion.max_error <= 1e-6 * float(net(x).detach().abs().max())
    for name in names:
        layer = name.rpartition(".")[0]
        half = len(net.get_parameter(name)) // 2
        assert not (values(net, x, layer)[:half] > 0).any()
        share = (values(after, x, layer)[:half] > 0).double().mean(1)
        assert ((share > 0.35) & (share < 0.65)).all(), share
        old, new = values(net, x, layer), values(after, x, layer)
        alive = (old > 0).any(1)
        torch.testing.assert_close(new[alive], old[alive], rtol=1e-4, atol=1e-5)
    alive = [c.reason for c in conversion.changes if "alive" in c.reason]
    assert len(alive) == len(names)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_share_is_what_was_asked_for(share):
    net, x, _ = killed("linear")
    after = revive(net, x, share=share).model
    active = (values(after, x, "0")[:5] > 0).double().mean()
    assert abs(float(active) - share) < 0.02


@pytest.mark.parametrize("case", CASES)
def test_the_network_learns_with_its_revived_units(case):
    net, x, names = killed(case)
    revive(net, x, inplace=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for _ in range(2):  # what reads them learns first, then they
        optimizer.zero_grad()
        (net(x) - 10).square().mean().backward()
        optimizer.step()
    for name in names:
        half = len(before[name]) // 2
        path = name.rpartition(".")[0]
        own = (n for n, p in before.items() if n.rpartition(".")[0] == path and len(p) == 2 * half)
        moved = [(net.get_parameter(n).detach() - before[n])[:half] for n in own]
        assert any(bool((m.reshape(half, -1).abs().sum(1) > 0).all()) for m in moved), name


def test_a_network_whose_layers_are_wholly_dead_lives_again():
    net = linear()
    nn.init.constant_(net[0].bias, -100.0)
    nn.init.constant_(net[2].bias, -100.0)
    after = revive(net, X).model
    assert torch.equal(after(X), net(X))
    for name in ("0", "2"):
        share = (values(after, X, name) > 0).double().mean(1)
        torch.testing.assert_close(share, torch.full((10,), 0.5).double())


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
}


def trained(name, case="linear", steps=200):
    """A network with dead units whose optimizer has seen many steps, and a function that takes another."""
    net, x, _ = killed(case)
    optimizer = OPTIMIZERS[name](net.parameters())
    target = torch.randn(len(x), net(x).shape[1], generator=torch.Generator().manual_seed(3))

    def step():
        optimizer.zero_grad()
        F.mse_loss(net(x), target).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    return net, x, optimizer, step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_first_step_of_a_revived_unit_is_no_longer_than_a_living_ones(name):
    net, x, optimizer, step = trained(name)
    parameters = list(net.parameters())
    revive(net, x, inplace=True, optimizer=optimizer)
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    before = [p.detach().clone() for p in parameters]
    step()
    for p, old, dim, dead in zip(parameters[:4], before[:4], (0, 0, 1, 0), (5, 5, 5, 5), strict=True):
        moved = (p.detach() - old).abs().movedim(dim, 0)
        living = moved[dead:]
        assert moved[:dead].max() <= 1.5 * max(living.max(), 0.01 if name != "sgd" else 0.0), name
    outgoing = (parameters[2].detach() - before[2])[5:, :5]
    assert bool((outgoing != 0).any())  # what reads revived units does move


@pytest.mark.parametrize("case", ["linear", "convolution", "functional"])
def test_late_in_training_the_first_adam_step_is_no_longer_than_the_rate(case):
    """With second moments of 0 it would be 2.5 rates."""
    net, x, optimizer, step = trained("adam", case, steps=1000)
    revive(net, x, inplace=True, optimizer=optimizer)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    step()
    longest = max(float((p.detach() - before[n]).abs().max()) for n, p in net.named_parameters())
    assert longest <= 0.011  # the rate


def test_gradients_of_what_is_new_are_zero():
    net, x, _ = killed("linear")
    net(x).sum().backward()
    net[0].weight.grad.fill_(1.0)
    net[2].weight.grad.fill_(1.0)
    revive(net, x, inplace=True)
    assert not net[0].weight.grad[:5].any()
    assert bool((net[0].weight.grad[5:] == 1).all())
    assert not net[2].weight.grad[:, :5].any()


def test_of_several_optimizers_each_follows():
    net, x, _ = killed("linear")
    two = [
        torch.optim.Adam(net[:2].parameters()),
        torch.optim.SGD(net[2:].parameters(), lr=0.1, momentum=0.9),
    ]
    for _ in range(3):
        net(x).square().mean().backward()
        for optimizer in two:
            optimizer.step()
    revive(net, x, inplace=True, optimizer=two)
    assert not two[0].state[net[0].weight]["exp_avg"][:5].any()
    assert not two[1].state[net[2].weight]["momentum_buffer"][:, :5].any()


def test_the_original_stays_as_it_was_unless_in_place():
    net, x, _ = killed("convolution")
    before = copy.deepcopy(net.state_dict())
    revive(net, x)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before.values(), strict=True))


def test_draws_follow_the_users_seed():
    net, x, _ = killed("linear")
    weights = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        weights.append(revive(net, x).model[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    "data", [X.numpy(), [X[:100], X[100:]], torch.utils.data.DataLoader(X, 64)], ids=type
)
def test_data_in_any_form(data):
    net, x, _ = killed("linear")
    assert (values(revive(net, x[:2], data).model, x, "0") > 0).any(1).all()


# Refusals


def relu_then_norm():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))
    net[0].bias.data[:4] = -100.0
    return net.eval()


def layer_norm():
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    net[1].bias.data[:4] = -100.0
    return net


def output():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    net[0].bias.data[:4] = -100.0
    return net


def tied():
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    net[2].weight = net[0].weight
    net[0].bias.data[:3] = -100.0
    return net


def frozen():
    net = linear()
    net[0].requires_grad_(False)
    net[0].bias.data[:3] = -100.0
    return net


class Sum(nn.Module):
    """Dead units of a sum, and dead units that are added to something."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 2)
        self.a.bias.data[:4] = -100.0

    def forward(self, x):
        return self.c(F.relu(self.a(x) + self.b(x)))


class Added(Sum):
    def forward(self, x):
        return self.c(F.relu(self.a(x)) + self.b(x))


class Shifted(Sum):
    """The reader sees a constant, not 0, from a dead unit."""

    def forward(self, x):
        return self.c(F.relu(self.a(x)).exp())


REFUSED = {
    relu_then_norm: "2 makes something other than 0 of their zeros",
    layer_norm: "1 computes the units from each other",
    output: "the network returns it",
    tied: "0 is used more than once",
    frozen: "0 is frozen",
    Sum: "it rectifies a sum",
    Added: "it is added to another value",
    Shifted: "outputs would move",
}


@pytest.mark.parametrize("build", REFUSED)
@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
def test_what_cannot_be_revived_is_a_sentence_and_stays_as_it_was(build):
    torch.manual_seed(0)
    net = build()
    conversion = revive(net, X)
    refused = [c.reason for c in conversion.changes if c.status == "refused"]
    assert any(REFUSED[build] in reason and "dead unit" in reason for reason in refused), conversion.summary()
    torch.testing.assert_close(conversion.model(X), net(X), rtol=0, atol=0)


def test_what_stays_dead_is_reported():
    net, _x, _ = killed("linear")
    constant = torch.ones(64, 6)
    conversion = revive(net, constant)
    assert "stay dead" in conversion.summary()


def test_few_inputs_are_refused():
    net, x, _ = killed("linear")
    with pytest.raises(ValueError, match="8 inputs cannot show which units are dead"):
        revive(net, x[:8])


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_the_share_is_checked(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        revive(linear(), X, share=share)


def test_a_network_without_dead_units_is_left_alone():
    net = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.warns(UnchangedWarning):
        assert torch.equal(revive(net, X).model[0].weight, net[0].weight)


def test_an_interrupt_in_place_changes_nothing(monkeypatch):
    net, x, optimizer, _ = trained("adam", steps=3)
    weights = copy.deepcopy(net.state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    from relucid.convert import _renew

    plain, calls = _renew.renew, []

    def stopped(*args):
        calls.append(args)
        if args[0].model is net and len([c for c in calls if c[0].model is net]) == 3:
            raise KeyboardInterrupt
        plain(*args)

    monkeypatch.setattr(_renew, "renew", stopped)
    with pytest.raises(KeyboardInterrupt):
        revive(net, x, inplace=True, optimizer=optimizer)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), weights.values(), strict=True))
    after = optimizer.state_dict()["state"]
    for number, entries in state["state"].items():
        assert all(np.array_equal(v, after[number][key]) for key, v in entries.items())


def test_a_wrong_revival_is_an_error_not_a_result(monkeypatch):
    net, x, _ = killed("linear")
    from relucid.convert import _renew

    monkeypatch.setattr(_renew, "_stop_reading", lambda *_: None)
    with pytest.warns(UnchangedWarning):
        assert "outputs would move" in revive(net, x).summary()
    with pytest.raises(ConversionError, match="does not take the example"):
        revive(net, torch.randn(64, 5))


# With CReLU, and as others offer it


def test_crelu_and_revived_units_at_once():
    net, x, optimizer, step = trained("adam", steps=20)
    y, parameters = net(x).detach(), list(net.parameters())
    conversion = to_crelu(net, x, revive=True, inplace=True, optimizer=optimizer)
    assert conversion.model is net
    torch.testing.assert_close(net(x), y)
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert net[2].weight.shape == (10, 20)
    share = (values(net, x, "0") > 0).double().mean(1)
    assert ((share[:5] > 0.45) & (share[:5] < 0.55)).all()
    reasons = {change.name: change.reason for change in conversion.changes}
    assert "alive" in reasons["1"]
    assert "CReLU" in reasons["1"]
    step()


def test_a_copy_with_crelu_and_revived_units_is_restored_and_has_twins():
    net, x, _ = killed("linear")
    before = net(x).detach()
    conversion = to_crelu(net, x, revive=True)
    assert torch.equal(net(x), before)
    assert torch.equal(restore(linear(), conversion.model.state_dict())(x), conversion.model(x))
    twin = linear()
    y = twin(x).detach()
    conversion.apply_to(twin)
    torch.testing.assert_close(twin(x), y)


@pytest.mark.parametrize(
    "options", [{"mode": "merge", "revive": True}, {"mode": "halve", "revive": True}, {"data": X}]
)
def test_revive_is_for_expand_alone(options):
    with pytest.raises(ValueError, match="revive"):
        to_crelu(linear(), X, **options)


def test_a_watch_can_revive():
    net, x, _ = killed("linear")
    optimizer = torch.optim.Adam(net.parameters())
    done = []

    def act(watch):
        done.append(
            remedies.revive(watch.model, watch.example, watch.inputs, inplace=True, optimizer=optimizer)
        )

    watch = Watch(net.train(), every=5, act=act, limit=0.3).attach(optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    assert len(done) == 1
    assert done[0].changed
    watch.detach()
    assert (values(net, x, "0") > 0).any(1).all()


def test_a_method_in_place_of_forward():
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = linear()
            self.net[0].bias.data[:5] = -100.0

        def act(self, x):
            values = self.net(x)
            return values.argmax(1), values

    agent = Agent()
    y = agent.act(X)[1].detach()
    assert revive(agent, X, call="act", inplace=True).changed
    assert torch.equal(agent.act(X)[1], y)
