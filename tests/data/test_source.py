"""Data in any form are read alike, wherever relucid takes data: one law for every form."""

from collections import UserDict

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset as HuggingFace
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from relucid.data import Arrays, Data, Rows, Split, Stream, as_data, in_batches
from relucid.data.parts import apart
from relucid.data.source import SIZE, source

INPUTS = torch.randn(150, 4)
CLASSES = torch.arange(150) % 3
PARTS = Split(INPUTS[:100], CLASSES[:100]), Split(INPUTS[100:], CLASSES[100:])


class Examples(Dataset):
    def __len__(self):
        return 150

    def __getitem__(self, index):
        return {"x": INPUTS[index], "labels": int(CLASSES[index])}


class Endless(IterableDataset):
    def __iter__(self):
        return iter(zip(INPUTS, CLASSES, strict=True))


def table(path, write):
    frame = pd.DataFrame(INPUTS.double().numpy(), columns=list("abcd")).assign(y=CLASSES.numpy())
    getattr(frame, write)(path, index=False)
    return path


def saved(path, write, *args, **kwargs):
    write(*args, **kwargs)
    return path


# Form -> data with targets from a directory, in the order of INPUTS and CLASSES, and whether inputs have names.
LABELED = {
    "tensors": lambda place: (INPUTS, CLASSES),
    "arrays": lambda place: (INPUTS.numpy(), CLASSES.numpy()),
    "text labels": lambda place: (INPUTS, np.array(["a", "b", "c"])[CLASSES]),
    "split": lambda place: Split(INPUTS, CLASSES),
    "mapping": lambda place: {"x": INPUTS, "y": CLASSES},
    "mapping of any kind": lambda place: UserDict(x=INPUTS.numpy(), labels=CLASSES),
    "tensor data set": lambda place: TensorDataset(INPUTS, CLASSES),
    "data set of mappings": lambda place: Examples(),
    "list of examples": lambda place: list(zip(INPUTS, CLASSES.tolist(), strict=True)),
    "loader": lambda place: DataLoader(TensorDataset(INPUTS, CLASSES), batch_size=16),
    "Hugging Face": lambda place: HuggingFace.from_dict(
        {"x": INPUTS.tolist(), "label": CLASSES.tolist()}
    ).with_format("torch"),
    "npz": lambda place: saved(place / "d.npz", np.savez, place / "d", x=INPUTS.numpy(), y=CLASSES.numpy()),
    "pt": lambda place: saved(place / "d.pt", torch.save, (INPUTS, CLASSES), place / "d.pt"),
    "safetensors": lambda place: saved(
        place / "d.safetensors", save_file, {"x": INPUTS, "y": CLASSES}, place / "d.safetensors"
    ),
}
UNLABELED = {
    "tensor": lambda place: INPUTS,
    "array": lambda place: INPUTS.numpy(),
    "npy": lambda place: saved(place / "d.npy", np.save, place / "d.npy", INPUTS.numpy()),
    "one tensor in a data set": lambda place: TensorDataset(INPUTS),
}
STREAMS = {
    "list of batches": lambda place: list(INPUTS.split(40)),
    "list of arrays": lambda place: [batch.numpy() for batch in INPUTS.split(40)],
    "list of lists": lambda place: [[batch, None] for batch in INPUTS.split(40)],
    "two batches in a list": lambda place: [INPUTS[:75], INPUTS[75:]],
    "list of mappings": lambda place: [{"x": batch, "label": None} for batch in INPUTS.split(40)],
    "generator": lambda place: (batch for batch in INPUTS.split(40)),
    "loader of an iterable": lambda place: DataLoader(Endless(), batch_size=7),
}


def inputs_of(data):
    """All inputs in order, of batches in any form."""
    found = []
    for batch in in_batches(data):
        first = batch["x"] if isinstance(batch, dict) else batch
        first = first[0] if isinstance(first, tuple | list) else first
        found.append(torch.as_tensor(first))
    return torch.cat(found)


def matrix(inputs):
    return inputs["x"] if isinstance(inputs, dict) else inputs


@pytest.mark.parametrize("form", LABELED)
def test_data_with_targets_have_the_same_examples_in_every_form(form, tmp_path):
    found = source(LABELED[form](tmp_path))
    assert isinstance(found, Arrays | Rows)
    indices = torch.tensor([149, 3, 77])
    inputs, targets = found.batch(indices)
    torch.testing.assert_close(matrix(inputs), INPUTS[indices])
    assert targets.tolist() == CLASSES[indices].tolist()
    assert found.targets.tolist() == CLASSES.tolist()
    torch.testing.assert_close(inputs_of(found), INPUTS)
    data = as_data(LABELED[form](tmp_path))
    assert (len(data.train), len(data.test)) == (120, 30)


@pytest.mark.parametrize("form", UNLABELED | STREAMS)
def test_data_without_targets_are_the_same_batches_in_every_form(form, tmp_path):
    make = (UNLABELED | STREAMS)[form]
    torch.testing.assert_close(inputs_of(make(tmp_path)), INPUTS)
    assert isinstance(source(make(tmp_path)), Stream) == (form in STREAMS)
    with pytest.raises((TypeError, ValueError)):
        as_data(make(tmp_path)).train.targets.sum()


@pytest.mark.parametrize("suffix, write", [("csv", "to_csv"), ("parquet", "to_parquet")])
def test_tables_and_frames_have_the_same_examples(tmp_path, suffix, write):
    path = table(tmp_path / f"t.{suffix}", write)
    for given in (path, str(path), pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)):
        found = source(given, target="y")
        torch.testing.assert_close(found.inputs, INPUTS)
        assert found.targets.tolist() == CLASSES.tolist()


@pytest.mark.parametrize(
    "given",
    [Data(*PARTS), PARTS, [*PARTS], ((INPUTS[:100], CLASSES[:100]), (INPUTS[100:], CLASSES[100:]))],
    ids=["data", "a tuple", "a list", "two tuples"],
)
def test_of_two_parts_the_second_is_for_testing_and_both_have_batches(given):
    data = as_data(given)
    assert (len(data.train), len(data.test), data.classes) == (100, 50, 3)
    torch.testing.assert_close(inputs_of(given), INPUTS)


def test_a_fifth_is_split_off_for_testing_always_the_same():
    data, again = as_data((INPUTS, CLASSES)), as_data((INPUTS.numpy(), CLASSES.numpy()))
    assert torch.equal(data.test.inputs, again.test.inputs)
    assert data.test.targets.bincount().tolist() == [10] * 3
    assert as_data((INPUTS, INPUTS.sum(1))).classes is None


def test_a_tuple_of_two_arrays_is_inputs_and_targets_and_a_list_holds_batches():
    ((inputs, targets),) = in_batches((INPUTS[:60, :3], INPUTS[:60, 3]))  # columns of one table
    assert (inputs.shape, targets.shape) == ((60, 3), (60,))
    assert source((INPUTS, INPUTS.clone())).targets is not None
    assert len(list(in_batches([INPUTS, INPUTS.clone()]))) == 2


def test_what_was_guessed_before_is_taken_for_one_more_release_with_a_warning():
    with pytest.warns(FutureWarning, match="tuple"):
        assert source([INPUTS, CLASSES]).targets.equal(CLASSES)
    with pytest.warns(FutureWarning, match="list"):
        assert torch.cat(list(in_batches(INPUTS.split(75)))).equal(INPUTS)


def test_arrays_are_neither_copied_nor_read_before_they_are_needed():
    assert source((INPUTS, CLASSES)).inputs.data_ptr() == INPUTS.data_ptr()
    images = np.random.default_rng(0).random((30, 3, 4, 4), np.float32)
    assert source((images, np.zeros(30, int))).inputs.data_ptr() == images.ctypes.data


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


def test_the_digits_go_from_0_to_1():
    assert as_data("digits").train.inputs.max() == 1


def test_a_class_with_one_example_does_not_stop_a_split():
    targets = torch.zeros(30, dtype=torch.long)
    targets[0] = 1
    rest, held = apart(Split(torch.randn(30, 2), targets), 0.2, seed=3)
    assert (len(rest), len(held)) == (24, 6)


def test_batches_have_so_many_rows_and_what_is_no_row_belongs_to_each():
    assert [len(batch) for batch in in_batches(INPUTS)] == [SIZE, SIZE, 150 - 2 * SIZE]
    batches = list(in_batches({"x": INPUTS, "scale": torch.tensor(2.0), "flag": True}, 100))
    assert [(len(b["x"]), b["scale"].item(), b["flag"]) for b in batches] == [(100, 2, True), (50, 2, True)]


def damaged(place):
    (place / "d.npz").write_bytes(b"PK\x03\x04 nothing")
    return place / "d.npz"


def pickled(place):
    torch.save({"x": Pictures()}, place / "d.pt")
    return place / "d.pt"


@pytest.mark.parametrize(
    "make, options, error, value",
    [
        (lambda p: (INPUTS[:5], CLASSES[:5]), {}, ValueError, "5 examples"),
        (lambda p: (INPUTS, CLASSES[:7]), {}, ValueError, "150 inputs"),
        (lambda p: None, {}, TypeError, "NoneType"),
        (lambda p: 7, {}, TypeError, "int"),
        (lambda p: "nowhere", {}, ValueError, "nowhere"),
        (lambda p: p / "none.npy", {}, ValueError, "none.npy"),
        (lambda p: p, {}, ValueError, "is empty"),
        (lambda p: table(p / "t.csv", "to_csv"), {}, ValueError, "--target"),
        (lambda p: table(p / "t.csv", "to_csv"), {"target": "z"}, ValueError, "'z'"),
        (lambda p: (INPUTS, CLASSES), {"target": "y"}, ValueError, "'y'"),
        (lambda p: (INPUTS, CLASSES), {"size": 3}, ValueError, "size=3"),
        (lambda p: [Image.new("RGB", (2, 2))] * 20, {}, ValueError, "Tensor"),
        (lambda p: {"x": INPUTS}, {}, TypeError, "no targets"),
        (damaged, {}, ValueError, "d.npz"),
        (pickled, {}, ValueError, "d.pt"),
    ],
)
def test_wrong_data_are_refused(make, options, error, value, tmp_path):
    with pytest.raises(error, match=value):
        as_data(make(tmp_path), **options).train.targets.sum()
