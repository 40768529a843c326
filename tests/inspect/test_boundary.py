import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from relucid.inspect import examine
from relucid.inspect._boundary import Boundary, boundary, hyperplanes
from relucid.nn import GeometricConv2d, GeometricLinear
from relucid.nn.meannorm import MeanNorm
from relucid.nn.sphere import unit_vector

quick = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32)


def trained_norm(units):
    norm = nn.BatchNorm1d(units).double().eval()
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
        tensor.normal_()
    norm.running_var.uniform_(0.1, 3)
    return norm


def mean_norm(units):
    norm = MeanNorm(units, bias=True).double().eval()
    norm.running_mean.normal_()
    norm.bias.data.normal_()
    return norm


LAYERS = {
    "standard": lambda n, k: (nn.Linear(n, k).double(), None),
    "no bias": lambda n, k: (nn.Linear(n, k, bias=False).double(), None),
    "weight norm": lambda n, k: (weight_norm(nn.Linear(n, k)).double(), None),
    "geometric": lambda n, k: (GeometricLinear(n, k).double(), None),
    "batch norm": lambda n, k: (nn.Linear(n, k).double(), trained_norm(k)),
    "batch norm, no bias": lambda n, k: (nn.Linear(n, k, bias=False).double(), trained_norm(k)),
    "mean norm": lambda n, k: (nn.Linear(n, k).double(), mean_norm(k)),
    "geometric, batch norm": lambda n, k: (GeometricLinear(n, k).double(), trained_norm(k)),
}


@pytest.mark.parametrize("name", LAYERS)
@quick
@given(seeds, st.integers(1, 9), st.integers(1, 7))
def test_what_is_rectified_is_the_distance_times_the_length_of_the_weights(name, seed, inputs, units):
    torch.manual_seed(seed)
    layer, norm = LAYERS[name](inputs, units)
    if isinstance(layer, GeometricLinear):
        layer.offset.data.normal_()
        layer.scale.data.uniform_(0.5, 2).mul_(torch.randn(units).sign())
    examination = boundary(layer, norm)
    x = torch.randn(20, inputs, dtype=torch.float64)
    with torch.no_grad():
        value = layer(x) if norm is None else norm(layer(x))
        at_location = torch.stack(
            [
                (layer(phi.unsqueeze(0)) if norm is None else norm(layer(phi.unsqueeze(0))))[0, i]
                for i, phi in enumerate(examination.location)
            ]
        )
    torch.testing.assert_close(examination.direction.norm(dim=1), torch.ones(units, dtype=torch.float64))
    torch.testing.assert_close(
        at_location, torch.zeros_like(at_location), rtol=0, atol=1e-8 * float(value.abs().max() + 1)
    )
    ratio = value / examination.distance(x)
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-4, atol=1e-6)
    assert (ratio > 0).all()


def test_the_location_is_the_nearest_point_of_the_boundary():
    examination = hyperplanes(torch.randn(5, 4), torch.randn(5))
    torch.testing.assert_close(examination.location.norm(dim=1), examination.radius.abs())


def test_where_batch_norm_stands_the_offset_is_that_of_the_folded_layer():
    # b + sigma beta / gamma - mu, in units of |w|, and turned round where gamma < 0
    layer, norm = nn.Linear(3, 50).double(), trained_norm(50)
    examination = boundary(layer, norm)
    sigma = (norm.running_var + norm.eps).sqrt()
    offset = layer.bias + sigma * norm.bias / norm.weight - norm.running_mean
    expected = norm.weight.sign() * offset / layer.weight.norm(dim=1)
    torch.testing.assert_close(examination.radius, expected.detach())


def test_batch_norm_is_a_parameterization():
    # gmp Eq. 6, for centred inputs: gamma (w / |w|_S)^T x + beta with S the covariance of the inputs
    x = torch.randn(200, 4, dtype=torch.float64) @ torch.randn(4, 4, dtype=torch.float64)
    x = x - x.mean(0)
    layer, norm = nn.Linear(4, 6).double(), nn.BatchNorm1d(6, eps=1e-30).double()
    norm.weight.data.normal_()
    norm.bias.data.normal_()
    covariance = x.T @ x / len(x)
    length = torch.einsum("ki,ij,kj->k", layer.weight, covariance, layer.weight).sqrt()
    expected = norm.weight * (x @ layer.weight.T) / length + norm.bias
    torch.testing.assert_close(norm(layer(x)), expected)
    examination = hyperplanes(norm.weight.unsqueeze(1) * layer.weight / length.unsqueeze(1), norm.bias)
    torch.testing.assert_close(examination.distance(x) > 0, norm(layer(x)) > 0)


@pytest.mark.parametrize(
    "make", [lambda: nn.Conv2d(2, 5, 3, stride=2), lambda: GeometricConv2d(2, 5, 3, stride=2)]
)
def test_the_input_of_a_convolution_is_the_patch_that_a_filter_sees(make):
    layer = make()
    x = torch.randn(1, 2, 7, 7)
    patches = nn.functional.unfold(x, 3, stride=2).squeeze(0).T
    examination = boundary(layer)
    weight = layer.weight.flatten(1).norm(dim=1)
    expected = layer(x).flatten(2).squeeze(0).T / weight
    torch.testing.assert_close(examination.distance(patches), expected, rtol=1e-4, atol=1e-5)


def test_angles_and_direction_say_the_same():
    examination = boundary(nn.Linear(6, 4).double())
    torch.testing.assert_close(unit_vector(examination.angles), examination.direction)


def test_a_boundary_is_a_snapshot_that_training_does_not_change():
    layer = GeometricLinear(6, 4)
    examination = boundary(layer)
    direction, radius = examination.direction.clone(), examination.radius.clone()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 1
    assert torch.equal(examination.direction, direction)
    assert torch.equal(examination.radius, radius)


def test_a_unit_without_weights_has_no_boundary():
    layer = nn.Linear(3, 2)
    layer.weight.data[1] = 0
    examination = boundary(layer)
    assert examination.defined.tolist() == [True, False]
    assert not examination.direction[1].any()
    assert examination.summary().startswith("1 boundaries")
    layer.weight.data.zero_()
    assert boundary(layer).summary() == "no unit has a boundary"


@pytest.mark.needs("plotly")
def test_boundaries_in_one_dimension_are_drawn_where_units_switch():
    examination = hyperplanes(torch.tensor([[2.0], [-1.0]]), torch.tensor([4.0, 3.0]))
    first, second, places, data = examination.figure(torch.tensor([0.5, 7.0])).data
    assert places.x == (-2.0, 3.0)
    assert max(x for x, y in zip(first.x, first.y, strict=True) if y == 0) <= -2.0
    assert min(x for x, y in zip(second.x, second.y, strict=True) if y == 0) >= 3.0
    assert data.x == (0.5, 7.0)


@pytest.mark.needs("plotly")
def test_boundaries_in_two_dimensions_are_lines_through_their_locations():
    examination = hyperplanes(torch.randn(3, 2), torch.randn(3))
    lines = [trace for trace in examination.figure(torch.randn(5, 2)).data if trace.mode == "lines"]
    for line, u, radius in zip(lines, examination.direction, examination.radius, strict=True):
        ends = torch.tensor([line.x, line.y]).T.float()
        torch.testing.assert_close(ends @ u, -radius.expand(2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_boundaries_that_were_found_do_not_follow_the_weights(block, monkeypatch):
    monkeypatch.setattr(sys.modules[Boundary.__module__], "BLOCK", block)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    examination = examine(net, torch.randn(40, 3))["0"].boundary
    before = examination.direction.clone()
    torch.testing.assert_close(before, boundary(net[0]).direction)
    with torch.no_grad():
        net[0].weight.add_(1.0)
    if block == 1:  # a large weight is not copied
        with pytest.raises(RuntimeError, match="the weights have changed"):
            examination.location  # noqa: B018
    else:
        assert torch.equal(examination.direction, before)
