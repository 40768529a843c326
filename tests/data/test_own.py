import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from relucid.data import DamagedDataError, from_arrays, from_dataset, from_folder, from_table, holdout
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


@pytest.mark.parametrize(
    "inputs, targets, given, message",
    [
        (
            [[1.0], [np.nan], [np.inf]],
            [0, 1, 1],
            {},
            "inputs of 2 examples are not finite, the first of them number 1",
        ),
        (
            [[1.0], [2.0]],
            [0.5, np.nan],
            {},
            "targets of 1 examples are not finite, the first of them number 1",
        ),
        (np.zeros((0, 3)), [], {}, r"there are no examples in inputs of shape \(0, 3\): give \(N, ...\)"),
        ([[1.0]], np.zeros(0), {}, r"there are no examples in targets of shape \(0,\)"),
        (1.0, 2.0, {}, r"there are no examples in inputs of shape \(\)"),
        ([["a"], ["b"]], [0, 1], {}, "inputs must be numbers, not <U1"),
        ([[1.0], [2.0]], ["a", "b"], {"task": "regression"}, "values to predict must be numbers, not <U1"),
        ([[1.0], [2.0]], [0.5, 1.0], {"task": "classification"}, "classes must be whole numbers or text"),
        ([[1.0], [2.0]], [-1, 1], {}, "classes are numbered from 0, not from -1: name them by classes="),
        ([[1.0], [2.0]], ["a", "c"], {"classes": ("a", "b")}, "'c' is not among the classes a, b"),
        ([[1.0], [2.0]], np.array(["a", None]), {}, "a class is missing"),
        ([[1.0], [2.0]], [[0, 1], [1, 0]], {}, r"classes need the shape \(N,\), not \(2, 2\)"),
        ([[1.0], [2.0]], [0, 1, 1], {}, "2 inputs have 3 targets"),
        ([[1.0], [2.0]], [0, 1], {"task": "ranking"}, "task='ranking' must be classification or regression"),
    ],
)
def test_arrays_that_make_no_split_are_refused(inputs, targets, given, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(inputs, targets, **given)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_and_a_frame_give_the_same_split(tmp_path, separator):
    path = write(tmp_path / "flowers.csv", FLOWERS.replace(",", separator))
    of_file, of_frame = from_table(path, "kind"), from_table(pd.read_csv(path, sep=separator), "kind")
    for split in (of_file, of_frame):
        assert split.inputs.tolist() == [[1.5, 2.0], [0.5, 3.0], [2.5, 4.0]]
        assert (split.targets.tolist(), split.classes) == ([0, 1, 0], ("iris", "rose"))
    assert from_table(str(path), "width", columns=["length"]).inputs.tolist() == [[2.0], [3.0], [4.0]]
    assert from_table(path, "length", columns=["width"], task="regression").targets.tolist() == [
        2.0,
        3.0,
        4.0,
    ]


@pytest.mark.parametrize(
    "text, target, message",
    [
        (FLOWERS, "colour", "there is no column 'colour'; there are width, length, kind"),
        (FLOWERS, "width", "column 'kind' does not hold numbers: encode it, or leave it out by columns="),
        ("kind\na\nb\n", "kind", "there is no column besides 'kind' to predict it from"),
        (FLOWERS + "1.0,,iris\n", "kind", "row 5: column 'length' is empty"),
        (FLOWERS + "1.0,iris\n", "kind", "row 5: 2 cells instead of 3"),
        ("a,a,b\n1,2,3\n", "b", "the header names 'a' twice"),
        ("a,b\n", "b", "has a header and no rows"),
        ("", "b", "is empty"),
        ("a,b\nnan,1\n", "b", "inputs of 1 examples are not finite"),
    ],
)
def test_tables_that_make_no_split_are_refused(tmp_path, text, target, message):
    with pytest.raises(ValueError, match=message):
        from_table(write(tmp_path / "table.csv", text), target)


def test_a_table_that_is_not_there_or_not_a_table_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.csv"):
        from_table(tmp_path / "none.csv", "y")
    with pytest.raises(ValueError, match="a list has no named columns: give a CSV file or a frame"):
        from_table([[1, 2]], "y")
    (tmp_path / "latin.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(DamagedDataError, match=r"latin.csv is not text in UTF-8"):
        from_table(tmp_path / "latin.csv", "y")


def write_image(path, color, size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def test_a_folder_of_images_has_a_class_per_folder(tmp_path):
    write_image(tmp_path / "red" / "1.png", (255, 0, 0))
    write_image(tmp_path / "red" / "2.PNG", (250, 0, 0))
    write_image(tmp_path / "blue" / "1.png", (0, 0, 255))
    write(tmp_path / "red" / "notes.txt", "not an image")
    split = from_folder(tmp_path)
    assert (split.inputs.shape, split.inputs.dtype) == ((3, 3, 4, 6), torch.uint8)
    assert (split.targets.tolist(), split.classes) == ([0, 1, 1], ("blue", "red"))
    assert split.inputs[:, :, 0, 0].tolist() == [[0, 0, 255], [255, 0, 0], [250, 0, 0]]


def test_images_of_several_sizes_need_one(tmp_path):
    write_image(tmp_path / "a" / "1.png", "red", (6, 4))
    write_image(tmp_path / "a" / "2.png", "red", (8, 4))
    with pytest.raises(
        ValueError, match=r"2.png has 8x4 pixels and .*1.png 6x4: give a size for all of them"
    ):
        from_folder(tmp_path)
    assert from_folder(tmp_path, size=5).inputs.shape == (2, 3, 5, 5)


def test_folders_that_make_no_split_are_refused(tmp_path):
    with pytest.raises(ValueError, match="none is not a folder"):
        from_folder(tmp_path / "none")
    with pytest.raises(
        ValueError, match=r"has no images: images lie in one folder per class, as .*cat/1.png would"
    ):
        from_folder(tmp_path)
    write_image(tmp_path / "train" / "cat" / "1.png", "red")
    with pytest.raises(ValueError, match=r"1.png has no class in .*: images lie in one folder per class"):
        from_folder(tmp_path)
    (tmp_path / "train" / "cat" / "2.png").write_bytes(b"nothing")
    with pytest.raises(DamagedDataError, match=r"2.png does not decode as an image"):
        from_folder(tmp_path / "train")


class Pictures(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return Image.new("RGB", (5, 4), (index, 0, 0)), "ab"[index % 2]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(2), 0.5), (torch.zeros(2), 1.5)])


def test_a_torch_data_set_becomes_a_split():
    inputs, targets = torch.randn(5, 2), torch.arange(5)
    split = from_dataset(TensorDataset(inputs, targets))
    assert split.inputs.equal(inputs)
    assert split.targets.equal(targets)
    pictures = from_dataset(Pictures())
    assert pictures.inputs.shape == (3, 3, 4, 5)
    assert (pictures.targets.tolist(), pictures.classes) == ([0, 1, 0], ("a", "b"))
    assert from_dataset(Stream()).targets.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], "a data set without examples makes no split"),
        ([{"x": 1, "y": 2}], "example 0 is a dict, not a pair of input and target"),
        (
            [(np.ones(2), 0), (np.ones(3), 1)],
            r"the input of example 1 has the shape \(3,\), that of example 0 \(2,\)",
        ),
    ],
)
def test_data_sets_that_make_no_split_are_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        from_dataset(examples)


def test_a_table_of_ones_own_trains(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, 2))
    lines = [f"{a},{b},{a - 2 * b}" for a, b in rows]
    split = from_table(write(tmp_path / "own.csv", "\n".join(["a,b,y", *lines])), "y")
    train, test = holdout(split, 0.25)
    torch.manual_seed(0)
    fitted = fit(nn.Linear(2, 1), train, Recipe(epochs=40, batch_size=15, loss="mse", lr=0.05))
    assert fitted.evaluate(test)["mse"] < 1e-3


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
    recipe, message = (
        Recipe(epochs=1),
        "classes dog, emu are not those of training, cat, dog, emu: give both splits",
    )
    with pytest.raises(ValueError, match=message):
        fit(nn.Linear(2, 3), train, recipe, other)
    fitted = fit(nn.Linear(2, 3), train, recipe)
    with pytest.raises(ValueError, match=message):
        fitted.evaluate(other)
    same = from_arrays(inputs, ["dog", "emu"] * 3, classes=train.classes)
    wrong = fitted.predict(same).argmax(1) != torch.tensor([1, 2] * 3)  # as training numbered dog and emu
    assert fitted.evaluate(same)["error"] == pytest.approx(100 * float(wrong.double().mean()))
