"""What a conversion refuses before it starts, and what it reports."""

import copy
import inspect
import random
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.nn import GeometricLinear

DOCS = Path(__file__).parents[2] / "docs"
CONVERSIONS = [to_crelu, to_geometric, to_heavy_ball, fuse]
every_conversion = pytest.mark.parametrize("conversion", CONVERSIONS)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def reasons(conversion):
    return {change.name: change.reason for change in conversion.changes}


@every_conversion
def test_a_misspelt_argument_is_an_error_of_the_call_and_not_of_the_network(conversion):
    name = conversion.__name__
    with pytest.raises(TypeError, match=rf"{name}\(\) got .* 'layer'; its arguments are model, example"):
        conversion(network(), torch.randn(2, 4), layer=["0"])
    with pytest.raises(TypeError, match=rf"{name}\(\) missing .* 'example'"):
        conversion(network())


@pytest.mark.parametrize("page", ["conversions.md", "tutorials/improve.md"])
def test_the_pages_name_the_conversions_that_take_layers(page):
    (text,) = re.findall(r"^`layers=.*?(?=\n\n)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    taking = {f.__name__ for f in CONVERSIONS if "layers" in inspect.signature(f).parameters}
    assert set(re.findall(r"`(to_\w+|fuse)`", text.split(";")[0])) == taking


@every_conversion
def test_a_compiled_network_is_to_be_converted_before_it_is_compiled(conversion):
    model, x = network(), torch.randn(2, 4)
    with pytest.raises(ConversionError, match=r"OptimizedModule is compiled; .* before .*`_orig_mod`"):
        conversion(torch.compile(model, backend="eager"), x)
    model[2] = torch.compile(model[2], backend="eager")
    with pytest.raises(ConversionError, match=r"Sequential's module 2 is compiled; convert .* before"):
        conversion(model, x)


def test_a_network_compiled_in_place_is_not_touched_by_its_conversion():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model.compile(backend=lambda *_: pytest.fail("the original was run"))
    assert to_crelu(model, torch.randn(3, 4)).multiply_adds == (3 * 48, 3 * 64)
    assert model[1].num_batches_tracked == 0


@every_conversion
@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.Conv1d(4, 4, 1), GeometricLinear(4, 4)])
def test_a_single_layer_is_no_network(conversion, layer):
    name = type(layer).__name__
    with pytest.raises(ConversionError, match=f"{name} is a single layer, .*; put it into nn.Sequential"):
        conversion(layer, torch.randn(2, 4, 4))


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_a_network_that_is_derived_from_a_layer_is_reported_by_its_calls(conversion):
    class Rectified(nn.Linear):
        def forward(self, x):
            return super().forward(x.relu())

    found = conversion(Rectified(4, 3), torch.randn(2, 4))
    assert sorted(reasons(found)) == ["linear", "relu"]
    assert found.multiply_adds == (24, 24)


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_a_layer_with_hooks_is_kept_because_of_them(conversion):
    model = network()
    model[0].register_forward_hook(lambda module, args, y: y)
    assert reasons(conversion(model, torch.randn(2, 4)))["0"] == "it has hooks, so it is called as it is"


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(F.layer_norm(self.drop(self.fc1(x).relu()), (8,)))


@pytest.mark.parametrize(
    "model, relu, norm",
    [
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)), "1", "LayerNorm"),
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.GroupNorm(2, 8), nn.Linear(8, 2)), "1", "GroupNorm"),
        (Functional(), "relu", "layer_norm"),
    ],
)
def test_a_norm_that_mixes_channels_is_named(model, relu, norm):
    said = reasons(to_crelu(model, torch.randn(2, 4)))[relu]
    assert said.endswith(f"through batch norms and pooling at most; {norm}, which reads it, mixes channels")


def test_only_what_stands_in_the_way_is_named():
    said = reasons(to_crelu(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LogSoftmax(1)), torch.randn(2, 4)))
    assert said["1"].endswith("through batch norms and pooling at most")


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.fc1, self.layer, self.fc2, self.fc3 = nn.Linear(4, 8), layer, nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        y = self.layer(self.fc1(x).relu())
        return self.fc3(self.fc2(y if isinstance(y, torch.Tensor) else y[0]).relu())


RECURRENT = {
    "RNN": (nn.RNN(8, 6), 6 * (8 + 6)),
    "LSTM": (nn.LSTM(8, 6), 24 * (8 + 6)),
    "GRU": (nn.GRU(8, 6), 18 * (8 + 6)),
    "GRU of two layers, both ways": (nn.GRU(8, 3, 2, bidirectional=True), 2 * 9 * (8 + 3) + 2 * 9 * (6 + 3)),
}


@pytest.mark.parametrize("layer, products", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize("conversion", [to_crelu, fuse])
def test_recurrent_layers_are_left_alone_said_so_and_counted(conversion, layer, products):
    found = conversion(Recurrent(layer), torch.randn(5, 2, 4))
    assert reasons(found)["layer"] == "recurrent layers are not converted"
    assert found.multiply_adds[0] == 5 * 2 * (4 * 8 + products + 6 * 8 + 8 * 2)
    assert found.multiply_adds[1] - found.multiply_adds[0] == (5 * 2 * 8 * 2 if conversion is to_crelu else 0)


def test_the_relu_before_a_recurrent_layer_is_refused_because_of_it():
    said = reasons(to_crelu(Recurrent(nn.GRU(8, 6)), torch.randn(5, 2, 4)))
    assert said["relu"].endswith("; GRU reads it, and recurrent layers are not converted")


@every_conversion
@pytest.mark.parametrize("layer", [nn.LSTM(4, 4), nn.GRUCell(4, 4)])
def test_a_recurrent_layer_by_itself_is_refused_as_one(conversion, layer):
    with pytest.raises(ConversionError, match="recurrent layers are not converted"):
        conversion(layer, torch.randn(2, 4))


def test_attention_is_left_alone_said_so_and_counted():
    model, x = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.randn(2, 5, 4)
    found = to_crelu(model, x)
    assert reasons(found)["self_attn"] == "attention is not converted"
    assert found.multiply_adds[0] == 10 * (4 * 4 * 4 + 2 * 4 * 8)


@every_conversion
@pytest.mark.parametrize(
    "example, reason",
    [
        (torch.full((2, 4), torch.nan), "the example holds NaN or infinity"),
        (torch.tensor([[0.0, 1.0, torch.inf, 2.0]]), "the example holds NaN or infinity"),
        ({"input": torch.full((2, 4), torch.nan)}, "the example holds NaN or infinity"),
        (torch.randn(0, 4), "the example has no elements"),
    ],
)
def test_an_example_on_which_all_networks_are_the_same_is_refused(conversion, example, reason):
    with pytest.raises(ValueError, match=f"^{reason}; give"):
        conversion(network(), example)


def test_masks_may_be_of_negative_infinity():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x, mask):
            return (self.fc2(self.fc1(x).relu()) + mask).softmax(-1)

    found = to_crelu(Masked(), (torch.randn(2, 4), torch.tensor([[0.0, 0.0], [0.0, -torch.inf]])))
    assert reasons(found)["relu"] == "CReLU: 8 channels become 16"


@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_a_network_without_finite_outputs_is_refused(conversion):
    model = network()
    nn.init.constant_(model[2].bias, torch.nan)
    with pytest.raises(ConversionError, match=r"Sequential has no finite output in evaluation on .* of 2x4"):
        conversion(model, torch.randn(2, 4))


def test_a_network_without_finite_outputs_in_training_is_refused():
    class Lost(nn.Module):
        def forward(self, x):
            return x * torch.nan if self.training else x

    model = nn.Sequential(*network(), Lost())
    with pytest.raises(ConversionError, match="Sequential has no finite output in training on"):
        to_crelu(model, torch.randn(2, 4))
    assert fuse(model, torch.randn(2, 4)).relative_error == 0  # which promises evaluation only


def test_training_is_compared_on_an_example_with_finite_outputs():
    class Spread(nn.Module):
        def forward(self, x):
            return x / x[2:].sum().abs().sqrt() if self.training else x  # infinite for two inputs

    assert to_crelu(nn.Sequential(*network(), Spread()), torch.randn(6, 4)).gradient_error < 1e-5


class Moving(nn.Module):
    """Keeps a moving average of what it computes, and may subtract it."""

    def __init__(self, subtract: bool) -> None:
        super().__init__()
        self.first, self.last, self.subtract = nn.Linear(6, 6), nn.Linear(6, 6), subtract
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        h = F.relu(self.first(x))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(h.mean(0) * 0.1)
        return self.last(h - self.mean if self.subtract else h)


@pytest.mark.parametrize("subtract", [False, True])
def test_a_buffer_that_is_changed_without_gradients_stays_out_of_every_graph(subtract):
    net, x = Moving(subtract), torch.randn(5, 6)
    converted = to_crelu(net, x).model
    for _ in range(3):
        for each in (net, converted):
            each(x).sum().backward()
    assert not converted.mean.requires_grad
    torch.testing.assert_close(converted.mean, net.mean)
    torch.testing.assert_close(converted.first.weight.grad[:6], net.first.weight.grad)
    copy.deepcopy(converted)


class Frozen(nn.Sequential):
    """Its norm never leaves evaluation."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def test_a_train_method_of_its_own_is_kept_or_refused():
    inner, x = Frozen(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.randn(4, 3, 8, 8)
    inner[1].running_mean.normal_()
    with pytest.raises(ConversionError, match="Frozen has a train method of its own"):
        to_crelu(inner, x)
    net = nn.Sequential(inner, nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    converted = to_geometric(net, x).model
    for each in (net, converted):
        each.eval()
        each.train()
    torch.testing.assert_close(converted(x), net(x), rtol=1e-4, atol=1e-5)


class Skipping(nn.Module):
    """Skips a layer at random in training."""

    def __init__(self, draw) -> None:
        super().__init__()
        self.draw, self.first, self.last = draw, nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = F.relu(self.first(x))
        return x if self.training and self.draw() < 0.3 else x + F.relu(self.last(x))


@pytest.mark.parametrize(
    "draw", [lambda: random.random(), lambda: np.random.rand()]
)  # not copied with the network
@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_in_python_is_kept_or_refused(draw, seed):
    random.seed(seed)
    np.random.seed(seed)
    x = torch.randn(5, 6)
    with pytest.raises(ConversionError, match="draws random numbers in Python"):
        to_crelu(Skipping(draw), x)
    net = nn.Sequential(Skipping(draw), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    converted = to_crelu(net, x).model
    assert len({float(converted(x).sum().detach()) for _ in range(50)}) == 2


def test_other_threads_make_tensors_while_a_network_is_traced():
    made, done = [], threading.Event()

    def make():
        while not done.is_set():
            made.append(type(torch.randn(3)))

    thread = threading.Thread(target=make)
    thread.start()
    try:
        net = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(6, 6), nn.ReLU())), nn.Linear(6, 2))
        to_crelu(net, torch.randn(4, 6))
    finally:
        done.set()
        thread.join()
    assert set(made) == {torch.Tensor}


def test_a_network_converted_in_inference_mode_can_be_trained():
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.inference_mode():
        x = torch.randn(5, 6)
        converted = [each(net, x).model for each in (to_crelu, to_geometric, fuse)]
    for each in converted:
        each(torch.randn(5, 6)).sum().backward()
