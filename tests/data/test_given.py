import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from relucid.data import Data, Split, as_data
from relucid.data.given import apart

INPUTS, CLASSES = torch.randn(50, 3), torch.arange(50) % 5


@pytest.mark.parametrize(
    "given",
    [
        (INPUTS, CLASSES),
        [INPUTS.numpy(), CLASSES.numpy()],
        Split(INPUTS, CLASSES),
        TensorDataset(INPUTS, CLASSES),
        DataLoader(TensorDataset(INPUTS, CLASSES), batch_size=16),
    ],
    ids=["tensors", "arrays", "split", "dataset", "loader"],
)
def test_a_fifth_is_split_off_for_testing_always_the_same(given):
    data = as_data(given)
    assert (len(data.train), len(data.test)) == (40, 10)
    assert torch.equal(data.test.inputs, as_data((INPUTS, CLASSES)).test.inputs)
    assert data.classes == 5
    assert data.test.targets.bincount().tolist() == [2] * 5


def test_of_a_pair_of_data_sets_the_second_is_for_testing():
    data = as_data((TensorDataset(INPUTS, CLASSES), TensorDataset(INPUTS[:7], CLASSES[:7])))
    assert (len(data.train), len(data.test)) == (50, 7)


class Pictures(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, index):
        return Image.new("RGB", (5, 4), (51 * (index % 6), 0, 0)), index % 2


def test_pictures_are_read_when_they_are_needed():
    train = as_data(Pictures()).train
    inputs, targets = train.batch(torch.arange(3))
    chosen = train.indices[:3]
    assert inputs.shape == (3, 3, 4, 5)
    torch.testing.assert_close(inputs[:, 0, 0, 0], chosen % 6 / 5)
    assert targets.equal(chosen % 2)


def test_data_are_taken_as_they_are():
    given = Data(Split(INPUTS, CLASSES), Split(INPUTS[:3], CLASSES[:3]))
    assert as_data(given).test is given.test


def test_values_have_no_classes():
    assert as_data((INPUTS, INPUTS.sum(1))).classes is None


def test_the_digits_go_from_0_to_1():
    assert as_data("digits").train.inputs.max() == 1


def test_a_csv_file_needs_a_target(tmp_path):
    table = tmp_path / "t.csv"
    rows = "\n".join(f"{x},{2 * x},{x + 0.5}" for x in range(30))
    table.write_text(f"a,b,y\n{rows}\n")
    assert as_data(table, "y").train.inputs.shape == (24, 2)
    with pytest.raises(ValueError, match="--target"):
        as_data(table)


def test_a_class_with_one_example_does_not_stop_a_split():
    targets = torch.zeros(30, dtype=torch.long)
    targets[0] = 1
    rest, held = apart(Split(torch.randn(30, 2), targets), 0.2, seed=3)
    assert (len(rest), len(held)) == (24, 6)


@pytest.mark.parametrize(
    "given, words",
    [
        ((INPUTS[:5], CLASSES[:5]), "5 examples"),
        (INPUTS, "pair of inputs and targets"),
        (None, "NoneType is not data"),
        ("nowhere", "built-in set"),
        ([np.zeros(3)] * 20, "not a pair"),
    ],
)
def test_wrong_data_are_refused(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        as_data(given).train.targets.sum()


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        as_data(tmp_path)
