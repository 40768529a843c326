import pytest
import torch
from torch import nn

from relucid.models import create
from relucid.nn import HeavyBall, LatestNesterov2, Propagation


@pytest.mark.parametrize(
    "algorithm, rule",
    [
        ("gd", "plain"),
        ("hb", HeavyBall(0.3)),
        ("agd", "nesterov"),
        ("agd2", "nesterov2"),
        ("agd2-latest", LatestNesterov2()),
    ],
)
def test_the_networks_of_section_5_3_iterate_their_algorithm(algorithm, rule):
    net = create(f"structure/fc-{algorithm}", num_classes=6, depth=7).double()
    layers = [nn.Sequential(net.get_submodule(f"stage.{k}.fc1"), nn.Sigmoid()) for k in range(7)]
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(net(x), Propagation(layers, rule)(x), rtol=1e-12, atol=1e-12)


def test_an_mlp_has_the_layers_of_its_arguments():
    net = create("mlp", in_channels=3, hidden=(5, 4), num_classes=2)
    by_hand = nn.Sequential(net.fc1, nn.ReLU(), net.fc2, nn.ReLU(), net.output)
    x = torch.randn(6, 3)
    assert torch.equal(net(x), by_hand(x))
    assert [net.fc1.out_features, net.fc2.in_features, net.fc2.out_features] == [5, 5, 4]


def test_crelu_doubles_between_the_layers_of_an_mlp_but_not_the_state_of_a_rule():
    plain = create("mlp", activation="crelu", in_channels=3, hidden=(5, 4), num_classes=2)
    assert [plain.fc2.in_features, plain.output.in_features] == [10, 8]
    joined = create(
        "mlp", activation="crelu", propagation="residual", in_channels=3, hidden=(5, 5), num_classes=2
    )
    unit = joined.stage.get_submodule("0").fc1
    assert (unit.in_features, unit.out_features) == (5, 3)  # two filters with both phases, one alone
    assert joined(torch.zeros(1, 3)).shape == (1, 2)


def test_input_means_are_before_all_layers_of_a_stage_but_its_first_sees_the_input():
    net = create("feedforward", norm="input_mean", num_classes=4, depth=3)
    assert [list(dict(T.named_children())) for T in net.stage.transforms] == [
        ["fc1", "act1"],
        ["imn1", "fc1", "act1"],
        ["imn1", "fc1", "act1"],
    ]
