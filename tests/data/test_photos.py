import math
import random

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import ks_2samp

from relucid.data import imagenet
from relucid.data.photos import window

from .conftest import encoded, noise, write_parquet


@pytest.fixture(autouse=True)
def _quiet_and_private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
    datasets.disable_progress_bars()


def write_photos(place, images, labels):
    write_parquet(place / "imagenet" / "data" / "train-00000-of-00001.parquet", images, labels, image="image")
    name = "validation-00000-of-00001.parquet"
    write_parquet(place / "imagenet" / "data" / name, images[:1], labels[:1], image="image")


def test_a_test_photograph_is_the_centre_of_its_shorter_side_at_256(place):
    pixels = noise(1, 300, 400)[0]
    write_photos(place, [encoded(pixels)], [7])
    inputs, targets = imagenet().test.batch(torch.tensor([0]))
    resized = np.asarray(Image.fromarray(pixels).resize((341, 256), Image.Resampling.BILINEAR))
    assert np.array_equal(inputs[0].permute(1, 2, 0).numpy(), resized[16:240, 58:282])
    assert targets.tolist() == [7]


def test_what_is_random_about_training_photographs_follows_from_the_seed(place):
    write_photos(place, [encoded(pixels) for pixels in noise(2, 300, 290)], [0, 999])
    train = imagenet(scales=(256, 480)).train
    both = torch.tensor([0, 1])
    first, targets = train.batch(both, seed=1)
    assert first.shape == (2, 3, 224, 224)
    assert targets.tolist() == [0, 999]
    assert train.batch(both, seed=1)[0].equal(first)
    assert not train.batch(both, seed=2)[0].equal(first)


def test_folders_of_images_are_read_by_class(place):
    for part, classes in (("train", "ab"), ("validation", "ab")):
        for number, name in enumerate(classes):
            path = place / "imagenet" / part / name / "photo.png"
            path.parent.mkdir(parents=True)
            path.write_bytes(encoded(np.full((256, 256, 3), number * 9, np.uint8)))
    data = imagenet()
    inputs, targets = data.train.batch(torch.tensor([1, 0]))
    assert targets.tolist() == [1, 0]
    assert inputs.float().mean((1, 2, 3)).tolist() == [9, 0]
    assert len(data.test) == 2


def torchvisions_window(rng, height, width):
    """RandomResizedCrop.get_params of torchvision: top, left, height, width, and whether a try succeeded."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1.0)
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.integers(0, height - h + 1), rng.integers(0, width - w + 1), h, w, True
    ratio, w, h = width / height, width, height
    if ratio < 3 / 4:
        h = round(w / (3 / 4))
    elif ratio > 4 / 3:
        w = round(h * (4 / 3))
    return (height - h) // 2, (width - w) // 2, h, w, False


@pytest.mark.parametrize("height, width", [(32, 32), (20, 90), (375, 500)])
def test_windows_have_the_distribution_of_torchvisions_random_resized_crop(height, width):
    rng, draws = np.random.default_rng(0), 5000
    theirs = np.array([torchvisions_window(rng, height, width) for _ in range(draws)])
    chance = random.Random(0)
    ours = np.array([window(height, width, chance) for _ in range(draws)])
    top, left, high, wide = ours.T
    assert min(top.min(), left.min()) >= 0
    assert min(high.min(), wide.min()) > 0
    assert ((top + high <= height) & (left + wide <= width)).all()
    for measure in (
        lambda w: w[:, 2] * w[:, 3],
        lambda w: w[:, 2] / w[:, 3],
        lambda w: w[:, 0],
        lambda w: w[:, 1],
    ):
        assert ks_2samp(measure(ours), measure(theirs)).pvalue > 1e-3


def test_where_no_window_fits_it_is_the_largest_central_one():
    rng = np.random.default_rng(0)
    for height, width in ((10, 400), (400, 10)):
        drawn = [torchvisions_window(rng, height, width) for _ in range(300)]
        ours = {window(height, width, random.Random(seed)) for seed in range(300)}
        (expected,) = {each[:4] for each in drawn if not each[4]}
        assert expected in ours


def test_a_resized_photograph_is_a_random_window_of_it_resized_by_pillow(place):
    pixels = noise(1, 300, 400)[0]
    write_photos(place, [encoded(pixels)], [0])
    train = imagenet(resized=True).train
    first = train.batch(torch.tensor([0]), seed=1)[0]
    assert train.batch(torch.tensor([0]), seed=1)[0].equal(first)
    top, left, high, wide = window(300, 400, random.Random(1))
    cut = Image.fromarray(pixels[top : top + high, left : left + wide])
    expected = np.asarray(cut.resize((224, 224), Image.Resampling.BILINEAR))
    assert np.array_equal(first[0].permute(1, 2, 0).numpy(), expected)
    assert (
        imagenet(resized=True)
        .test.batch(torch.tensor([0]))[0]
        .equal(imagenet().test.batch(torch.tensor([0]))[0])
    )


def test_central_crops_stay_within_the_central_square(place):
    pixels = np.zeros((256, 768, 3), np.uint8)
    pixels[:, 256:512] = 200
    write_photos(place, [encoded(pixels)], [0])
    inside, anywhere = (imagenet(central=central).train for central in (True, False))
    seen = [
        [photos.batch(torch.tensor([0]), seed)[0].min() for seed in range(20)]
        for photos in (inside, anywhere)
    ]
    assert min(seen[0]) > 150
    assert min(seen[1]) < 50
