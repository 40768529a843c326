import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from relucid.convert import to_crelu
from relucid.convert.merge import opposite_pairs, rank_one

from .networks import Block, example, residual, trained_a_little


def plant(layer, pairs, ratio=1.0, noise=0.0):
    """Make filters (i, j) opposite."""
    for i, j in pairs:
        layer.weight.data[j] = -ratio * layer.weight.data[i] + noise * torch.randn_like(layer.weight.data[i])
        if layer.bias is not None:
            layer.bias.data[j] = -ratio * layer.bias.data[i]


def planted(dtype=torch.float64, **options):
    """A network with pooling, batch norm, flatten and a concatenation, and opposite pairs in two layers."""

    class Planted(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1, self.conv2 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3)
            self.bn2, self.fc1, self.fc2 = nn.BatchNorm2d(6), nn.Linear(12 * 4, 10), nn.Linear(10, 5)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 2)
            x = nn.functional.pad(x, (1, 1, 1, 1))
            x = self.bn2(self.conv2(x).relu())
            x = torch.cat([x, -x], 1)[:, :, :2, :2]
            return self.fc2(self.fc1(torch.flatten(x, 1)).relu())

    model = trained_a_little(Planted(), dtype)
    plant(model.conv1, [(0, 5), (6, 1), (2, 7), (3, 4)], ratio=2.0, **options)
    with torch.no_grad():  # opposite after the norm
        scale = model.bn1.weight / (model.bn1.running_var + model.bn1.eps).sqrt()
        for i, j in (0, 5), (6, 1), (2, 7), (3, 4):
            model.bn1.weight[j] = (
                scale[i].abs() * scale[j].sign() * (model.bn1.running_var[j] + model.bn1.eps).sqrt()
            )
            sign = torch.sign(model.bn1.weight[i] * model.bn1.weight[j])
            model.conv1.weight[j] *= sign
            model.conv1.bias[j] *= sign
            shift = model.bn1.bias[i] - model.bn1.running_mean[i] * scale[i]
            now = model.bn1.weight[j] / (model.bn1.running_var[j] + model.bn1.eps).sqrt()
            model.bn1.bias[j] = -2.0 * shift + model.bn1.running_mean[j] * now
    plant(model.fc1, [(9, 0), (1, 2)], ratio=0.5, **options)
    return model


def test_exact_pairs_share_a_filter_and_outputs_stay_the_same():
    for dtype, tolerance in (torch.float64, 1e-10), (torch.float32, 1e-5):
        model, x = planted(dtype), example(dtype)
        conversion = to_crelu(model, x, mode="merge")
        assert conversion.model.conv1.out_channels == 4
        assert conversion.model.fc1.out_features == 8
        assert conversion.relative_error <= tolerance
        assert conversion.parameters[1] < conversion.parameters[0]
        assert conversion.multiply_adds[1] < conversion.multiply_adds[0]
        assert conversion.model.bn1.signs_paired == 4
        assert conversion.model.fc1.signs_paired == 2


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
def test_where_the_merged_channels_would_be_added_they_stay():
    model = trained_a_little(residual(Block))
    plant(model[0], [(0, 3), (4, 2)], ratio=0.3)
    conversion = to_crelu(model, example(), mode="merge")
    assert conversion.model.get_submodule("0").out_channels == 6
    assert {c.name: c.reason for c in conversion.changes}["1"] == "it is added to another value"


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
def test_a_network_without_pairs_is_kept_with_a_warning():
    model = nn.Sequential(nn.Linear(30, 4), nn.ReLU(), nn.Linear(4, 2))
    conversion = to_crelu(model, torch.randn(5, 30), mode="merge")
    change = {c.name: c for c in conversion.changes}["1"]
    assert (change.status, change.reason) == ("kept", "no pair is opposite enough for a tolerance of 0.0001")
    assert conversion.max_error == 0


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
def test_as_many_pairs_are_merged_as_the_tolerance_allows():
    model, x = planted(noise=0.02), example()
    merged = {}
    for tolerance in (1e-10, 0.02, 10.0):
        conversion = to_crelu(model, x, mode="merge", tolerance=tolerance)
        assert conversion.relative_error <= tolerance
        merged[tolerance] = conversion.parameters[1]
    assert merged[1e-10] >= merged[0.02] >= merged[10.0]
    assert merged[1e-10] > merged[10.0]


def unbiased():
    """A convolution without a bias before a batch norm, as in most networks, with two opposite pairs."""
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 1)
    ).eval()
    plant(model[0], [(0, 5), (2, 3)])
    return model


def test_filters_without_a_bias_before_a_norm_are_merged():
    model, x = unbiased(), torch.randn(2, 3, 8, 8)
    conversion = to_crelu(model, x, mode="merge")
    assert conversion.model[0].out_channels == 4
    assert conversion.model[0].bias.shape == (4,)
    torch.testing.assert_close(conversion.model(x), model(x))


def test_a_new_bias_stands_in_the_optimizer_where_it_stands_in_the_network():
    model = unbiased()
    optimizer = torch.optim.Adam(model.parameters())
    to_crelu(model, torch.randn(2, 3, 8, 8), mode="merge", inplace=True, optimizer=optimizer)
    # A state that is saved is loaded by position.
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]


@pytest.mark.filterwarnings("ignore::relucid.convert.UnchangedWarning")
@pytest.mark.parametrize("exact", range(6))
def test_the_most_opposite_pairs_are_merged_first(exact):
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)).double()
    plant(model[0], [(i, i + 5) for i in range(exact)], noise=1e-9)
    plant(model[0], [(i, i + 5) for i in range(exact, 5)], noise=1e-4)
    x = torch.randn(50, 6, dtype=torch.float64)
    conversion = to_crelu(model, x, mode="merge", tolerance=1e-6, inplace=exact % 2 == 0)
    assert conversion.model[0].out_features == 10 - exact


@given(st.integers(0, 2**31 - 1), st.floats(0.1, 10), st.floats(0, 0.5))
def test_the_shared_filter_is_the_best_rank_one_fit(seed, ratio, noise):
    generator = torch.Generator().manual_seed(seed)
    a, c = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    b = -ratio * a + noise * c
    shared, found = rank_one(a, b)
    left, values, right = torch.linalg.svd(torch.stack((a, b)), full_matrices=False)
    best = values[0] * torch.outer(left[:, 0], right[0])
    assert torch.allclose(torch.stack((shared, -found * shared)), best, atol=1e-9)


def test_pairs_are_a_matching_of_maximum_weight():
    angles = torch.tensor([0.0, 175.0, 190.0, 5.0]).deg2rad()
    weight = torch.stack((angles.cos(), angles.sin()), 1)
    pairs = {(i, j) for i, j, _ in opposite_pairs(weight, torch.zeros(4), 0.5)}
    assert pairs == {(0, 1), (2, 3)}  # though 1 and 3 lie 170 degrees apart, and 0 and 2 too


def test_opposite_weights_with_other_biases_are_no_pair():
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert not opposite_pairs(weight, torch.tensor([1.0, 1.0]), 1e-3)


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="mode is 'expand', 'merge' or 'halve', not 'both'"):
        to_crelu(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.zeros(1, 2), mode="both")


def test_a_layer_with_too_many_filters_for_their_pairs_is_left_out():
    wide = nn.Sequential(nn.Linear(4, 100_000), nn.ReLU(), nn.Linear(100_000, 2), nn.ReLU(), nn.Linear(2, 2))
    plant(wide[2], [(0, 1)])
    found = to_crelu(wide, torch.randn(3, 4), mode="merge")
    change = {c.name: c for c in found.changes}
    assert change["1"].status == "refused"
    assert change["1"].reason == "it has 100,000 filters, and pairs are sought among 32,768 at most"
    assert change["2"].status == "changed"


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
def test_grouped_and_shared_filters_are_refused_with_the_reason():
    grouped = nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.ReLU(), nn.Conv2d(4, 2, 1))
    change = {c.name: c for c in to_crelu(grouped, torch.randn(1, 4, 2, 2), mode="merge").changes}["1"]
    assert (change.status, change.reason) == (
        "refused",
        "its filters are grouped, and groups must stay equal",
    )
