from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.convert import ConversionError, to_crelu, to_geometric
from relucid.convert.check import References
from relucid.convert.copies import Throwaway, copied
from relucid.convert.difference import difference
from relucid.convert.examples import alternatives
from relucid.convert.run import run


def checked(net: nn.Module, convert: Callable[[nn.Module], nn.Module], x: Tensor) -> None:
    References(Throwaway(net), [x]).check(convert(net), convert, None, training=True)


def apart(net: nn.Module, converted: nn.Module, x: Tensor) -> float:
    """How far outputs in training are apart in float32, on the smaller input that the check uses."""
    smaller = next(next(alternatives(x)))
    before, after = (run(copied(each), smaller, training=True) for each in (net, converted))
    return difference(before.outputs, after.outputs)[1]


class Shuffled(nn.Module):
    """A network that reads its inputs in another order, with the weights to match: equal up to rounding."""

    def __init__(self, net: nn.Sequential, change: float = 0.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.order = torch.randperm(net[0].in_channels, generator=generator)
        self.net = deepcopy(net)
        noise = 1 + change * torch.randn(net[0].weight.shape, generator=generator)
        self.net[0].weight = nn.Parameter((net[0].weight * noise)[:, self.order])
        self.eval()

    def forward(self, x):
        return self.net(x[:, self.order])


def deep(depth: int) -> nn.Sequential:
    """A plain network that amplifies rounding in training, the more the deeper it is."""
    torch.manual_seed(1)
    unit = (m for _ in range(depth) for m in (nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()))
    return nn.Sequential(*unit).eval()


def test_rounding_that_norms_amplify_in_training_is_distinguished_from_a_difference_by_float64():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(256, 4, 1, bias=False), nn.BatchNorm2d(4, eps=1e-16)).eval()
    x = 1 + 1e-6 * torch.randn(8, 256, 3, 3)  # outputs hardly vary, and the norm divides by their spread
    assert apart(net, Shuffled(net), x) > 0.01
    checked(net, Shuffled, x)
    with pytest.raises(ConversionError, match="in training"):
        checked(net, lambda copy: Shuffled(copy, change=3e-5), x)


@pytest.mark.parametrize("depth", [50, 60])
def test_a_deep_network_is_judged_by_its_conversion_in_float64(depth):
    net, x = deep(depth), torch.randn(8, 8, 4, 4)
    converted = to_geometric(net, x).model  # which is checked
    assert apart(net, converted, x) > 0.01
    for factor in 1.1, 1.001:
        with pytest.raises(ConversionError, match="in training on an input of 3x8x5x5"):
            checked(net, lambda copy, factor=factor: Off(Shuffled(copy), factor), x)


class Off(nn.Module):
    """A network whose outputs are off by a factor in training only."""

    def __init__(self, net: nn.Module, factor: float) -> None:
        super().__init__()
        self.net, self.factor = net, factor
        self.eval()

    def forward(self, x):
        return self.net(x) * (self.factor if self.training else 1)


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
        self.net, self.place = Shuffled(net), place
        self.eval()

    def forward(self, x):
        x = x[:, self.net.order]
        for place, layer in enumerate(self.net.net):
            x = layer(x)
            x = Slower.apply(x) if self.training and place == self.place else x
        return x


def test_a_gradient_that_is_a_little_off_in_a_deep_network_is_found():
    net, x = deep(40), torch.randn(8, 8, 4, 4)
    checked(net, Shuffled, x)
    with pytest.raises(ConversionError, match="in training on an input of 3x8x5x5"):
        checked(net, lambda copy: SlowerAt(copy, 60), x)


def test_gradients_are_compared_in_evaluation_if_the_network_cannot_be_trained():
    class Refuses(nn.Module):
        def __init__(self, net: nn.Module, detached: bool = False) -> None:
            super().__init__()
            self.net, self.detached = net, detached
            self.eval()

        def forward(self, x):
            if self.training:
                raise RuntimeError("for inference only")
            return self.net(x.detach() if self.detached else x)

    net, x = Refuses(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), torch.randn(8, 4)
    checked(net, copied, x)
    with pytest.raises(ConversionError, match="gradients of the converted network differ"):
        checked(net, lambda copy: Refuses(copied(copy).net, detached=True), x)


def test_a_copy_that_loses_the_hook_of_a_parameter_is_no_matter_of_rounding():
    net = deep(2)
    net[3].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(ConversionError, match="gradients of the converted network differ"):
        checked(net, copied, torch.randn(8, 8, 4, 4))


def test_where_rounding_changes_a_network_beyond_recognition_another_input_must_decide():
    with pytest.raises(ConversionError, match=r"changes Sequential beyond recognition .* a larger batch"):
        to_geometric(deep(120), torch.randn(8, 8, 4, 4))


def test_a_network_for_inference_without_gradients_is_compared_by_its_outputs():
    class Inference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
            self.eval()

        def forward(self, x):
            if self.training or torch.is_grad_enabled():
                raise RuntimeError("for inference only")
            return self.net(x)

    conversion = to_crelu(Inference(), torch.randn(8, 4))
    assert conversion.model.net[2].in_features == 12
    assert conversion.gradient_error == 0


class Does(nn.Module):
    """A network that is one function of its input and its mode."""

    def __init__(self, function: Callable[[Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, self.training)


DROPOUTS = {
    "torch, by keyword": lambda x, training: torch.dropout(x, 0.5, train=training),
    "torch, by position": lambda x, training: torch.dropout(x, 0.5, training),
    "torch, of features": lambda x, training: torch.feature_dropout(x, p=0.5, train=training),
    "by keyword": lambda x, training: F.dropout(x, training=training),
    "by position": lambda x, training: F.dropout(x, 0.5, training),
    "alpha, in place": lambda x, training: F.alpha_dropout(x, 0.5, training, True),
}


@pytest.mark.parametrize("dropout", DROPOUTS.values(), ids=DROPOUTS)
def test_a_dropout_halves_in_training_and_does_nothing_in_evaluation(dropout):
    x = torch.randn(2, 3, 4)
    trained, evaluated = (run(Does(dropout), x, training=mode).outputs[0] for mode in (True, False))
    assert torch.equal(trained, x / 2)
    assert torch.equal(evaluated, x)


def test_a_dropout_in_place_halves_what_it_is_given():
    def dropped(x: Tensor, training: bool) -> Tensor:
        y = x.relu()
        torch.dropout_(y, 0.5, train=training)
        return y

    x = torch.randn(2, 3)
    assert torch.equal(run(Does(dropped), x, training=True).outputs[0], x.relu() / 2)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_keeps_all_its_arguments_but_the_dropout(causal):
    def attention(x: Tensor, training: bool) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, None, 0.5 if training else 0.0, causal)

    x, net = torch.randn(1, 2, 5, 4), Does(attention)
    for training in (True, False):
        assert torch.equal(run(net, x, training=training).outputs[0], attention(x, False))


@pytest.mark.parametrize("other", [torch.nan, torch.inf, -torch.inf, 2.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_must_be_the_same(value, other):
    before, after = torch.tensor([1.0, value]), torch.tensor([1.0, other])
    same = torch.equal(before.nan_to_num(5.0, 6.0, 7.0), after.nan_to_num(5.0, 6.0, 7.0))
    assert difference([before], [after]) == ((0.0, 0.0) if same else (torch.inf, torch.inf))
