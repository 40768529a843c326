import pytest
import torch
from tests.convert.networks import trained_a_little
from tests.convert.test_merge import example, plant, planted
from torch import nn

from relucid_reproductions.ours._refit import refit_merged
from relucid_reproductions.ours.merge import without_pairs


def refitted(model, example, data, limit=None):
    """The network with merged pairs, and the same fitted to what it computed before."""
    plain, fitted = (without_pairs(model, example, None, tolerance=torch.inf, limit=limit) for _ in range(2))
    refit_merged(model, fitted, data)
    return plain.model, fitted.model


def test_refitting_on_data_brings_outputs_nearer():
    model = planted(noise=0.1)
    data = [torch.randn(64, 3, 8, 8, dtype=torch.float64) for _ in range(4)]
    plain, fitted = refitted(model, example(), data)
    x = torch.randn(256, 3, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        errors = [float((net(x) - model(x)).square().mean()) for net in (plain, fitted)]
    assert errors[1] < errors[0]


def test_a_refitted_layer_is_the_least_squares_solution():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    plant(model[0], [(0, 5), (2, 3)], noise=0.3)
    x = torch.randn(500, 6, dtype=torch.float64)
    _, net = refitted(model, x, [x[:300], x[300:]])
    with torch.no_grad():
        rows = net.get_submodule("1")(net.get_submodule("0")(x))
        rows = torch.cat((rows, torch.ones(500, 1, dtype=torch.float64)), 1)
        expected = torch.linalg.lstsq(rows, model(x)).solution
    fitted = net.get_submodule("2")
    assert fitted.in_features == 8
    assert net.get_submodule("0").out_features < 8
    assert torch.allclose(torch.cat((fitted.weight, fitted.bias[:, None]), 1).T, expected, atol=1e-4)


@pytest.mark.parametrize("norms", [0, 1])
def test_layers_one_after_the_other_that_share_filters_are_refitted(norms):
    def unit(inputs):
        return [nn.Linear(inputs, 8), *[nn.BatchNorm1d(8) for _ in range(norms)], nn.ReLU()]

    model = trained_a_little(nn.Sequential(*unit(6), *unit(8), nn.Linear(8, 3)), torch.float64)
    x = torch.randn(500, 6, dtype=torch.float64)
    plain, fitted = refitted(model, x, [x])
    assert {fitted.get_submodule(name).out_features < 8 for name in ("0", str(2 + norms))} == {True}
    with torch.no_grad():
        errors = [float((net(x) - model(x)).square().mean()) for net in (plain, fitted)]
    assert errors[1] < 0.7 * errors[0]


def test_refitting_exact_pairs_changes_nothing():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    for layer in model[0], model[2]:
        plant(layer, [(0, 5), (2, 3)], ratio=2.0)
    x = torch.randn(500, 6, dtype=torch.float64)
    _, net = refitted(model, x, [x], limit=4)
    torch.testing.assert_close(net(x), model(x), atol=1e-6, rtol=0)
