import pytest
import torch
from torch import nn

from relucid.models import create
from relucid.nn.rules import momentum, nesterov_weights


def layer(net, k, x):
    stage = net.stage.get_submodule(str(k))
    return torch.sigmoid(stage.fc1(x))


def gd(T, x, depth):
    for k in range(depth):
        x = T(k, x)
    return x


def hb(T, x, depth, beta=0.3):
    before = x
    for k in range(depth):
        x, before = T(k, x) + beta * (x - before), x
    return x


def agd(T, x, depth):
    before, betas = x, [0.0, *momentum(depth).tolist()]
    for k in range(depth):
        x, before = T(k, x + betas[k] * (x - before)), x
    return x


def agd2(T, x, depth):
    z, betas = x, momentum(depth).tolist()
    for k in range(depth):
        new = T(k, x)
        x, z = new + betas[k] * (new - z), new
    return x


def agd2_latest(T, x, depth):
    h, xs = nesterov_weights(depth).tolist(), [x]
    for k in range(depth):
        xs.append(xs[k] + sum(h[k][j] * (T(k, xs[j]) - xs[j]) for j in range(k + 1)))
    return xs[-1]


@pytest.mark.parametrize("algorithm", [gd, hb, agd, agd2, agd2_latest])
def test_the_networks_of_section_5_3_iterate_their_algorithm(algorithm):
    name = algorithm.__name__.replace("_", "-")
    net = create(f"structure/fc-{name}", num_classes=6, depth=7).double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = algorithm(lambda k, x: layer(net, k, x), x, 7)
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)


def test_agd2_with_kept_layers_is_agd_with_an_extrapolated_output():
    kept = create("structure/fc-agd2", num_classes=6, depth=7).double()
    x = torch.randn(3, 6, dtype=torch.float64)
    outputs = []
    for depth in (6, 7):
        shorter = create("structure/fc-agd", num_classes=6, depth=depth).double()
        shorter.load_state_dict(kept.state_dict(), strict=False)
        outputs.append(shorter(x))
    before, last = outputs
    beta = momentum(7)[-1]
    torch.testing.assert_close(kept(x), last + beta * (last - before), rtol=1e-12, atol=1e-12)


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
