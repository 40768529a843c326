"""What single units are made of, design by design."""

import math

import pytest
import torch
from torch import nn

from relucid.models import Builder, Design
from relucid.models._unit import weights_of
from relucid.nn import AVR, CReLU, GeometricConv2d, GeometricLinear, MeanNorm


def builder_of(*choices, channels=4, centered=True):
    return Builder(Design(*choices, "plain"), channels, centered=centered)


def conv(*choices, **arguments):
    builder = builder_of(*choices)
    builder.conv(1, 6, 3, padding=1, **arguments)
    return builder


def kinds(builder):
    return {name: type(layer).__name__.removeprefix("Parametrized") for name, layer in builder.layers.items()}


def parameters(builder):
    return sorted(name for name, _ in builder.sequential().named_parameters())


WN = [f"conv1.parametrizations.weight.original{i}" for i in (0, 1)]


@pytest.mark.parametrize(
    "weights, norm, layers, names",
    [
        ("standard", "none", ["conv1", "act1"], ["conv1.bias", "conv1.weight"]),
        ("standard", "batch", ["conv1", "bn1", "act1"], ["bn1.bias", "bn1.weight", "conv1.weight"]),
        ("standard", "mean", ["conv1", "mbn1", "act1"], ["conv1.weight", "mbn1.bias"]),
        ("standard", "input_mean", ["imn1", "conv1", "act1"], ["conv1.bias", "conv1.weight"]),
        ("weightnorm", "none", ["conv1", "act1"], ["conv1.bias", *WN]),
        ("weightnorm", "mean", ["conv1", "mbn1", "act1"], [*WN, "mbn1.bias"]),
        ("weightnorm", "input_mean", ["imn1", "conv1", "act1"], ["conv1.bias", *WN]),
        ("standard", "activation_mean", ["conv1", "act1", "imn1"], ["conv1.bias", "conv1.weight"]),
        ("geometric", "none", ["conv1"], ["conv1.latitudes", "conv1.offset", "conv1.scale"]),
        ("geometric", "batch", ["conv1", "bn1", "act1"], ["bn1.bias", "bn1.weight", "conv1.latitudes"]),
        ("geometric", "mean", ["conv1", "mbn1", "act1"], ["conv1.latitudes", "conv1.scale", "mbn1.bias"]),
        ("geometric", "input_mean", ["imn1", "conv1"], ["conv1.latitudes", "conv1.offset", "conv1.scale"]),
    ],
)
def test_a_unit_is_weights_then_norm_then_activation_without_what_the_norm_cancels(
    weights, norm, layers, names
):
    builder = conv("relu", weights, norm)
    assert list(builder.layers) == layers
    assert parameters(builder) == names


def test_the_activation_is_inside_a_geometric_layer_unless_a_norm_is_between_or_an_addition_follows():
    assert isinstance(conv("avr", "geometric", "none").layers["conv1"].activation, AVR)
    assert conv("avr", "geometric", "batch").layers["conv1"].activation is None
    bare = conv("avr", "geometric", "none", end=None)
    assert kinds(bare) == {"conv1": "GeometricConv2d"}
    assert bare.layers["conv1"].activation is None


def test_what_is_added_has_no_activation_to_center():
    assert list(conv("relu", "standard", "activation_mean", end=None).layers) == ["conv1"]


def test_crelu_can_have_leaky_relu_inside():
    leaky = conv("leaky_crelu", "standard", "none")
    assert leaky.channels == 12
    x = torch.tensor([-2.0, 3.0]).view(1, 2, 1, 1)
    assert torch.equal(leaky.layers["act1"](x).flatten(), torch.tensor([-0.02, 3.0, 2.0, -0.03]))
    alone = conv("leaky_crelu", "standard", "none", end="one_phase")
    assert (type(alone.layers["act1"]), alone.channels) == (nn.LeakyReLU, 6)


@pytest.mark.parametrize("weights", ["standard", "geometric"])
@pytest.mark.parametrize(
    "end, filters, passed_on", [("activation", 7, 14), ("one_phase", 7, 7), ("same_channels", 4, 7)]
)
def test_crelu_doubles_or_becomes_relu_or_stands_on_half_the_filters(weights, end, filters, passed_on):
    builder = builder_of("crelu", weights, "none")
    builder.conv(1, 7, 3, padding=1, end=end)
    assert builder.layers["conv1"].out_channels == filters
    assert builder.channels == passed_on
    assert builder.sequential()(torch.randn(2, 4, 5, 5)).shape == (2, passed_on, 5, 5)


def test_the_next_unit_takes_what_crelu_hands_on_and_norms_have_the_right_size():
    builder = builder_of("crelu", "standard", "input_mean", centered=False)
    builder.conv(1, 6, 3)
    builder.conv(2, 6, 3)
    assert kinds(builder) == {
        "conv1": "Conv2d",
        "act1": "CReLU",
        "imn2": "MeanNorm",
        "conv2": "Conv2d",
        "act2": "CReLU",
    }
    assert (builder.layers["imn2"].num_features, builder.layers["conv2"].in_channels) == (12, 12)


def test_input_means_leave_the_first_layer_and_skips_alone():
    assert "imn1" in conv("relu", "geometric", "input_mean").layers
    first = builder_of("relu", "geometric", "input_mean", centered=False)
    first.conv(1, 6, 3)
    assert list(first.layers) == ["conv1"]
    assert "imn1" not in _skip(first).layers


def _skip(builder):
    skip = builder.branch(centered=False)
    skip.conv(1, 6, 1)
    return skip


@pytest.mark.parametrize("norm", ["none", "batch", "mean", "input_mean"])
def test_an_offset_that_input_means_cancel_is_not_created(norm):
    builder = conv("relu", "standard", norm, end=None, shift=False)
    assert (builder.layers["conv1"].bias is not None) == (norm == "none")


def test_the_output_layer_is_never_geometric_but_weight_normalized():
    kinds_of = {}
    for weights in ("standard", "weightnorm", "geometric"):
        builder = builder_of("relu", weights, "none")
        builder.output("fc", 10)
        kinds_of[weights] = [name for name, _ in builder.layers["fc"].named_parameters()]
    assert kinds_of["standard"] == kinds_of["geometric"] == ["weight", "bias"]
    assert len(kinds_of["weightnorm"]) == 3


@pytest.mark.parametrize("norm", ["none", "batch", "mean", "input_mean"])
@pytest.mark.parametrize("added", [False, True])
def test_a_convolution_before_others_norms_has_what_they_leave(norm, added):
    builder = builder_of("relu", "geometric", norm)
    builder.norm_and_activation("1")
    builder.bare_conv("1", 6, 3, added=added)
    order = {"none": [], "batch": ["norm1"], "mean": ["norm1"], "input_mean": []}[norm] + ["act1"]
    order += ["norm1"] if norm == "input_mean" else []
    assert list(builder.layers) == [*order, "conv1"]
    layer = builder.layers["conv1"]
    assert (layer.offset is None) == (norm in ("batch", "mean"))
    assert (layer.scale is None) == (norm == "batch" and not added)


@pytest.mark.parametrize(
    "activation, mean_square", [("relu", 2.0), ("crelu", 2.0), ("avr", 1.0)], ids=["relu", "crelu", "avr"]
)
def test_hes_weights_keep_the_mean_square_of_what_the_activation_hands_on(activation, mean_square):
    layer = weights_of(Design(activation, "standard"), "conv", (64, 256, 3))
    assert layer.weight.square().sum().item() / 256 == pytest.approx(mean_square, rel=0.02)
    assert not layer.bias.any()


@pytest.mark.parametrize("width", [8, 512])
def test_geometric_scales_are_one_at_any_width_and_glorots_on_request(width):
    design = Design("relu", "geometric")
    assert torch.equal(weights_of(design, "fc", (width, 64)).scale, torch.ones(64))
    lengths = weights_of(design, "fc", (width, 64), init="glorot").scale
    assert lengths.square().mean().item() == pytest.approx(2 * width / (width + 64), rel=0.2)


@pytest.mark.parametrize("weights, fan_out", [("standard", 9 * 40), ("weightnorm", 40), ("geometric", 40)])
def test_uniform_weights_are_the_gmp_authors_whose_fan_out_leaves_out_the_kernel_but_for_standard_ones(
    weights, fan_out
):
    weight = weights_of(Design("relu", weights), "conv", (30, 40, 3), init="glorot_uniform").weight
    bound = math.sqrt(6 / (9 * 30 + fan_out))
    assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert weight.abs().max() <= bound * (1 + 1e-6)
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


def test_the_output_has_glorots_uniform_weights_and_no_bias_at_first():
    builder = builder_of("relu", "standard", "none", channels=300)
    builder.output("fc", 60)
    bound = math.sqrt(6 / 360)
    weight = builder.layers["fc"].weight
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert not builder.layers["fc"].bias.any()


def test_sigmoid_networks_have_glorots_weights():
    weight = weights_of(Design("sigmoid", "standard"), "fc", (300, 100)).weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.03)


def test_units_are_the_layers_of_relucid_nn():
    builder = builder_of("crelu", "geometric", "mean")
    builder.linear(1, 5)
    assert [type(layer) for layer in builder.layers.values()] == [GeometricLinear, MeanNorm, CReLU]
    assert isinstance(conv("relu", "geometric", "none").layers["conv1"], GeometricConv2d)
    assert isinstance(conv("relu", "standard", "batch").layers["bn1"], nn.BatchNorm2d)
