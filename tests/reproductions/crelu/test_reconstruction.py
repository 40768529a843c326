import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.inspect import reconstruct
from relucid.nn import crelu
from relucid_reproductions.crelu.reconstruction import (
    figure_of_images,
    random_layer,
    random_ratio,
    ratio_of_layer,
    reconstruct_through,
)

quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32)


def squared_singular_values(rows):
    """The squares of the non-zero singular values, largest first."""
    values = torch.linalg.svdvals(rows)
    return values[values > values[0] * max(rows.shape) * torch.finfo(rows.dtype).eps].square()


@quick
@given(seeds, st.integers(1, 8), st.integers(1, 8))
def test_frame_bounds_hold_in_the_range_of_the_filters(seed, inputs, filters):
    # crelu Lemma A.4
    torch.manual_seed(seed)
    weight = torch.randn(filters, inputs, dtype=torch.float64)
    values = squared_singular_values(weight).sqrt().tolist()
    x = weight.T @ torch.randn(filters, dtype=torch.float64)
    response = float((weight @ x).norm() / x.norm())
    assert values[-1] * (1 - 1e-6) <= response <= values[0] * (1 + 1e-6)


def test_frame_bounds_are_the_extreme_singular_values_of_the_whole_map(dense):
    layer, shape = nn.Conv2d(2, 3, 3, stride=2, bias=False).double().requires_grad_(False), (2, 6, 6)
    _, values, inputs = torch.linalg.svd(dense(layer, shape), full_matrices=False)
    for place in (0, -1):
        response = layer(inputs[place].view(1, *shape)).norm()
        assert float(response) == pytest.approx(float(values[place]), rel=1e-8)


def sparse_input(seed, filters, length, shifts):
    torch.manual_seed(seed)
    coefficients = torch.zeros(filters, shifts, dtype=torch.float64)
    coefficients[range(filters), torch.randint(shifts, (filters,))] = torch.randn(
        filters, dtype=torch.float64
    )
    return torch.randn(filters, length, dtype=torch.float64), coefficients


def shifted(filters, shifts, stride=1):
    """Each of K filters at every place of a pooling region, (K, shifts, inputs)."""
    return torch.stack([F.pad(filters, (j * stride, (shifts - 1 - j) * stride)) for j in range(shifts)], 1)


def pooling_bound(filters, coefficients, stride=1):
    """The ratio of x = sum_ij c_i^j w_i^j, its bound as crelu Theorem A.5 prints it, and sqrt(1 - lmin / l~max).

    W_x holds the shifts with c != 0; for each of them, W~_x holds the shift that pooling selects in the phase of
    its *response* <w, x>. Both bounds follow from lmin |x|^2 <= |W_x^T x|^2 <= |W~_x^T x|^2 <= l~max |x~|^2.
    """
    places = shifted(filters, coefficients.shape[1], stride)
    x = torch.einsum("ij,ijd->d", coefficients, places)
    responses, every = places @ x, range(len(filters))
    largest, least = responses.argmax(1), responses.argmin(1)
    rows, own = coefficients.nonzero().unbind(1)
    selected = torch.where(responses[rows, own] >= 0, largest[rows], least[rows])
    lmin = squared_singular_values(places[rows, own])[-1]
    lmax = squared_singular_values(places[rows, selected])[0]
    both = places[every, largest][responses.amax(1) > 0], places[every, least][responses.amin(1) < 0]
    equations = torch.cat(both)
    lost = x - torch.linalg.pinv(equations) @ (equations @ x)
    printed, tightened = ((lmax - lmin).clamp_min(0) / lmin).sqrt(), (1 - lmin / lmax).clamp_min(0).sqrt()
    return float(lost.norm() / x.norm()), float(printed), float(tightened)


@settings(deadline=None, max_examples=200)
@given(seeds, st.integers(1, 6), st.integers(1, 8), st.integers(1, 5), st.integers(1, 3))
def test_the_bound_of_theorem_a5_holds_for_inputs_that_satisfy_s1(seed, filters, length, shifts, stride):
    ratio, printed, tightened = pooling_bound(*sparse_input(seed, filters, length, shifts), stride)
    assert ratio <= tightened + 1e-6
    assert tightened <= min(1, printed) + 1e-12


@pytest.mark.parametrize("shifts, share", [(4, 0.11), (2, 0.28)])
def test_chosen_by_the_sign_of_c_the_inequality_of_theorem_a5_fails_at_times(shifts, share):
    failed, trials = 0, 1000
    for seed in range(trials):
        filters, coefficients = sparse_input(seed, 6, 8, shifts)
        places = shifted(filters, shifts)
        responses = places @ torch.einsum("ij,ijd->d", coefficients, places)
        rows, participating = coefficients.nonzero().unbind(1)
        own = responses[rows, participating]
        positive = coefficients[rows, participating] > 0
        selected = torch.where(positive, responses.amax(1), responses.amin(1))
        failed += bool(own.square().sum() > selected.square().sum() * (1 + 1e-12))
    assert failed / trials == pytest.approx(share, abs=0.03)


def test_the_printed_bound_of_theorem_a5_is_mostly_empty():
    bounds = [pooling_bound(*sparse_input(seed, 6, 8, 4))[1] for seed in range(100)]
    assert sum(printed >= 1 for printed in bounds) > 50


def test_an_input_of_one_filter_is_reconstructed_from_its_pooled_response():
    ratio, _, _ = pooling_bound(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, -3.0, 0.0]]))
    assert ratio == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("dimension, subspace", [(30, 5), (12, 11), (8, 0), (8, 8)])
def test_a_random_subspace_keeps_its_share_of_the_square(dimension, subspace):
    # crelu Theorem C.1: the root of the mean square; the mean itself is smaller.
    x = torch.randn(dimension, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(4000, dimension, subspace, dtype=torch.float64)).Q
    lost = x - (basis @ (basis.mT @ x.unsqueeze(1))).squeeze(2)
    squares = lost.square().sum(1) / x.square().sum()
    expected = random_ratio(dimension, subspace)
    assert abs(float(squares.mean()) - expected**2) <= 4 * float(squares.std()) / 4000**0.5 + 1e-12
    assert float(squares.sqrt().mean()) <= expected + 1e-12


def test_random_filters_replace_those_of_the_layer_only_in_a_copy():
    layer = nn.Conv2d(3, 4, 3)
    before = layer.weight.clone()
    copied = random_layer(layer)
    assert torch.equal(layer.weight, before)
    assert not torch.equal(copied.weight, before)
    assert not copied.bias.any()
    with pytest.raises(TypeError, match="not ReLU"):
        random_layer(nn.ReLU())


def test_max_selection_recovers_more_than_a_random_subspace_would():
    # crelu Table S1 compares with Theorem C.1, which does not allow for the selection.
    layer = random_layer(nn.Conv2d(8, 8, 5))
    ratio = ratio_of_layer(layer, torch.randn(20, 8, 8, 8), nn.MaxPool2d(4))
    assert float(ratio.mean()) < random_ratio(8 * 8 * 8, 8) - 0.01


def test_a_subspace_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        random_ratio(3, 4)


@pytest.mark.needs("plotly")
def test_the_figure_has_one_picture_for_each_image():
    figure = figure_of_images([torch.rand(3, 4, 5), torch.rand(3, 4, 5)], ["original", "conv1"])
    assert [picture.z.shape for picture in figure.data] == [(4, 5, 3)] * 2


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Conv2d(3, 64, 3, padding=1), (3, 16, 16)),
        (nn.Conv2d(3, 96, 5, stride=2, padding=2), (3, 20, 20)),
        (nn.Linear(20, 60), (20,)),
    ],
)
def test_a_wide_random_layer_loses_nothing(layer, shape):
    assert float(ratio_of_layer(layer, torch.randn(2, *shape)).max()) < 1e-3


def test_several_layers_are_inverted_one_after_the_other():
    layers = [nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(48, 120, 3, stride=2, padding=1)]
    x = torch.randn(1, 3, 8, 8)
    features = crelu(layers[1](crelu(layers[0](x)))).detach()
    second = reconstruct(layers[1], features, (48, 8, 8)).input
    first = reconstruct(layers[0], second, (3, 8, 8)).input
    torch.testing.assert_close(reconstruct_through(layers, features, (3, 8, 8)), first)
