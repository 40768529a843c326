"""A network on many batches: what is followed is what would have been recorded."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.inspect import examine
from relucid.inspect.execution import execute
from relucid.inspect.replay import following
from relucid.nn import CReLU


class Deciding(nn.Module):
    """Takes one of several ways, depending on the values that it is given."""

    def __init__(self, way):
        super().__init__()
        self.first, self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.way = way

    def forward(self, x):
        x, high = torch.relu(self.first(x)), bool(x.mean() > 0)
        if self.way == "a module":
            return torch.relu((self.one if high else self.two)(x))
        if self.way == "a weight":
            return torch.relu(F.linear(x, self.one.weight if high else self.two.weight))
        if self.way == "one more":
            x = torch.relu(self.one(x))
            return torch.relu(self.two(x)) if high else x
        return torch.relu(self.one(x)) if high else torch.relu(self.one(torch.sigmoid(x)))


def seen(model, batches, run):
    found = [[] for _ in batches]
    for values, batch in zip(found, batches, strict=True):
        run(model, batch, lambda node, value, values=values: values.append((node.name, value.clone())))
    return found


def follow(model, batches):
    with following(model) as run:
        return seen(model, batches, lambda _, batch, visit: run(batch, visit))


@pytest.mark.parametrize("way", ["a module", "a weight", "one more", "another operation"])
def test_a_network_that_decides_on_its_values_is_seen_as_it_runs_each_layer_once(way):
    model = Deciding(way)
    batches = [torch.randn(6, 4) + sign for sign in (3, 3, -3, -3, 3)]
    expected, found = seen(model, batches, execute), follow(model, batches)
    for before, after in zip(expected, found, strict=True):
        assert sorted(name for name, _ in before) == sorted(name for name, _ in after)
        after = dict(after)
        assert all(torch.equal(value, after[name]) for name, value in before)


@pytest.mark.parametrize("way", ["a module", "a weight", "one more", "another operation"])
@pytest.mark.parametrize("sign", [3, -3])
def test_the_recording_of_another_batch_is_followed_only_as_far_as_it_goes(way, sign):
    model, batch = Deciding(way), torch.randn(6, 4) + 3
    recording = execute(model, torch.randn(1, 4) + sign)
    ((*expected,),) = seen(model, [batch], execute)
    with following(model, recording) as run:
        ((*found,),) = seen(model, [batch], lambda _, given, visit: run(given, visit))
    assert sorted(name for name, _ in expected) == sorted(name for name, _ in found)
    assert all(torch.equal(value, dict(found)[name]) for name, value in expected)


def test_batches_and_images_of_other_sizes_are_followed():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1), CReLU()
    )
    batches = [torch.randn(2, 3, 8, 8), torch.randn(5, 3, 8, 8), torch.randn(1, 3, 6, 9)]
    for before, after in zip(seen(model, batches, execute), follow(model, batches), strict=True):
        assert [name for name, _ in before] == [name for name, _ in after]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(before, after, strict=True))


def test_the_network_runs_once_over_the_data_for_all_measurements():
    calls = []
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    net.register_forward_pre_hook(lambda *_: calls.append(1))
    told = []
    examine(
        *(net, torch.randn(2, 4), torch.randn(300, 4)),
        measures=["pairing", "boundary", "activity", "complexity"],
        progress=lambda *said: told.append(said),
    )
    assert len(calls) == 1 + 5  # to find the layers, and a batch of 64 at a time
    assert told == [("layers", 1, 1), *(("batches", number, 5) for number in range(1, 6))]


def test_memory_does_not_grow_with_the_data():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    alive = []

    def batches():
        for _ in range(20):
            batch = torch.randn(128, 64)
            alive.append(batch.untyped_storage().data_ptr())
            yield batch

    examine(net, torch.randn(1, 64), batches(), measures=["activity", "complexity"])
    assert len(set(alive)) < 10  # the memory of the first batches is used again


@pytest.mark.needs("rich")
def test_bars_are_drawn_where_they_are_wanted(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    net, data = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), torch.randn(300, 4)
    examine(net, data[:1], data)
    assert capsys.readouterr().err == ""
    examine(net, data[:1], data, progress=True)
    shown = capsys.readouterr()
    assert "layers" in shown.err
    assert "batches" in shown.err
    assert shown.out == ""
