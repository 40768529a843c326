import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.inspect.reconstruction import reconstruct, reconstruction_ratio
from relucid.nn import GeometricConv2d
from relucid.nn.activation import crelu

quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32)

LAYERS = {
    "linear, wide": (lambda: nn.Linear(7, 12), (7,)),
    "linear, narrow": (lambda: nn.Linear(12, 7), (12,)),
    "linear, no bias": (lambda: nn.Linear(5, 5, bias=False), (5,)),
    "conv1d": (lambda: nn.Conv1d(2, 5, 3, stride=2, padding=1), (2, 11)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3), (3, 6, 5)),
    "conv2d, more unknowns": (lambda: nn.Conv2d(4, 2, 3, padding=1), (4, 5, 5)),
    "conv2d, stride leaves pixels unseen": (lambda: nn.Conv2d(2, 20, 3, stride=3), (2, 8, 7)),
    "conv2d, dilation, groups": (lambda: nn.Conv2d(4, 6, 2, dilation=2, groups=2, padding=(1, 0)), (4, 5, 6)),
    "conv2d, same": (lambda: nn.Conv2d(2, 5, (3, 1), padding="same"), (2, 4, 5)),
    "conv2d, circular": (lambda: nn.Conv2d(2, 5, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "conv2d, reflect": (lambda: nn.Conv2d(2, 5, 3, padding=1, padding_mode="reflect"), (2, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(1, 6, 2), (1, 3, 4, 3)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6).eval()), (2, 5, 5)),
    "geometric": (lambda: GeometricConv2d(2, 6, 3), (2, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("features", ["after CReLU", "before"])
def test_reconstruction_is_the_pseudoinverse(name, features, dense):
    build, shape = LAYERS[name]
    layer = build().double()
    x = torch.randn(3, *shape, dtype=torch.float64)
    z = layer(x).detach()
    result = reconstruct(layer, crelu(z) if features == "after CReLU" else z, shape, tolerance=1e-12)
    matrix = dense(layer, shape)
    expected = x.flatten(1) @ (torch.linalg.pinv(matrix) @ matrix).T
    torch.testing.assert_close(result.input.flatten(1), expected, rtol=1e-6, atol=1e-6)
    assert result.residual <= 1e-12


@pytest.mark.parametrize("name", LAYERS)
def test_in_single_precision_it_is_the_pseudoinverse_to_four_digits(name, dense):
    build, shape = LAYERS[name]
    layer = build()
    x = torch.randn(3, *shape)
    result = reconstruct(layer, crelu(layer(x)).detach(), shape)
    matrix = dense(layer.double(), shape)
    expected = x.double().flatten(1) @ (torch.linalg.pinv(matrix) @ matrix).T
    assert float((result.input.flatten(1) - expected).norm() / expected.norm()) < 1e-4


@quick
@given(seeds, st.integers(1, 12), st.integers(1, 12))
def test_what_is_reconstructed_is_the_part_in_the_range_of_the_filters(seed, inputs, filters):
    # crelu Proposition A.1: x' has the same responses, and x - x' is orthogonal to every filter.
    torch.manual_seed(seed)
    layer = nn.Linear(inputs, filters).double()
    x = torch.randn(2, inputs, dtype=torch.float64)
    result = reconstruct(layer, crelu(layer(x)).detach(), (inputs,), tolerance=1e-13).input
    torch.testing.assert_close(layer(result), layer(x), rtol=1e-5, atol=1e-5)
    coordinates = torch.linalg.lstsq(layer.weight.T, result.T, driver="gelsd").solution
    torch.testing.assert_close(layer.weight.T @ coordinates, result.T, rtol=1e-5, atol=1e-5)


def test_inconsistent_features_give_the_shortest_least_squares_solution():
    layer = nn.Linear(4, 9).double()
    features = torch.randn(2, 9, dtype=torch.float64)
    expected = (features - layer.bias) @ torch.linalg.pinv(layer.weight).T
    torch.testing.assert_close(reconstruct(layer, features, (4,), tolerance=1e-12).input, expected)


def test_each_input_of_a_batch_is_reconstructed_on_its_own():
    layer = nn.Conv2d(2, 8, 3, bias=False)
    x = torch.randn(3, 2, 6, 6) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1, 1)
    features = crelu(layer(x)).detach()
    together = reconstruct(layer, features, (2, 6, 6)).input
    for i in range(3):
        alone = reconstruct(layer, features[i : i + 1], (2, 6, 6)).input
        assert float(reconstruction_ratio(alone, together[i : i + 1])) < 1e-4


def test_features_of_zero_input_are_reconstructed_as_zero():
    layer = nn.Linear(4, 3)
    assert reconstruct(layer, crelu(layer(torch.zeros(1, 4))).detach(), (4,)).input.abs().max() < 1e-6


def test_the_layer_gathers_no_gradients():
    layer = nn.Linear(3, 5)
    with torch.no_grad():
        reconstruct(layer, layer(torch.randn(2, 3)), (3,))
    assert layer.weight.grad is None


@pytest.mark.slow
def test_a_photograph_is_reconstructed_through_a_large_strided_convolution():
    image = F.interpolate(torch.randn(1, 3, 28, 28), size=224, mode="bicubic") + 0.1 * torch.randn(
        1, 3, 224, 224
    )
    layer = nn.Conv2d(3, 96, 11, stride=4)  # the operator would have 281,940 x 150,528 entries
    result = reconstruct(layer, crelu(layer(image)).detach(), (3, 224, 224))
    assert float(reconstruction_ratio(image[..., :223, :223], result.input[..., :223, :223])) < 5e-3
    assert not result.input[..., 223:, :].any()


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2), nn.MaxPool2d(3, 2, 1, ceil_mode=True)])
def test_after_pooling_each_positive_feature_is_one_equation_of_its_phase(pool, dense):
    layer, shape = nn.Conv2d(2, 5, 3, padding=1).double(), (2, 6, 6)
    x = torch.randn(1, *shape, dtype=torch.float64)
    responses = layer(x).detach()
    pool.return_indices = True
    features, indices = pool(crelu(responses))
    matrix, rows, targets = dense(layer, shape), [], []
    offset = layer(torch.zeros_like(x)).detach().flatten()
    for channel in range(10):
        for value, place in zip(features[0, channel].flatten(), indices[0, channel].flatten(), strict=True):
            if value > 0:
                response = (channel % 5) * 36 + int(place)
                rows.append(matrix[response])
                targets.append((value if channel < 5 else -value) - offset[response])
    expected = torch.linalg.pinv(torch.stack(rows)) @ torch.stack(targets)
    result = reconstruct(layer, features, shape, indices=indices, tolerance=1e-12)
    torch.testing.assert_close(result.input.flatten(), expected, rtol=1e-6, atol=1e-6)
