"""What the check of conversions compares, and on which scale."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relucid.convert import ConversionError, to_crelu, to_geometric
from relucid.convert.copies import aliased
from relucid.convert.difference import by_column, difference
from relucid.convert.tape import Tape, recorded
from relucid.convert.verify import beside, distance, judge


def deep(depth: int) -> nn.Sequential:
    """A plain network that amplifies rounding in training, the more the deeper it is."""
    torch.manual_seed(1)
    unit = (m for _ in range(depth) for m in (nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()))
    return nn.Sequential(*unit).eval()


def compared(net: nn.Module, other: nn.Module, x: Tensor, training: bool = True) -> Tape:
    """How far the layers of another network are from those of a network."""
    example = (x,), {}
    before = recorded(net, example, None, training=training, backward=training)
    return beside(other, example, before, training=training, backward=training)


def nudged(net: nn.Module, place: int, factor: float) -> nn.Module:
    other = copy.deepcopy(net)
    with torch.no_grad():
        other[place].weight[0].mul_(factor)
    return other


@pytest.mark.parametrize("depth", [2, 60])
def test_differences_do_not_grow_with_depth(depth):
    net, x = deep(depth), torch.randn(8, 8, 4, 4)
    converted = to_geometric(net, x)
    assert 0 < converted.layer_error < 3e-6
    assert converted.gradient_error < 1e-4


@pytest.mark.parametrize("place", [0, 30, 87])
def test_a_layer_that_is_a_little_off_is_named_and_no_other(place):
    net, x = deep(30), torch.randn(8, 8, 4, 4)
    found = compared(net, nudged(net, place, 1.001), x)
    assert [name for name, far in found.apart.items() if far > 3e-5] == [str(place)]
    with pytest.raises(ConversionError, match=f"{place} returns something else") as error:
        judge(found, 3e-5, "in training")
    assert list(error.value.layers) == [str(place)]


class Slower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 0.985 * grad


def test_a_gradient_that_is_a_little_off_in_a_deep_network_is_found():
    net, x = deep(40), torch.randn(8, 8, 4, 4)
    other = copy.deepcopy(net)
    other[62].forward = lambda y: Slower.apply(F.relu(y))
    found = compared(net, other, x)
    with pytest.raises(ConversionError, match="61 gets another gradient"):
        judge(found, 3e-5, "in training")


def test_all_layers_that_fail_are_named_by_one_run():
    net, x = deep(10), torch.randn(8, 8, 4, 4)
    other = copy.deepcopy(net)
    for place in 3, 12:
        other[place] = nn.Conv2d(4, 8, 1)
    assert list(compared(net, other, x, training=False).failures) == ["3", "12"]


def test_the_scale_of_a_value_is_that_of_its_channel():
    x = torch.randn(50, 3) * torch.tensor([1.0, 1e-3, 1e9])
    off = torch.zeros(50, 3)
    off[:, 1] = 1e-4
    assert distance(x, x + off, floor=torch.zeros(3)) > 0.05
    assert distance(x, x * torch.tensor([1.0, 1.0, 1 + 1e-7])) < 1e-6


@pytest.mark.parametrize("constant", [-1e9, 0.0])
def test_a_column_of_outputs_that_is_constant_sets_no_scale(constant):
    x = torch.randn(50, 3)
    x[:, 2] = constant
    y = x.clone()
    y[:, 0] *= 1.1
    assert 0.1 < by_column([x], [y]) < 0.5


class Refuses(nn.Module):
    """For inference only."""

    def __init__(self, net: nn.Module, detached: bool = False) -> None:
        super().__init__()
        self.net, self.detached = net, detached
        self.eval()

    def forward(self, x):
        if self.training:
            raise RuntimeError("for inference only")
        return self.net(x.detach() if self.detached else x)


def test_what_cannot_be_compared_is_said():
    net, x = Refuses(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))), torch.randn(8, 4)
    conversion = to_crelu(net, x)
    (what,) = conversion.unchecked
    assert "for inference only" in what
    assert what in conversion.summary()
    assert conversion.gradient_error >= 0


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


def test_a_network_that_writes_to_its_weights_is_refused_and_stays_as_it_was():
    class Moving(nn.Sequential):
        def forward(self, x):
            self[0].weight.data.mul_(0.9)
            return super().forward(x)

    net = Moving(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    before = net[0].weight.detach().clone()
    with pytest.raises(ConversionError, match=r"writes to 0\.weight in forward"):
        to_crelu(net, torch.randn(8, 4))
    assert torch.equal(net[0].weight, before)


def test_a_function_that_refers_to_the_original_is_named():
    class Closed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = self.inner = nn.Linear(4, 6)
            self.last = nn.Linear(6, 2)
            self.hidden = lambda x: inner(x).relu()

        def forward(self, x):
            return self.last(self.hidden(x))

    with pytest.raises(ConversionError, match="hidden of the network is a function that refers"):
        to_crelu(Closed(), torch.randn(8, 4))


def test_a_value_that_the_network_keeps_counts_as_returned():
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            self.features = self.b(self.a(x).relu()).relu()
            return self.c(self.features)

    statuses = {c.name: c.status for c in to_crelu(Keeping(), torch.randn(8, 4)).changes}
    assert (statuses["relu"], statuses["relu#2"]) == ("changed", "refused")


class Does(nn.Module):
    """A network that is one function of its input and its mode."""

    def __init__(self, function: Callable[[Tensor, bool], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, self.training)


def run(net: nn.Module, x: Tensor, training: bool) -> Tensor:
    tape = recorded(net, ((x,), {}), None, training=training, backward=False)
    return tape.outputs[0]


DROPOUTS = {
    "torch, by keyword": lambda x, training: torch.dropout(x, 0.5, train=training),
    "torch, by position": lambda x, training: torch.dropout(x, 0.5, training),
    "torch, of features": lambda x, training: torch.feature_dropout(x, p=0.5, train=training),
    "by keyword": lambda x, training: F.dropout(x, training=training),
    "by position": lambda x, training: F.dropout(x, 0.5, training),
    "alpha, in place": lambda x, training: F.alpha_dropout(1 * x, 0.5, training, True),
}


@pytest.mark.parametrize("dropout", DROPOUTS.values(), ids=DROPOUTS)
def test_a_dropout_halves_in_training_and_does_nothing_in_evaluation(dropout):
    x = torch.randn(2, 3, 4)
    assert torch.equal(run(Does(dropout), x, training=True), x / 2)
    assert torch.equal(run(Does(lambda x, training: 1 * dropout(x, training)), x, training=False), x)


def test_a_dropout_in_place_halves_what_it_is_given():
    def dropped(x: Tensor, training: bool) -> Tensor:
        y = x.relu()
        torch.dropout_(y, 0.5, train=training)
        return y

    x = torch.randn(2, 3)
    assert torch.equal(run(Does(dropped), x, training=True), x.relu() / 2)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_keeps_all_its_arguments_but_the_dropout(causal):
    def attention(x: Tensor, training: bool) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, None, 0.5 if training else 0.0, causal)

    x, net = torch.randn(1, 2, 5, 4), Does(attention)
    for training in (True, False):
        assert torch.equal(run(net, x, training=training), attention(x, False))


@pytest.mark.parametrize("other", [torch.nan, torch.inf, -torch.inf, 2.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_must_be_the_same(value, other):
    before, after = torch.tensor([1.0, value]), torch.tensor([1.0, other])
    same = torch.equal(before.nan_to_num(5.0, 6.0, 7.0), after.nan_to_num(5.0, 6.0, 7.0))
    assert difference([before], [after]) == ((0.0, 0.0) if same else (torch.inf, torch.inf))
    assert distance(before, after) == (0.0 if same else torch.inf)


def test_copies_share_memory_until_something_changes_them():
    net = deep(2)
    twin = aliased(net)
    assert all(p.data_ptr() == q.data_ptr() for p, q in zip(net.parameters(), twin.parameters(), strict=True))
    twin[0].weight.data = torch.zeros(1)
    twin[1].running_mean.add_(1)
    assert net[0].weight.shape == (8, 8, 1, 1)
    assert net[1].running_mean.abs().max() == 0
