from copy import deepcopy

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, to_geometric
from relucid.convert.check import References
from relucid.convert.copies import copied, in_float64
from relucid.convert.difference import difference
from relucid.convert.run import run
from relucid.nn import GeometricLinear


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
    example = 1 + 1e-6 * torch.randn(
        8, 256, 3, 3
    )  # outputs hardly vary, and the norm divides by their spread
    references = References(net, [example])
    before, after = (
        run(copied(each, share=True), references.examples[-1], training=True)
        for each in (net, Shuffled(net).eval())
    )
    assert difference(before.outputs, after.outputs)[1] > 0.01  # in float32
    references.check(Shuffled(net).eval(), None, training=True)
    with pytest.raises(ConversionError, match="in training"):
        references.check(Shuffled(net, change=3e-5).eval(), None, training=True)


def test_a_copy_in_float64_computes_the_same_and_leaves_the_original_as_it_was():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), GeometricLinear(6, 5), nn.LSTM(5, 3))
    net[0].bias.requires_grad_(False)
    net[0].other = net[0].weight
    state, x = deepcopy(net.state_dict()), torch.randn(7, 4)
    wide = in_float64(net)
    assert {t.dtype for t in wide.state_dict().values()} == {torch.float64, torch.int64}
    assert wide[0].other is wide[0].weight
    assert [p.requires_grad for p in wide.parameters()] == [p.requires_grad for p in net.parameters()]
    (before, _), (after, _) = net(x), wide(x.double())
    assert torch.allclose(before.double(), after, atol=1e-5)
    assert not torch.equal(before.double(), after)
    wide[0].weight.data.zero_()
    assert torch.equal(net[0].weight, state["0.weight"])
    assert all(value.dtype == state[name].dtype for name, value in net.state_dict().items())


def test_rounding_is_judged_on_the_smallest_input(monkeypatch):
    passes = []

    def counted(model, example, training, **options):
        if next(model.parameters()).dtype == torch.float64:
            passes.append(len(example))
        return run(model, example, training, **options)

    monkeypatch.setattr("relucid.convert.check.run", counted)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(256, 4, 1, bias=False), nn.BatchNorm2d(4, eps=1e-16))
    references = References(net.eval(), [1 + 1e-5 * torch.randn(8, 256, 3, 3)])
    references.check(Shuffled(net).eval(), None, training=True)
    assert passes == [2, 2]


class Off(nn.Module):
    """A network whose outputs are off by a factor in training only."""

    def __init__(self, net: nn.Module, factor: float) -> None:
        super().__init__()
        self.net, self.factor = net, factor

    def forward(self, x):
        return self.net(x) * (self.factor if self.training else 1)


def deep(depth: int) -> nn.Module:
    """A plain network that amplifies rounding in training, the more the deeper it is."""
    torch.manual_seed(1)
    unit = (m for _ in range(depth) for m in (nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()))
    return nn.Sequential(*unit).eval()


def test_a_deep_network_may_differ_in_training_by_what_rounding_its_weights_does():
    net, x = deep(40), torch.randn(8, 8, 4, 4)
    references = References(net, [x])
    converted = to_geometric(net, x).model
    before, after = (run(copied(each), references.examples[1], training=True) for each in (net, converted))
    assert difference(before.outputs, after.outputs)[1] > 0.01  # more than the tolerance
    references.check(converted, None, training=True)
    with pytest.raises(ConversionError, match="in training on an input of 2x8x5x5"):
        references.check(Off(converted, 1.1).eval(), None, training=True)


def test_where_rounding_changes_a_network_beyond_recognition_another_input_must_tell():
    net, x = deep(80), torch.randn(8, 8, 4, 4)
    with pytest.raises(ConversionError, match=r"changes Sequential as much there.*a larger batch.* may"):
        to_geometric(net, x)
    # One that is equal but for the order of its sums agrees in float64.
    net = deep(50)
    before, after = (run(copied(each), x, training=True) for each in (net, Shuffled(net).eval()))
    assert difference(before.outputs, after.outputs)[1] > 0.01
    References(net, [x]).check(Shuffled(net).eval(), None, training=True)


class Slower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 0.985 * grad


class SlowerAt(nn.Module):
    """The same network, but in training a gradient is a little smaller behind one of its layers."""

    def __init__(self, net: nn.Sequential, place: int) -> None:
        super().__init__()
        self.net, self.place = Shuffled(net).eval(), place

    def forward(self, x):
        x = x[:, self.net.order]
        for place, layer in enumerate(self.net.net):
            x = layer(x)
            x = Slower.apply(x) if self.training and place == self.place else x
        return x


def test_weights_that_were_only_moved_are_no_excuse_for_what_rounding_them_would_do():
    net, x = deep(40), torch.randn(8, 8, 4, 4)
    references = References(net, [x])
    references.check(Shuffled(net).eval(), None, training=True, rounds=False)
    wrong = SlowerAt(net, 60).eval()
    references.check(wrong, None, training=True, rounds=True)  # beside rounded weights, nobody could tell
    with pytest.raises(ConversionError, match="in training on an input of 2x8x5x5"):
        references.check(wrong, None, training=True, rounds=False)
