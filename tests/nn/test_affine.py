import copy

import pytest
import torch
from torch import nn

from relucid.nn.affine import affine_after, affine_before, affine_of
from relucid.nn.meannorm import MeanNorm


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm1d(5), nn.BatchNorm1d(5, affine=False), MeanNorm(5), MeanNorm(5, bias=True)],
    ids=repr,
)
def test_a_norm_in_evaluation_is_its_affine_map(norm):
    norm = norm.double().eval()
    for tensor in (*norm.parameters(), norm.running_mean):
        tensor.data.normal_()
    if hasattr(norm, "running_var"):
        norm.running_var.uniform_(0.1, 3)
    x = torch.randn(20, 5, dtype=torch.float64)
    scale, shift = affine_of(norm)
    torch.testing.assert_close(norm(x), scale * x + shift)


LAYERS = [
    (nn.Linear(4, 3), (5, 4)),
    (nn.Linear(4, 3, bias=False), (5, 4)),
    (nn.Conv1d(4, 6, 3, groups=2), (2, 4, 7)),
    (nn.Conv2d(4, 6, 3, stride=2, bias=False), (2, 4, 7, 7)),
    (nn.Conv2d(4, 6, 1, padding="same", groups=2), (2, 4, 7, 7)),
    (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 7)),
    (nn.Conv3d(4, 4, 2, groups=4), (2, 4, 5, 5, 5)),
]
TRANSPOSED = [
    (nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 7)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, bias=False), (2, 4, 5, 5)),
]


def with_values(layer, weight, bias):
    """A copy of a layer in float64 with another weight and bias."""
    layer = copy.deepcopy(layer).double()
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


@pytest.mark.parametrize("layer, shape", [*LAYERS, *TRANSPOSED], ids=repr)
def test_an_affine_map_after_a_layer_becomes_part_of_it(layer, shape):
    x = torch.randn(shape, dtype=torch.float64)
    y = copy.deepcopy(layer).double()(x)
    scale, shift = torch.randn(2, y.shape[1], dtype=torch.float64)
    places = (-1, *[1] * (y.dim() - 2))
    folded = with_values(layer, *affine_after(layer, scale, shift))
    torch.testing.assert_close(folded(x), scale.view(places) * y + shift.view(places))


@pytest.mark.parametrize("layer, shape", LAYERS, ids=repr)
def test_an_affine_map_before_a_layer_becomes_part_of_it(layer, shape):
    x = torch.randn(shape, dtype=torch.float64)
    scale, shift = torch.randn(2, x.shape[1], dtype=torch.float64)
    places = (-1, *[1] * (x.dim() - 2))
    folded = with_values(layer, *affine_before(layer, scale, shift))
    expected = copy.deepcopy(layer).double()(scale.view(places) * x + shift.view(places))
    torch.testing.assert_close(folded(x), expected)
