from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from relucid.data import as_data, from_arrays, from_table
from relucid.data.folder import Images
from relucid.train import Recipe, fit

FLOWERS = "width,length,kind\n1.5,2,iris\n0.5,3,rose\n2.5,4,iris\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [np.array, torch.tensor, list])
def test_floating_point_targets_are_values_and_integers_classes(make):
    inputs = make([[1.0, 2.0], [3.0, 4.0]])
    values, classes = from_arrays(inputs, make([0.5, 1.5])), from_arrays(inputs, make([2, 0]))
    assert values.targets.dtype == torch.float32
    assert values.targets.tolist() == [0.5, 1.5]
    assert (classes.targets.dtype, classes.targets.tolist(), classes.classes) == (torch.long, [2, 0], None)
    assert classes.inputs.equal(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def test_the_task_can_be_stated():
    assert from_arrays([[1.0], [2.0]], [3, -4], task="regression").targets.tolist() == [3.0, -4.0]
    assert from_arrays([[1.0], [2.0]], [1.0, 0.0], task="classification").targets.tolist() == [1, 0]


def test_images_stay_bytes_and_one_number_per_example_becomes_a_column():
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    assert from_arrays(images, [0, 1]).inputs.dtype == torch.uint8
    assert from_arrays([1, 2, 3], [0, 1, 0]).inputs.tolist() == [[1.0], [2.0], [3.0]]


def test_two_splits_share_the_numbers_of_their_classes():
    train = from_arrays([[1.0], [2.0], [3.0]], ["dog", "cat", "emu"])
    test = from_arrays([[1.0], [2.0]], ["emu", "dog"], classes=train.classes)
    assert (train.targets.tolist(), train.classes) == ([1, 0, 2], ("cat", "dog", "emu"))
    assert test.targets.tolist() == [2, 1]
    assert train.take([2]).classes == train.classes
    assert from_arrays([[1.0], [2.0]], [-1, 1], classes=("-1", "1")).targets.tolist() == [0, 1]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_and_a_frame_give_the_same_split(tmp_path, separator):
    path = write(tmp_path / "flowers.csv", FLOWERS.replace(",", separator))
    of_file, of_frame = from_table(path, "kind"), from_table(pd.read_csv(path, sep=separator), "kind")
    for split in (of_file, of_frame):
        assert split.inputs.tolist() == [[1.5, 2.0], [0.5, 3.0], [2.5, 4.0]]
        assert (split.targets.tolist(), split.classes) == ([0, 1, 0], ("iris", "rose"))
    assert from_table(str(path), "width", columns=["length"]).inputs.tolist() == [[2.0], [3.0], [4.0]]
    lengths = from_table(path, "length", columns=["width"], task="regression").targets
    assert lengths.tolist() == [2.0, 3.0, 4.0]


def write_image(path, color, size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def test_a_folder_of_images_has_a_class_per_folder(tmp_path):
    write_image(tmp_path / "red" / "1.png", (255, 0, 0))
    write_image(tmp_path / "red" / "2.PNG", (250, 0, 0))
    write_image(tmp_path / "blue" / "1.png", (0, 0, 255))
    write(tmp_path / "red" / "notes.txt", "not an image")
    images = Images(tmp_path)
    pixels, targets = zip(*(images[index] for index in range(len(images))), strict=True)
    assert (targets, images.classes) == ((0, 1, 1), ("blue", "red"))
    assert {each.shape for each in pixels} == {(3, 4, 6)}
    colours = torch.stack(pixels)[:, :, 0, 0] * 255
    assert colours.round().tolist() == [[0, 0, 255], [255, 0, 0], [250, 0, 0]]


def test_the_classes_of_a_folder_are_known_without_decoding_an_image(tmp_path):
    for name, number in product("ab", range(10)):
        write_image(tmp_path / name / f"{number}.png", "red", (6, 4))
    train = as_data(tmp_path).train
    expected = ["ab".index(train.dataset.files[index].parent.name) for index in train.indices]
    for file in tmp_path.rglob("*.png"):
        file.unlink()
    assert train.targets.tolist() == expected


def test_images_of_several_sizes_need_one(tmp_path):
    write_image(tmp_path / "a" / "1.png", "red", (6, 4))
    write_image(tmp_path / "a" / "2.png", "red", (8, 4))
    with pytest.raises(ValueError, match=r"2.png has 8x4 pixels and .*1.png 6x4"):
        Images(tmp_path)
    scaled = Images(tmp_path, size=5)
    assert {scaled[index][0].shape for index in range(2)} == {(3, 5, 5)}


def test_a_split_is_a_copy_that_does_not_follow_the_array():
    inputs, targets = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    split = from_arrays(inputs, targets)
    inputs += 1
    targets += 1
    assert split.inputs.sum() == split.targets.sum() == 0


def test_classes_that_are_numbered_otherwise_than_in_training_are_refused():
    inputs = np.random.default_rng(0).normal(size=(6, 2))
    train = from_arrays(inputs, ["cat", "dog", "emu"] * 2)
    other = from_arrays(inputs, ["dog", "emu"] * 3)
    recipe, message = Recipe(epochs=1), "classes dog, emu are not those of training"
    with pytest.raises(ValueError, match=message):
        fit(nn.Linear(2, 3), train, recipe, other)
    fitted = fit(nn.Linear(2, 3), train, recipe)
    with pytest.raises(ValueError, match=message):
        fitted.evaluate(other)
    same = from_arrays(inputs, ["dog", "emu"] * 3, classes=train.classes)
    wrong = fitted.predict(same).argmax(1) != torch.tensor([1, 2] * 3)  # as training numbered dog and emu
    assert fitted.evaluate(same)["error"] == pytest.approx(100 * float(wrong.double().mean()))
