"""Target networks, moving averages and new instances: changed by the same steps, with their own values."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from relucid.convert import ConversionError, fuse, restore, revive, to_crelu, to_geometric, to_heavy_ball
from relucid.models import create

from .networks import NETWORKS, example, residual, trained_a_little

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
CONVERT = {"crelu": to_crelu, "geometric": to_geometric, "heavy ball": to_heavy_ball, "fuse": fuse}


def new():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def pair():
    torch.manual_seed(0)
    return new(), new()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("convert", ["crelu", "geometric", "fuse"])
@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
def test_a_twin_with_other_weights_keeps_its_function(name, convert):
    torch.manual_seed(0)
    net, twin = (trained_a_little(NETWORKS[name]()) for _ in range(2))
    x = example()
    before = twin(x).detach()
    conversion = CONVERT[convert](net, x)
    conversion.apply_to(twin)
    after = twin(x).detach()
    assert float((after - before).abs().max() / before.abs().max()) < 1e-9
    assert [type(m).__name__ for m in twin.modules()] == [
        type(m).__name__ for m in conversion.model.modules()
    ]
    assert {n: p.shape for n, p in twin.state_dict().items()} == {
        n: p.shape for n, p in conversion.model.state_dict().items()
    }


def test_a_residual_network_with_momentum():
    torch.manual_seed(0)
    net, twin = (trained_a_little(residual()) for _ in range(2))
    x = example()
    before = twin(x).detach()
    to_heavy_ball(net, x).apply_to(twin)
    torch.testing.assert_close(twin(x).detach(), before)


@pytest.mark.parametrize("convert", ["crelu", "geometric"])
def test_target_and_average_follow_in_a_polyak_loop(convert):
    net, target = pair()
    target.load_state_dict(net.state_dict())
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    watched = list(target.parameters())

    def step():
        optimizer.zero_grad()
        F.mse_loss(net(X), target(X).detach() + 1).backward()
        optimizer.step()
        average.update_parameters(net)
        with torch.no_grad():
            for p, q in zip(target.parameters(), net.parameters(), strict=True):
                p.lerp_(q, 0.1)

    step()
    before = [n(X).detach() for n in (target, average)]
    conversion = CONVERT[convert](net, X, inplace=True, optimizer=optimizer)
    conversion.apply_to(target, average)
    for n, y in zip((target, average), before, strict=True):
        torch.testing.assert_close(n(X), y)
    if convert == "crelu":
        assert all(a is b for a, b in zip(target.parameters(), watched, strict=True))
    for _ in range(3):
        step()
    target.load_state_dict(net.state_dict())
    assert torch.equal(target(X), net(X))
    average.update_parameters(net)
    restored = new()
    restore(restored, average.module.state_dict())  # the average of two recipes is the recipe
    torch.testing.assert_close(restored(X), average(X))


def test_an_average_over_state_dicts_keeps_the_recipe():
    net, ema = pair()
    conversion = to_crelu(net, X, inplace=True)
    conversion.apply_to(ema)
    for _ in range(100):
        for mean, value in zip(ema.state_dict().values(), net.state_dict().values(), strict=True):
            mean.lerp_(value, 0.01)
    assert torch.equal(restore(new(), ema.state_dict())(X), ema(X))


def test_a_twin_with_an_optimizer_of_its_own():
    net, twin = pair()
    optimizer = torch.optim.Adam(twin.parameters())
    twin(X).square().mean().backward()
    optimizer.step()
    mean = optimizer.state[twin[2].weight]["exp_avg"].clone()
    to_crelu(net, X).apply_to(twin, optimizer=optimizer)
    state = optimizer.state[twin[2].weight]["exp_avg"]
    assert torch.equal(state[:, :16], mean)
    assert not state[:, 16:].any()
    twin(X).square().mean().backward()
    optimizer.step()


REFUSED = {
    "another width": (
        lambda: nn.Sequential(nn.Linear(6, 8), *list(new())[1:2], nn.Linear(8, 3)),
        "is no twin",
    ),
    "another network": (lambda: create("mlp", num_classes=3, in_channels=6), "is no twin"),
    "another activation": (
        lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), *list(new())[2:]),
        "1 is a Tanh, not a ReLU",
    ),
    "converted already": (lambda: to_crelu(new(), X).model, "1 is a CReLU, not a ReLU"),
    "no network": (lambda: X, "a twin is an nn.Module, not a Tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_twin_is_refused_and_none_is_changed(case):
    build, reason = REFUSED[case]
    net, twin = pair()
    conversion = to_crelu(net, X)
    other, before = build(), copy.deepcopy(twin.state_dict())
    with pytest.raises(ConversionError, match=reason):
        conversion.apply_to(twin, other)
    assert all(torch.equal(a, b) for a, b in zip(twin.state_dict().values(), before.values(), strict=True))


def test_slopes_that_a_twin_has_learned_otherwise_are_refused():
    def prelu():
        return nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3))

    net, twin = prelu(), prelu()
    conversion = to_crelu(net, X)
    same = copy.deepcopy(twin)
    conversion.apply_to(same)
    torch.testing.assert_close(same(X), twin(X))
    nn.init.constant_(twin[1].weight, 0.7)
    y = twin(X)
    with pytest.raises(ConversionError):
        conversion.apply_to(twin)
    assert torch.equal(twin(X), y)


def test_a_network_without_a_change_has_twins_too():
    net, twin = nn.Sequential(nn.Linear(6, 3), nn.Tanh()), nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    y = twin(X)
    with pytest.warns(UserWarning, match="changes no layer"):
        to_crelu(net, X).apply_to(twin)
    assert torch.equal(twin(X), y)


def test_a_twin_of_a_halved_network_is_halved():
    net, twin = pair()
    conversion = to_crelu(net, X, mode="halve")
    conversion.apply_to(twin)
    twin.load_state_dict(conversion.model.state_dict())
    assert torch.equal(twin(X), conversion.model(X))


def test_revived_units_stay_with_their_network():
    net, twin = pair()
    nn.init.constant_(net[0].bias, -100.0)
    y = twin(X)
    revive(net, X).apply_to(twin)
    assert torch.equal(twin(X), y)
    assert list(twin.state_dict()) == list(new().state_dict())
