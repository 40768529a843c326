"""Batches in the form that a network accepts; that all forms of data hold the same is tested in tests/data."""

from collections import UserDict

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relucid.inspect import examine
from relucid.inspect.batches import batches_of
from relucid.inspect.execution import Arguments

INPUTS = torch.randn(150, 4)
LABELS = torch.arange(150) % 3


class Named(nn.Module):
    """A network that is called by name."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)

    def forward(self, x, gain=None):
        return (self.fc(x) * (1 if gain is None else gain)).relu()


@pytest.mark.parametrize(
    "data, batches", [(INPUTS, 3), ((INPUTS, LABELS), 3), ((part for part in INPUTS.split(40)), None)]
)
def test_progress_counts_the_batches_where_their_number_is_known(data, batches):
    totals = set()
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    examination = examine(net, INPUTS[:1], data, progress=lambda what, _, total: totals.add((what, total)))
    assert totals == {("layers", 1), ("batches", batches)}
    torch.testing.assert_close(examination["0"].activity.active, (net[0](INPUTS) > 0).double().mean(0))


@pytest.mark.parametrize(
    "data",
    [
        {"x": INPUTS},
        UserDict(x=INPUTS),  # what a tokenizer returns
        {"x": INPUTS.double().numpy(), "label": LABELS},
        [{"x": batch, "label": None} for batch in INPUTS.split(40)],
    ],
)
def test_arguments_may_be_named(data):
    net = Named()
    examination = examine(net, UserDict(x=INPUTS[:1]), data)["fc"].activity
    torch.testing.assert_close(examination.active, (net.fc(INPUTS) > 0).double().mean(0))
    assert examination.inputs == 150


def test_no_argument_is_dropped_but_labels_that_the_network_does_not_take():
    named = Arguments((), {"x": INPUTS[:1]})
    (part,) = batches_of([{"x": INPUTS, "gain": INPUTS[:, :1], "labels": LABELS}], named)
    assert part.kwargs.keys() == {"x", "gain"}
    (part,) = batches_of([(INPUTS, LABELS)], Arguments((INPUTS[:1],)))
    assert len(part.args) == 1
    assert torch.equal(part.args[0], INPUTS)


def test_several_arguments_may_be_given_in_order_with_labels_after_them():
    net = Named()
    loader = DataLoader(TensorDataset(INPUTS, -torch.ones(150, 1), LABELS), batch_size=50)
    examination = examine(net, (INPUTS[:1], torch.ones(1, 1)), loader)["relu"].activity
    torch.testing.assert_close(examination.active, (net.fc(INPUTS) < 0).double().mean(0))
