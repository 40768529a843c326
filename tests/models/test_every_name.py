"""Every name in the registry: it is built on any device, and no parameter is left out of the loss."""

import pytest
import torch

from relucid.models import create, names

IMAGE = {32: 32, 224: 67}  # small images that every backbone still takes


def parameters_without_gradient(net, x):
    """Those that distributed training would refuse."""
    net(x).sum().backward()
    return [name for name, parameter in net.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize("name", names())
def test_no_parameter_is_without_gradient(name):
    net = create(name, num_classes=4, in_channels=4, width=0.05)
    size = [IMAGE[side] for side in net.input_shape[1:]]
    assert parameters_without_gradient(net, torch.randn(2, 4, *size)) == []


@pytest.mark.parametrize("name", names())
def test_a_network_is_complete_and_on_the_device_that_is_asked_for(name):
    with torch.device("meta"):
        net = create(name, num_classes=4, in_channels=4)
    assert net.name == name
    assert None not in vars(net.design).values()
    assert {tensor.device.type for tensor in [*net.parameters(), *net.buffers()]} == {"meta"}
