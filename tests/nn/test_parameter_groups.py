import pytest
import torch
from torch import nn

from relucid.nn import GeometricConv2d, GeometricLinear, MeanNorm, geometric, parameter_groups


@pytest.mark.parametrize(
    "decay_scale, scales",
    [(False, set()), (True, {"conv.scale", "parametrized.parametrizations.weight.original1"})],
)
def test_only_standard_weights_and_biases_decay_and_scales_on_request(decay_scale, scales):
    net = nn.ModuleDict(
        {
            "conv": GeometricConv2d(3, 4, 3),
            "linear": nn.Linear(4, 4),
            "mean": MeanNorm(4, bias=True),
            "batch": nn.BatchNorm1d(4),
            "layer": nn.LayerNorm(4),
            "parametrized": geometric(nn.Linear(4, 2)),
        }
    )
    decayed, kept = parameter_groups(net, 1e-3, decay_scale=decay_scale)
    names = {id(p): name for name, p in net.named_parameters()}
    standard = {"linear.weight", "linear.bias", "parametrized.bias"}
    assert {names[id(p)] for p in decayed["params"]} == standard | scales
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (1e-3, 0.0)


def test_a_step_of_decay_on_scales_is_a_step_of_decay_on_weights():
    standard = nn.Linear(5, 3)
    layer = GeometricLinear.from_standard(standard)
    groups = parameter_groups(layer, 0.1, decay_scale=True), parameter_groups(standard, 0.1)
    for each in groups:
        optimizer = torch.optim.SGD(each, lr=0.5)
        for group in each:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), standard.weight.detach())


def test_a_network_without_exempt_parameters_has_one_group():
    assert len(parameter_groups(nn.Linear(2, 2), 0.1)) == 1


def test_a_module_can_exempt_its_own_parameters():
    class Gain(nn.Module):
        weight_decay = False

        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(1))

    (group,) = parameter_groups(Gain(), 0.1)
    assert group["weight_decay"] == 0.0


def test_parameter_groups_keep_directions():
    layer = GeometricLinear(256, 8)
    before = layer.direction.detach().clone()
    optimizer = torch.optim.SGD(parameter_groups(layer, 0.01), lr=0.1)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(100):
        optimizer.step()
    assert torch.equal(layer.direction, before)


def test_frozen_parameters_train_once_they_are_no_longer_frozen():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).requires_grad_(False)
    net[1].requires_grad_()
    optimizer, before = torch.optim.SGD(parameter_groups(net, 0.1), lr=0.1), net[0].weight.clone()

    def step():
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    assert torch.equal(net[0].weight, before)
    net.requires_grad_()
    step()
    assert not torch.equal(net[0].weight, before)
