"""What holds for every conversion of every network."""

import copy
import gc
import warnings
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from relucid.convert import UnchangedWarning, fuse, to_crelu, to_geometric

from .networks import NETWORKS, example, trained_a_little

CONVERSIONS = {
    "crelu": to_crelu,
    "geometric": to_geometric,
    "plain": fuse,
}
every_network = pytest.mark.parametrize("network", NETWORKS)
every_conversion = pytest.mark.parametrize("conversion", CONVERSIONS)


def build(network, dtype=torch.float64):
    return trained_a_little(NETWORKS[network](), dtype), example(dtype)


@cache
def convert(network, conversion, dtype=torch.float64):
    """A network in training mode, a copy of it and of the example from before its conversion, the conversion."""
    model, x = build(network, dtype)
    before = copy.deepcopy((model.train(), x))
    return model, x, before, CONVERSIONS[conversion](model, x)


@every_network
@every_conversion
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_outputs_stay_the_same_on_other_data_and_another_batch_size(network, conversion, dtype, tolerance):
    model, _, _, found = convert(network, conversion, dtype)
    model, net = (copy.deepcopy(m).eval() for m in (model, found.model))
    other = torch.randn(7, 3, 8, 8, dtype=dtype)
    assert (net(other) - model(other)).abs().max() <= tolerance * model(other).abs().max()


@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "conversion",
    [
        *CONVERSIONS.values(),
        partial(to_crelu, mode="merge"),
        partial(to_crelu, inplace=True),
        partial(to_geometric, inplace=True),
    ],
)
def test_nothing_of_a_conversion_lives_on_when_it_is_let_go(conversion, dtype):
    def tensors():
        live = (x for x in gc.get_objects() if issubclass(type(x), torch.Tensor))
        return sorted(tuple(x.shape) for x in live if x.numel() > 100)

    gc.collect()
    gc.disable()
    try:
        before = tensors()
        body = [nn.Conv2d(3, 37, 3), nn.BatchNorm2d(37), nn.ReLU(), nn.Conv2d(37, 41, 3), nn.ReLU()]
        model = nn.Sequential(*body, nn.Flatten(), nn.Linear(41 * 16, 2)).to(dtype)
        conversion(model, torch.randn(2, 3, 8, 8, dtype=dtype))
        del body, model
        assert tensors() == before
    finally:
        gc.enable()


@every_network
@every_conversion
def test_the_original_is_left_as_it_was(network, conversion):
    model, x, (before, image), _ = convert(network, conversion)
    assert repr(model) == repr(before)
    assert all(m.training for m in model.modules())
    assert torch.equal(x, image)
    state = before.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@every_network
@every_conversion
def test_every_rectified_or_weighted_layer_is_accounted_for(network, conversion):
    model, _, _, found = convert(network, conversion)
    named = {change.name for change in found.changes}
    expected = nn.Linear | nn.modules.conv._ConvNd | nn.ReLU
    assert {name for name, m in model.named_modules() if isinstance(m, expected)} <= named
    assert all(change.reason and change.status in ("changed", "kept", "refused") for change in found.changes)


@every_network
@every_conversion
def test_training_goes_on(network, conversion):
    _, x, _, found = convert(network, conversion)
    net, y = copy.deepcopy(found.model), torch.randint(5, (len(x),))
    assert net.training
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in net.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@every_network
def test_weights_for_new_channels_are_zero_and_have_a_gradient(network):
    model, x = NETWORKS[network]().double(), example()
    converted = to_crelu(model, x).model
    converted(x).square().sum().backward()
    before = dict(model.named_parameters())
    grown = [p for name, p in converted.named_parameters() if p.dim() > 1 and p.shape != before[name].shape]
    assert grown
    for p in grown:
        assert p.grad[p == 0].count_nonzero() > 0
    assert sum(p.count_nonzero() for p in converted.parameters()) <= sum(
        p.numel() for p in model.parameters()
    )


@every_network
@pytest.mark.parametrize("conversion", [name for name in CONVERSIONS if name != "plain"])
def test_fusing_a_converted_network_gives_plain_layers_that_compute_the_same(network, conversion):
    model, x, _, found = convert(network, conversion)
    fused = fuse(found.model, x).model.eval()
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(x)
        assert torch.allclose(fused(x), expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
    ours = {type(m).__name__ for m in fused.modules() if type(m).__module__.startswith("relucid")}
    assert all(name == "CReLU" or name.startswith("BothSigns") for name in ours)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(3, 3) for _ in range(3))
        self.fc2.weight, self.bn = self.fc1.weight, nn.BatchNorm1d(3)

    def forward(self, x):
        return self.fc3(self.bn(self.fc2(self.fc1(x).relu())).relu())


@every_conversion
def test_tied_weights_stay_tied(conversion):
    model, x = trained_a_little(Tied()), torch.randn(4, 3, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # a tied weight has no geometric form of its own
        converted = CONVERSIONS[conversion](model, x).model
    assert converted.fc1.weight is converted.fc2.weight


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, partial(to_crelu, mode="merge")])
def test_layers_are_named_globbed_or_chosen_by_an_examination(conversion):
    layers = (nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    model, x = nn.Sequential(*layers), torch.randn(50, 3)
    model[0].bias.data.zero_()  # boundaries in the midst of the data
    model[2].weight.data[3:] = -model[2].weight.data[:3]  # opposite pairs
    model[2].bias.data[:] = torch.tensor([-90.0] * 3 + [90.0] * 3)  # dead, or never off

    def changed(layers):
        return {c.name for c in conversion(model, x, layers=layers).changes if c.status == "changed"} & {
            "1",
            "3",
        }

    assert changed(["2"]) == changed("[2]") == {"3"}
    if conversion is to_crelu:  # the only one that an examination suggests
        assert changed("auto") == {"3"}
    assert "3" in changed(None)
    with pytest.raises(ValueError, match="no layer that can be converted is named 'x'"):
        changed(["x"])


def test_a_relu_inside_a_geometric_layer_is_refused_with_what_to_do_instead():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double(), torch.randn(5, 3).double()
    geometric = to_geometric(model, x).model
    with pytest.warns(UnchangedWarning, match="inside 0: apply fuse first"):
        to_crelu(geometric, x)
    net = to_geometric(to_crelu(fuse(geometric, x).model, x).model, x).model
    assert torch.allclose(net(x), model(x))


class Tokens(nn.Module):
    """Linear layers over the last dimension of (N, T, C), and something between them."""

    def __init__(self, between):
        super().__init__()
        self.first, self.relu, self.second = nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 16)
        self.between, self.last = between, nn.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.second(self.relu(self.first(x))))
        return self.last(self.between(x))


@pytest.mark.parametrize(
    "between",
    [
        nn.AvgPool1d(3, 1, 1),
        nn.MaxPool1d(3, 1, 1),
        nn.AdaptiveAvgPool1d(16),
        nn.AvgPool2d((1, 3), 1, (0, 1)),
        nn.ReflectionPad1d((2, -2)),
        nn.Upsample(scale_factor=1.0, mode="linear"),
    ],
)
def test_what_pools_over_channels_stops_them_and_nothing_else(between):
    found = {change.name: change.status for change in to_crelu(Tokens(between), torch.randn(5, 7, 8)).changes}
    assert found["relu"] == "changed"
    assert [status for name, status in found.items() if "relu#" in name] == ["refused"]


@every_network
@every_conversion
def test_multiply_adds_are_those_that_run(network, conversion):
    model, x, _, found = convert(network, conversion)
    for net, known in zip((model, found.model), found.multiply_adds, strict=True):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            copy.deepcopy(net).eval()(x)
        assert counter.get_total_flops() == 2 * known * len(x)
