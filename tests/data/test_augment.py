from collections import Counter
from itertools import permutations

import numpy as np
import torch
from PIL import Image, ImageOps
from scipy.stats import chisquare

from relucid.data import Moments, Split, augment, color, crop, flip, jitter, moments, ten_crops
from relucid.data._augment import AUGMENTATIONS

# Every pixel differs from every other and from the padding, so that a result tells how it was made.
PICTURE = np.arange(1, 65, dtype=np.uint8).reshape(8, 8)


def made_by_pillow(rng: np.random.Generator) -> bytes:
    """Pad, cut out and mirror one image: the usual per-sample pipeline."""
    image = ImageOps.expand(Image.fromarray(PICTURE), 4)
    top, left = rng.integers(0, 9, 2)
    image = image.crop((left, top, left + 8, top + 8))
    if rng.random() < 0.5:
        image = ImageOps.mirror(image)
    return np.asarray(image).tobytes()


def outcomes() -> dict[bytes, int]:
    """The 2 x 9 x 9 results that pad, crop and mirror can have."""
    padded = np.pad(PICTURE, 4)
    windows = [padded[top : top + 8, left : left + 8] for top in range(9) for left in range(9)]
    return {w.tobytes(): i for i, w in enumerate([*windows, *[w[:, ::-1] for w in windows]])}


def test_a_batch_is_augmented_with_the_distribution_of_the_per_sample_pipeline():
    number = outcomes()
    rng = np.random.default_rng(0)
    draws = 162 * 100
    batch = torch.from_numpy(PICTURE).expand(draws, 1, 8, 8)
    ours = [image.numpy().tobytes() for image in flip(crop(batch))]
    theirs = [made_by_pillow(rng) for _ in range(draws)]
    for results in (ours, theirs):
        counts = Counter(number[result] for result in results)  # a KeyError is a result that must not be
        assert chisquare([counts[i] for i in range(162)]).pvalue > 1e-3


def test_all_channels_of_an_image_move_together():
    batch = torch.rand(40, 1, 8, 8).expand(40, 3, 8, 8)
    result = flip(crop(batch))
    assert result[:, 0].equal(result[:, 1])
    assert result[:, 0].equal(result[:, 2])


def test_ten_crops_are_the_corners_the_centre_and_their_mirror_images():
    images = torch.rand(2, 3, 10, 12)
    crops = list(ten_crops(images, 8))
    expected = [images[..., :8, :8], images[..., :8, -8:], images[..., -8:, :8], images[..., -8:, -8:]]
    expected.append(images[..., 1:9, 2:10])
    for i, window in enumerate(expected):
        assert crops[i].equal(window)
        assert crops[i + 5].equal(window.flip(-1))


def test_colour_shifts_an_image_along_the_principal_components_by_a_tenth_of_their_variance():
    pixels = torch.randint(0, 256, (100, 3, 4, 4), dtype=torch.uint8)
    pixels[:, 1] = pixels[:, 0] // 2 + 3
    found = moments(Split(pixels, torch.zeros(100)))
    images = torch.zeros(200_000, 3, 2, 2)
    shift = color(images, found)
    assert shift.flatten(2).std(2).max() == 0  # every pixel of an image by the same colour
    # in units of pixels from 0 to 1: covariance of sum a_i l_i p_i is 0.01 C C
    unit = found.covariance / 255**2
    ours, theirs = torch.cov((shift[:, :, 0, 0] * found.std / 255).T.double()), 0.01 * unit @ unit
    torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.03 * theirs.max().item())


def torchvisions_jitter(image, order, factors):
    """ColorJitter of torchvision without hue, for one image (3, H, W) with pixels from 0 to 255."""
    grey = torch.tensor([0.299, 0.587, 0.114], dtype=image.dtype)

    def blend(image, other, factor):
        return (factor * image + (1 - factor) * other).clamp(0, 255)

    for kind in order:
        of_pixels = (image * grey[:, None, None]).sum(0, keepdim=True).expand_as(image)
        other = (torch.zeros_like(image), of_pixels.mean().expand_as(image), of_pixels)[kind]
        image = blend(image, other, factors[kind])
    return image


def test_jitter_is_torchvisions_color_jitter_in_one_of_its_six_orders():
    torch.manual_seed(0)
    pixels = 255 * torch.rand(200, 3, 5, 4, dtype=torch.float64)
    found = Moments(
        torch.tensor([100.0, 120.0, 90.0]).double(), torch.diag(torch.tensor([9.0, 16, 4]).double())
    )
    torch.manual_seed(7)
    factors = 1 + 0.4 * (2 * torch.rand(3, 200, 1, 1, 1, dtype=torch.float64) - 1)
    torch.manual_seed(7)
    result = jitter(found.normalize(pixels), found) * found.std[:, None, None] + found.mean[:, None, None]
    orders = Counter()
    for number, (image, made) in enumerate(zip(pixels, result, strict=True)):
        own = factors[:, number].flatten().tolist()
        assert 0.6 <= min(own) <= max(own) <= 1.4
        distance = {
            order: (torchvisions_jitter(image, order, own) - made).abs().max().item()
            for order in permutations(range(3))
        }
        best = min(distance, key=distance.get)
        assert distance[best] < 1e-10
        orders[best] += 1
    assert chisquare([orders[order] for order in permutations(range(3))]).pvalue > 1e-3


def test_augmentations_are_made_in_the_order_they_are_named():
    images, whatever = torch.rand(6, 3, 8, 8), Moments(torch.zeros(3), torch.eye(3))
    torch.manual_seed(1)
    expected = crop(flip(images))
    torch.manual_seed(1)
    assert augment(images, ("flip", "crop"), whatever).equal(expected)
    assert augment(images, (), whatever) is images
    for name in AUGMENTATIONS:
        assert augment(images, (name,), whatever).shape == images.shape
