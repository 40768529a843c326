import numpy as np
import pytest
import torch

from relucid.data import (
    DamagedDataError,
    cifar10,
    cifar100,
    digits,
    imagenet32,
    moments,
    present,
)

from .conftest import encoded, noise, write_parquet


def write_cifar(place, images=None, labels=(3, 9, 0)):
    images = [encoded(pixels) for pixels in noise(3)] if images is None else images
    write_parquet(place / "cifar10" / "train.parquet", images, labels)
    write_parquet(place / "cifar10" / "test.parquet", [encoded(noise(1)[0])], [1])


def test_images_are_the_pixels_of_the_file_channels_first(place, expected_rows):
    expected_rows("cifar10", 3, 1)
    write_cifar(place)
    data = cifar10()
    assert np.array_equal(data.train.inputs.permute(0, 2, 3, 1).numpy(), noise(3))
    assert data.train.targets.tolist() == [3, 9, 0]
    assert (len(data.test), data.classes) == (1, 10)
    assert data.train.inputs.dtype == torch.uint8


def test_the_layout_of_the_hub_is_understood(place, expected_rows):
    expected_rows("cifar100", 2, 1)
    expected_rows("imagenet32", 1, 1)
    first, second = (encoded(pixels) for pixels in noise(2))
    folder = place / "cifar100" / "cifar100"
    write_parquet(folder / "train-00000-of-00002.parquet", [first], [99], label="fine_label")
    write_parquet(folder / "train-00001-of-00002.parquet", [second], [0], label="fine_label")
    write_parquet(folder / "test-00000-of-00001.parquet", [first], [5], label="fine_label")
    assert cifar100().train.targets.tolist() == [99, 0]
    folder = place / "imagenet32" / "data"
    write_parquet(folder / "train-00000-of-00001.parquet", [first], [999], image="image")
    write_parquet(folder / "validation-00000-of-00001.parquet", [second], [1], image="image")
    assert np.array_equal(imagenet32().test.inputs[0].permute(1, 2, 0).numpy(), noise(2)[1])


def write_source(place, labels=(1, 1000, 7)):
    """The files of ImageNet32's source: a row holds red, then green, then blue; classes count from 1."""
    folder = place / "imagenet32" / "Imagenet32_train_npz"
    folder.mkdir(parents=True, exist_ok=True)
    rows = noise(3).transpose(0, 3, 1, 2).reshape(3, -1)
    mean = rows.mean(0)
    np.savez(folder / "train_data_batch_1.npz", data=rows[:2], labels=np.array(labels[:2]), mean=mean)
    np.savez(folder / "train_data_batch_2.npz", data=rows[2:], labels=np.array(labels[2:]), mean=mean)
    np.savez(place / "imagenet32" / "val_data.npz", data=rows[:1], labels=np.array([5]))


def test_the_files_of_the_source_of_imagenet32_are_read_before_any_copy(place, expected_rows):
    expected_rows("imagenet32", 3, 1)
    write_source(place)
    write_parquet(place / "imagenet32" / "train-00000-of-00001.parquet", [b"a copy"], [1], image="image")
    for original in (True, False):
        data = imagenet32(original)
        assert np.array_equal(data.train.inputs.permute(0, 2, 3, 1).numpy(), noise(3))
        assert data.train.targets.tolist() == [0, 999, 6]
        assert (data.test.targets.tolist(), data.classes) == ([4], 1000)


def test_a_copy_of_imagenet32_is_refused_where_the_source_is_asked_for(place, expected_rows):
    expected_rows("imagenet32", 1, 1)
    image = encoded(noise(1)[0])
    for name in ("train-00000-of-00001.parquet", "validation-00000-of-00001.parquet"):
        write_parquet(place / "imagenet32" / name, [image], [1], image="image")
    assert len(imagenet32().train) == 1
    with pytest.raises(DamagedDataError, match=r"no train_data_batch_\*.npz"):
        imagenet32(original=True)


@pytest.mark.parametrize("second", ["train (1).parquet", "old/train.parquet", "train-00000-of-00001.parquet"])
def test_a_second_copy_beside_the_first_is_refused(place, expected_rows, second):
    expected_rows("cifar10", 3, 1)
    write_cifar(place)
    write_parquet(place / "cifar10" / second, [encoded(pixels) for pixels in noise(3)], [3, 9, 0])
    with pytest.raises(DamagedDataError, match=r"6 rows in .*, .*; .* 3$") as caught:
        cifar10()
    assert second in str(caught.value)


def test_digits_need_no_files_and_their_division_follows_from_the_seed(place):
    data = digits(seed=1)
    assert data.train.inputs.shape == (1437, 1, 8, 8)
    assert data.train.inputs.max() == 16
    counts = data.test.targets.bincount()
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert digits(seed=1).test.inputs.equal(data.test.inputs)
    assert not digits(seed=2).test.inputs.equal(data.test.inputs)


def test_present_tells_which_sets_are_there(place):
    write_cifar(place)
    found = present()
    assert found["digits"]
    assert found["cifar10"]
    assert not found["cifar100"]
    assert not found["uci/yacht"]


@pytest.mark.slow
@pytest.mark.usefixtures("real")
def test_real_cifar10_is_whole_and_has_the_known_moments():
    data = cifar10()
    assert data.train.targets.bincount().tolist() == [5000] * 10
    assert data.test.targets.bincount().tolist() == [1000] * 10
    found = moments(data.train)
    # published moments 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616; JPEG takes a little of the contrast
    assert (found.mean / 255).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-4)
    assert (found.std / 255).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=3e-3)
