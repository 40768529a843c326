import pytest
import torch
from torch import nn

from relucid.models import Design, LayerOptions, create


def test_a_choice_wins_over_the_design_which_wins_over_the_name():
    design = Design(activation="avr", weights="geometric")
    net = create("gmp/vgg6-gmp-imn", design, activation="crelu", num_classes=10, width=0.1)
    assert net.design == Design("crelu", "geometric", "input_mean", "plain")


def test_a_choice_holds_in_layers_that_a_variant_changes():
    without = create("crelu/vgg16-conv1", num_classes=10, width=0.1)
    assert not hasattr(without, "bn1")
    assert isinstance(
        create("crelu/vgg16-conv1", norm="batch", num_classes=10, width=0.1).bn1, nn.BatchNorm2d
    )


def test_layers_can_be_changed_one_by_one():
    layers = {"conv2": LayerOptions(Design("crelu", "geometric"), filters=0.5, dropout=0.1)}
    net = create("vgg6", layers=layers, num_classes=10, width=0.25)
    assert net.conv2.weight_shape == (16, 32, 3, 3)
    assert net.dropout2.p == 0.1
    assert net.conv3.in_channels == 32
    assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_width_scales_all_filters_but_not_the_outputs():
    whole, half = (create("vgg6", num_classes=10, width=width) for width in (0.5, 0.25))
    for number in range(1, 7):
        assert getattr(whole, f"conv{number}").out_channels == 2 * getattr(half, f"conv{number}").out_channels
    assert half.fc7.out_features == 10
    assert create("vgg6", num_classes=10, width=1e-9).conv6.out_channels == 1


def test_glorots_initialisation_reaches_all_units():
    for layer in create("gmp/vgg6-sp", init="glorot", num_classes=10, width=0.25).children():
        if isinstance(layer, nn.Conv2d):
            fans = 9 * (layer.in_channels + layer.out_channels)
            assert layer.weight.var().item() == pytest.approx(2 / fans, rel=0.15)


def test_a_network_can_be_cut():
    net = create("vgg6", num_classes=10, width=0.1)
    assert net[:3](torch.zeros(1, 3, 8, 8)).shape == (1, 13, 8, 8)


def test_a_network_describes_itself():
    assert repr(create("mlp", in_channels=2, num_classes=1)).startswith(
        "Network(\n  mlp: relu, standard weights, norm none, plain\n"
    )


def test_gray_images_are_welcome():
    assert create("resnet8", in_channels=1, num_classes=10, width=0.25).input_shape == (1, 32, 32)


@pytest.mark.parametrize(
    "name, keys",
    [
        ("gmp/mlp1-gmp", ["fc1.latitudes", "fc1.offset", "fc1.scale", "output.bias", "output.weight"]),
        (
            "gmp/mlp1-wn",
            [
                *(
                    "fc1.bias",
                    "fc1.parametrizations.weight.original0",
                    "fc1.parametrizations.weight.original1",
                ),
                *("output.bias", "output.parametrizations.weight.original0"),
                "output.parametrizations.weight.original1",
            ],
        ),
        ("structure/fc-admm", [f"stage.0.{path}.fc1.{p}" for path in (0, 1) for p in ("bias", "weight")]),
        ("structure/fc-hb", ["stage.0.fc1.bias", "stage.0.fc1.weight"]),
    ],
)
def test_weights_have_readable_names(name, keys):
    choices = {"depth": 1} if "fc-" in name else {"in_channels": 3}
    assert sorted(create(name, num_classes=2, **choices).state_dict()) == keys


@pytest.mark.parametrize(
    "name, block, others",
    [
        ("structure/densenet40", "conv1", ["conv1.weight"]),
        ("structure/agdnet40", "conv1", ["conv1.alpha", "conv1.conv.weight"]),
        ("structure/agdnet121", "conv2", ["conv2.alpha", "conv2.conv.weight"]),
    ],
)
def test_weights_of_dense_blocks_have_readable_names(name, block, others):
    net = create(name, num_classes=2, width=0.1)
    layer = net.denseblock2[1].state_dict()
    assert [key for key in layer if key.startswith(block)] == others
    assert [key for key in layer if key.startswith("norm1")][:2] == ["norm1.weight", "norm1.bias"]
    assert {"transition1.norm.weight", "transition1.conv.weight", "classifier.bias"} <= set(net.state_dict())
