"""Data in any form that people have it."""

from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from relucid.data import Data, Split
from relucid.data.batches import SIZE
from relucid.inspect import examine
from relucid.inspect.batches import batches_of

INPUTS = torch.randn(150, 4)
LABELS = torch.arange(150) % 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(INPUTS, LABELS, strict=True))


class Named(nn.Module):
    """A network that is called by name."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)

    def forward(self, x, gain=None):
        return (self.fc(x) * (1 if gain is None else gain)).relu()


FORMS = {
    "a split": lambda: Split(INPUTS, LABELS),
    "two parts": lambda: Data(Split(INPUTS[:100], LABELS[:100]), Split(INPUTS[100:], LABELS[100:])),
    "a tensor": lambda: INPUTS,
    "an array": lambda: INPUTS.numpy(),
    "an array of doubles": lambda: INPUTS.double().numpy(),
    "inputs and labels": lambda: (INPUTS, LABELS),
    "inputs and labels as arrays": lambda: (INPUTS.numpy(), LABELS.numpy()),
    "inputs and targets of several numbers": lambda: (INPUTS, INPUTS[:, :2].clone()),
    "two batches": lambda: [INPUTS[:75], INPUTS[75:].clone()],
    "two batches cut from one tensor": lambda: INPUTS.split(75),
    "two batches cut from one array": lambda: tuple(np.split(INPUTS.numpy(), 2)),
    "a data set": lambda: TensorDataset(INPUTS),
    "a data set with labels": lambda: TensorDataset(INPUTS, LABELS),
    "a stream": Stream,
    "a loader of a stream": lambda: DataLoader(Stream(), batch_size=7),
    "a loader": lambda: DataLoader(TensorDataset(INPUTS), batch_size=7),
    "a loader with labels": lambda: DataLoader(TensorDataset(INPUTS, LABELS), batch_size=7),
    "a list of batches": lambda: list(INPUTS.split(40)),
    "a list of arrays": lambda: [batch.numpy() for batch in INPUTS.split(40)],
    "a generator": lambda: (batch for batch in INPUTS.split(40)),
    "a list of lists": lambda: [[batch, None] for batch in INPUTS.split(40)],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_counted_alike(form):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    found = examine(net, INPUTS[:1], FORMS[form]())["0"].activity
    torch.testing.assert_close(found.active, (net[0](INPUTS) > 0).double().mean(0))
    assert found.inputs == 150


@pytest.mark.parametrize(
    "form, batches", [("a tensor", 3), ("a split", 3), ("two parts", None), ("a generator", None)]
)
def test_progress_counts_the_batches_where_their_number_is_known(form, batches):
    totals = set()
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    examine(net, INPUTS[:1], FORMS[form](), progress=lambda what, _, total: totals.add((what, total)))
    assert totals == {("layers", 1), ("batches", batches)}


def test_inputs_and_targets_of_one_shape_are_not_taken_for_two_batches():
    with pytest.raises(ValueError, match="two batches"):
        examine(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), INPUTS[:1], (INPUTS, INPUTS.clone()))


@pytest.mark.parametrize(
    "data",
    [
        {"x": INPUTS},
        {"x": INPUTS.numpy(), "label": LABELS},
        [{"x": batch, "label": None} for batch in INPUTS.split(40)],
    ],
)
def test_arguments_may_be_named(data):
    net = Named()
    found = examine(net, {"x": INPUTS[:1]}, data)["fc"].activity
    torch.testing.assert_close(found.active, (net.fc(INPUTS) > 0).double().mean(0))
    assert found.inputs == 150


def test_arguments_may_come_in_any_mapping():
    net = Named()
    batch = UserDict(x=INPUTS)  # what a tokenizer returns
    found = examine(net, UserDict(x=INPUTS[:1]), batch)["fc"].activity
    torch.testing.assert_close(found.active, (net.fc(INPUTS) > 0).double().mean(0))


def test_no_argument_is_dropped_but_labels_that_the_network_does_not_take():
    (part,) = batches_of([{"x": INPUTS, "gain": INPUTS[:, :1], "labels": LABELS}], {"x": INPUTS[:1]})
    assert part.arguments.keys() == {"x", "gain"}


def test_several_arguments_may_be_given_in_order_with_labels_after_them():
    net = Named()
    loader = DataLoader(TensorDataset(INPUTS, -torch.ones(150, 1), LABELS), batch_size=50)
    found = examine(net, (INPUTS[:1], torch.ones(1, 1)), loader)["relu"].activity
    torch.testing.assert_close(found.active, (net.fc(INPUTS) < 0).double().mean(0))


def test_large_arrays_are_split_and_labels_left_out():
    parts = list(batches_of(INPUTS, INPUTS[:1]))
    assert [part.inputs for part in parts] == [SIZE, SIZE, 150 - 2 * SIZE]
    (part,) = batches_of([(INPUTS, LABELS)], INPUTS[:1])
    assert torch.equal(part.arguments, INPUTS)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_in_the_data_are_refused(bad):
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
    data = INPUTS.clone()
    data[100, 2] = bad
    with pytest.raises(ValueError, match=r"batch 1 .*1 of 256"):
        examine(net, INPUTS[:1], data)


@pytest.mark.parametrize(
    "data", [[], iter(()), torch.zeros(0, 4), np.zeros((0, 4)), TensorDataset(INPUTS[:0])]
)
def test_no_data_at_all_is_refused(data):
    with pytest.raises(ValueError, match="empty"):
        examine(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), INPUTS[:1], data)


def test_data_of_another_rank_than_the_example_is_refused():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    with pytest.raises(ValueError, match=r"3 dimensions .* 2 on the example"):
        examine(net, INPUTS[:1], INPUTS.view(50, 3, 4))


def test_other_things_than_data_are_refused():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    with pytest.raises(TypeError, match="not int"):
        examine(net, INPUTS[:1], 7)
    with pytest.raises(ValueError, match=r"images.npy"):
        examine(net, INPUTS[:1], "images.npy")
    with pytest.raises(TypeError, match="mapping"):
        examine(net, INPUTS[:1], [{"x": INPUTS}])
