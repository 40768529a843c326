"""Every name that `create` knows, built once: complete, described, and with no parameter left out of the loss."""

import pytest
import torch

from relucid.models import create, describe, names

IMAGE = {32: 32, 224: 67}  # small images that every backbone still takes


def test_names_are_unique():
    assert len(set(names())) == len(names())


@pytest.mark.parametrize("name", names())
def test_no_parameter_is_without_gradient(name):
    with torch.device("meta"):
        whole = create(name, num_classes=4, in_channels=4)
    assert whole.name == name
    assert None not in vars(whole.design).values()
    assert {tensor.device.type for tensor in [*whole.parameters(), *whole.buffers()]} == {"meta"}

    net = create(name, num_classes=4, in_channels=4, width=0.05)
    x = torch.randn(2, 4, *(IMAGE[side] for side in net.input_shape[1:]))
    y = net(x)
    assert y.shape == (2, 4)
    y.sum().backward()
    # distributed training would refuse them
    assert [key for key, parameter in net.named_parameters() if parameter.grad is None] == []

    description = describe(net, x)
    assert description.parameters == sum(p.numel() for p in net.parameters())
    assert len({row.name for row in description.rows}) == len(description.rows)
    assert description.rows[-1].output_shape == (4,)
