"""An optimizer goes along in the middle of training: one step after a conversion is the step without it."""

import copy

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, to_crelu, to_geometric, to_heavy_ball

from .networks import PreBlock

OPTIMIZERS = {
    "Adam": lambda groups: torch.optim.Adam(groups, 0.01, amsgrad=True),
    "AdamW": lambda groups: torch.optim.AdamW(groups, 0.01, weight_decay=0.1),
    "SGD": lambda groups: torch.optim.SGD(groups, 0.01, momentum=0.9, nesterov=True),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, 0.01, momentum=0.5, centered=True),
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def network():
    body = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU()]
    return nn.Sequential(*body, nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 2)).double()


def trained(make, model):
    """The network after three steps, with its optimizer, whose two groups have options of their own."""
    last = list(model[-1].parameters())
    others = [p for p in model.parameters() if not any(p is q for q in last)]
    optimizer = make([{"params": others}, {"params": last, "lr": 0.003, "mine": "kept"}])
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    for _ in range(3):
        step(model, optimizer, x, y)
    return optimizer, x, y


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()


def old_entries(new, old):
    """The part of a weight that was there: its first columns, or for a depthwise layer its first filters."""
    return new[tuple(slice(size) for size in old.shape)] if new.dim() == old.dim() else new


@every_optimizer
def test_one_step_after_to_crelu_moves_every_old_weight_as_without_it(make):
    plain, model = network(), network()
    model.load_state_dict(plain.state_dict())
    torch.manual_seed(1)
    beside, x, y = trained(make, plain)
    torch.manual_seed(1)
    optimizer, _, _ = trained(make, model)
    found = to_crelu(model, x, layers=["6"], inplace=True, optimizer=optimizer)
    assert found.model is model
    assert model[8].in_features == 2 * 64
    step(plain, beside, x, y)
    step(model, optimizer, x, y)
    for (name, new), old in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(old_entries(new, old), old, rtol=1e-10, atol=1e-12, msg=name)
    assert model[8].weight[:, 64:].count_nonzero() > 0  # the new weights learn


def test_a_gradient_that_waits_for_its_step_is_kept():
    plain, model = network(), network()
    model.load_state_dict(plain.state_dict())
    x = torch.randn(6, 3, 8, 8, dtype=torch.float64)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (plain, model)]
    for net in plain, model:
        net(x).square().mean().backward()
    to_crelu(model, x, layers=["6"], inplace=True, optimizer=optimizers[1])
    for optimizer in optimizers:
        optimizer.step()
    assert model[8].in_features == 2 * 64
    for new, old in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(old_entries(new, old), old, rtol=1e-10, atol=1e-12)


@every_optimizer
def test_groups_refer_to_the_new_parameters_and_state_is_zero_for_new_entries(make):
    model = network()
    optimizer, x, _ = trained(make, model)
    before = copy.deepcopy([optimizer.state[p] for p in model.parameters()])
    options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    to_crelu(model, x, inplace=True, optimizer=optimizer)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, model.parameters()))
    assert set(optimizer.state) == set(held)
    assert [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] == options
    assert {id(p) for p in optimizer.param_groups[1]["params"]} == {id(p) for p in model[-1].parameters()}
    grown = 0
    for p, old in zip(model.parameters(), before, strict=True):
        for key, value in optimizer.state[p].items():
            if value.dim() == 0:
                assert value == old[key]
                continue
            assert value.shape == p.shape
            assert torch.equal(value[value != 0], old[key][old[key] != 0])  # in order, and the rest is zero
            grown += value.numel() > old[key].numel()
    assert grown >= 3


def test_geometric_layers_and_betas_are_trained_by_the_same_optimizer():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.Sequential(PreBlock(6), PreBlock(6)), nn.ReLU(), nn.Conv2d(6, 2, 1)
    )
    x, optimizer = torch.randn(4, 3, 8, 8), torch.optim.Adam(model.parameters(), 0.01)
    for convert in to_heavy_ball, to_geometric:
        convert(model, x, inplace=True, optimizer=optimizer)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        assert held == {id(p) for p in model.parameters()}
        assert all(
            not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True) if p.grad.any()
        )


def test_an_optimizer_that_decays_directions_is_warned_of():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    with pytest.warns(UserWarning, match="AdamW decays the directions of geometric layers; give") as warned:
        to_geometric(model, x, inplace=True, optimizer=optimizer)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("order", [1, -1])
def test_geometric_parameters_go_to_the_group_without_decay(order):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    weights = {"params": [model[0].weight, model[2].weight], "weight_decay": 0.1}
    biases = {"params": [model[0].bias, model[2].bias], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([weights, biases][::order])
    to_geometric(model, x, inplace=True, optimizer=optimizer)  # and nothing is warned of
    decayed, kept = optimizer.param_groups[::order]
    assert [id(p) for p in decayed["params"]] == [id(model[2].weight)]
    assert {id(p) for p in kept["params"]} == {*map(id, model[0].parameters()), id(model[2].bias)}


@pytest.mark.filterwarnings("error::UserWarning")
def test_an_optimizer_without_a_state_per_entry_warns_that_it_starts_anew():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    with pytest.warns(UserWarning, match="Adafactor has no state per entry"):
        to_crelu(model, torch.randn(5, 3), inplace=True, optimizer=optimizer)


def test_an_optimizer_needs_its_own_network_converted_in_place():
    model, x = network(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="inplace=True"):
        to_crelu(model, x, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(ValueError, match="trains no parameter of this network"):
        to_crelu(model, x, inplace=True, optimizer=torch.optim.SGD(network().parameters(), 0.1))
    with pytest.raises(ValueError, match=r"one torch\.optim\.Optimizer or a list of them, not dict"):
        to_crelu(model, x, inplace=True, optimizer=[torch.optim.SGD(model.parameters(), 0.1), {}])


class Wrapper:
    """Shows the groups of an optimizer as copies, of one kind or another."""

    def __init__(self, inner, kind):
        self.inner, self.kind, self.state = inner, kind, inner.state

    @property
    def param_groups(self):
        return self.kind({**group, "params": self.kind(group["params"])} for group in self.inner.param_groups)


@pytest.mark.parametrize("kind", [tuple, list, iter])
@pytest.mark.parametrize("convert", [to_crelu, to_geometric])
def test_a_wrapper_that_shows_copies_of_groups_is_refused_before_anything_changes(convert, kind):
    model, x = network(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    optimizer = torch.optim.Adam(model.parameters())
    before, state = repr(model), copy.deepcopy(model.state_dict())
    wrapped = [torch.optim.SGD(model.parameters(), 0.1), Wrapper(optimizer, kind)]
    sentence = r"the groups of Wrapper are copies.*; give the torch\.optim\.Optimizer inside"
    with pytest.raises(ConversionError, match=sentence):
        convert(model, x, inplace=True, optimizer=wrapped)
    conversion = convert(network(), x)
    with pytest.raises(ConversionError, match=sentence):
        conversion.apply_to(model, optimizer=wrapped)
    assert repr(model) == before
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class Distribution:
    """What a policy remembers of its last call: not a module, with a tensor that has a gradient function."""

    def __init__(self) -> None:
        self.parameters: dict[str, torch.Tensor] = {}


class Policy(nn.Module):
    """A network that holds its own optimizer, and a value of its last call, as those of stable-baselines3 do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)
        self.distribution = Distribution()
        self.optimizer = torch.optim.Adam(self.parameters(), 0.01)

    def forward(self, x):
        self.distribution.parameters["logits"] = self.head(self.body(x))
        return self.distribution.parameters["logits"]


@pytest.mark.parametrize("inplace", [False, True])
def test_an_optimizer_that_the_network_holds_goes_along(inplace):
    policy, x = Policy(), torch.randn(6, 4)
    step(policy, policy.optimizer, x, torch.ones(6, 2))
    converted = to_crelu(policy, x, inplace=inplace).model
    assert (converted is policy) == inplace
    held = [p for group in converted.optimizer.param_groups for p in group["params"]]
    assert [id(p) for p in held] == [id(p) for p in converted.parameters()]
    assert converted.optimizer.state[converted.head.weight]["exp_avg"].shape == (2, 16)
    before = converted.head.weight.detach().clone()
    step(converted, converted.optimizer, x, torch.ones(6, 2))
    assert (converted.head.weight != before).any(0).sum() > 8
    assert policy.head.in_features == (16 if inplace else 8)
    assert [id(p) for group in policy.optimizer.param_groups for p in group["params"]] == [
        id(p) for p in policy.parameters()
    ]


@pytest.mark.parametrize("convert", [to_crelu, to_geometric])
def test_names_of_parameters_follow_in_an_optimizer_that_has_them(convert):
    model, other = network(), nn.Linear(2, 2)
    named = [*model.named_parameters(), *other.named_parameters(prefix="other")]
    optimizer = torch.optim.SGD(named, 0.1)
    convert(model, torch.randn(2, 3, 8, 8, dtype=torch.float64), inplace=True, optimizer=optimizer)
    (group,) = optimizer.param_groups
    held = dict(model.named_parameters()) | dict(other.named_parameters(prefix="other"))
    assert sorted(group["param_names"]) == sorted(held)
    assert all(held[name] is p for name, p in zip(group["param_names"], group["params"], strict=True))
