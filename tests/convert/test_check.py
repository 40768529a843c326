from copy import deepcopy

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError
from relucid.convert.check import References, difference, run


class Shuffled(nn.Module):
    """A network that reads its inputs in another order, with the weights to match: equal up to rounding."""

    def __init__(self, net: nn.Sequential, change: float = 0.0) -> None:
        super().__init__()
        self.order = torch.randperm(net[0].in_channels)
        self.net = deepcopy(net)
        noise = 1 + change * torch.randn_like(net[0].weight)
        self.net[0].weight = nn.Parameter((net[0].weight * noise)[:, self.order])

    def forward(self, x):
        return self.net(x[:, self.order])


def test_rounding_that_norms_amplify_in_training_is_told_from_a_difference_by_float64():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(256, 4, 1, bias=False), nn.BatchNorm2d(4, eps=1e-16))
    net.eval()
    example = 1 + 1e-5 * torch.randn(
        8, 256, 3, 3
    )  # outputs hardly vary, and the norm divides by their spread
    references = References(net, example)
    before, after = (
        run(each, references.examples[-1], training=True) for each in (net, Shuffled(net).eval())
    )
    assert difference(before.outputs, after.outputs)[1] > 0.01  # in float32
    references.check(Shuffled(net).eval(), None, training=True)
    with pytest.raises(ConversionError, match="in training"):
        references.check(Shuffled(net, change=1e-5).eval(), None, training=True)
