import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.inspect._invariance import _crop, _rotate, _shift, _standard, _thresholds, invariance
from relucid.nn.activation import AVR, CReLU

quick = settings(deadline=None, max_examples=30)


def slow_threshold(responses, rate):
    """The (k + 1)-th largest response of each unit, k = the number that may exceed it."""
    k = math.floor(rate * responses.shape[1])
    return responses.sort(1, descending=True).values[:, k]


@quick
@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.sampled_from([0.01, 0.1, 0.5]),
    st.sampled_from([0.0, 2.0, -3.0]),
    st.integers(1, 7),
)
def test_thresholds_are_exact_however_the_data_are_batched(seed, places, rate, shift, parts):
    torch.manual_seed(seed)
    scale = 10.0 ** torch.randint(-20, 20, (4, 1))
    responses = ((torch.randn(4, places) + shift) * scale).relu()
    chunks = responses.chunk(parts, 1)
    result = _thresholds(lambda: ({"layer": chunk} for chunk in chunks), rate)["layer"]
    assert torch.equal(result, slow_threshold(responses, rate))


def test_where_few_responses_are_positive_the_threshold_is_zero():
    responses = torch.zeros(2, 1000)
    responses[0, :9] = torch.rand(9) + 1e-39  # under 1%, some of them subnormal
    responses[1, :50] = 1.0
    result = _thresholds(lambda: iter([{"layer": responses}]), 0.01)["layer"]
    assert result.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "activation, respond",
    [(nn.ReLU(), torch.relu), (CReLU(), torch.abs), (AVR(), torch.abs), (nn.ReLU(inplace=True), torch.relu)],
)
@pytest.mark.parametrize("crop", [None, 8])
def test_invariance_is_what_its_definition_says(activation, respond, crop):
    conv = nn.Conv2d(3, 5, 3, padding=1)
    images = torch.randn(30, 3, 12, 12)
    loader = [(batch, torch.zeros(len(batch))) for batch in images.split(7)]
    result = invariance(nn.Sequential(conv, activation), loader, crop=crop, rate=0.05).layers["0"]
    with torch.no_grad():
        transforms = list(_standard(crop).values())
        base = images if crop is None else _crop(images, crop, "centre")
        before = respond(conv(base))
        threshold = slow_threshold(before.movedim(1, 0).flatten(1), 0.05).view(1, -1, 1, 1)
        fired = before > threshold
        again = sum(((respond(conv(t(images))) > threshold) & fired).sum((0, 2, 3)) for t in transforms)
    local = again.double() / len(transforms) / fired.sum((0, 2, 3))
    torch.testing.assert_close(result.local_rate, local)
    torch.testing.assert_close(result.firing_rate, fired.double().mean((0, 2, 3)))
    assert result.score == pytest.approx(float((local / result.firing_rate).mean()))


def test_a_mirrored_image_of_a_mirrored_scene_fires_the_same_units():
    conv = nn.Conv2d(1, 4, 3, padding=1)
    conv.weight.data = conv.weight.data + conv.weight.data.flip(-1)
    images = torch.randn(16, 1, 8, 8)
    images = images + images.flip(-1)
    result = invariance(
        nn.Sequential(conv, nn.ReLU()), images, transforms={"flip": lambda x: x.flip(-1)}, rate=0.1
    )
    assert result.layers["0"].local_rate.min() > 0.95  # but for ties in rounding at the threshold


def test_units_that_never_fire_are_left_out_of_the_score():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
    net[0].bias.data[0] = -1e6
    result = invariance(net, torch.randn(8, 1, 4, 4), rate=0.1).layers["0"]
    assert result.local_rate[0].isnan()
    assert math.isfinite(result.score)


def test_layers_can_be_chosen_by_name_of_weight_or_rectification():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU())
    images = torch.randn(4, 1, 8, 8)
    assert list(invariance(net, images, ["2"]).layers) == ["2"]
    assert list(invariance(net, images, ["1"]).layers) == ["0"]
    with pytest.raises(ValueError, match="nine"):
        invariance(net, images, ["nine"])


def test_inputs_that_are_not_images_need_transforms_of_their_own():
    net, inputs = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.randn(64, 4)
    with pytest.raises(ValueError, match="give transforms"):
        invariance(net, inputs)
    assert list(invariance(net, inputs, transforms={"shrunk": lambda x: x / 2}).layers) == ["0"]


def test_rotation_by_right_angles_moves_pixels_exactly():
    x = torch.randn(2, 3, 7, 7)
    torch.testing.assert_close(_rotate(x, 90), torch.rot90(x, 1, (2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(_rotate(x, 0), x, rtol=1e-4, atol=1e-5)


def test_rotation_keeps_lengths_in_images_that_are_not_square():
    x = torch.zeros(1, 1, 21, 41)
    x[0, 0, 10, 28] = 1.0  # 8 pixels right of the centre
    turned = _rotate(x, 90)[0, 0]
    assert turned.argmax() == 2 * 41 + 20  # 8 pixels above it


def test_shifts_fill_with_zeros():
    x = torch.arange(1.0, 10).view(1, 1, 3, 3)
    assert _shift(x, right=1, down=0)[0, 0].tolist() == [[0, 1, 2], [0, 4, 5], [0, 7, 8]]
    assert _shift(x, right=0, down=-2)[0, 0].tolist() == [[7, 8, 9], [0, 0, 0], [0, 0, 0]]


def test_crops_come_from_the_corners():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert _crop(x, 2, "centre")[0, 0].tolist() == [[5, 6], [9, 10]]
    assert _crop(x, 2, "bottom right")[0, 0].tolist() == [[10, 11], [14, 15]]
    assert _crop(x, 2, "top right")[0, 0].tolist() == [[2, 3], [6, 7]]


@pytest.mark.needs("plotly")
def test_the_figure_shows_the_score_of_every_layer():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU())
    result = invariance(net, torch.randn(8, 1, 8, 8), rate=0.1)
    (line,) = result.figure().data
    assert line.x == ("0", "2")
    assert line.y == tuple(layer.score for layer in result.layers.values())
    assert result.summary().count("score") == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_images_get_the_dtype_of_the_network(dtype):
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()).to(dtype)
    result = invariance(net, torch.randn(8, 1, 8, 8), transforms={"none": lambda x: x})
    assert (result.layers["0"].local_rate == 1).all()
