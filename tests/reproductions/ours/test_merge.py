import pytest
import torch
from torch import nn

from relucid.convert import fuse
from relucid.models import create
from relucid_reproductions.ours.merge import (
    ALIKE,
    CURVES,
    EQUAL,
    EQUAL_SHARES,
    LAYERS,
    MERGE_DATA,
    PRUNE_DATA,
    SHARES,
    as_many,
    left,
    pruned,
)


@pytest.fixture(scope="module")
def plain():
    """A network of plain convolutions, and images."""
    torch.manual_seed(0)
    net = create("vgg6", norm="batch", num_classes=10, width=0.0625).eval()
    images = torch.randn(16, 3, 32, 32)
    return fuse(net, images[:2]).model, images


@pytest.mark.parametrize("method", [MERGE_DATA, PRUNE_DATA])
def test_a_network_is_trained_and_loses_filters_step_by_step(tmp_path, method, smoked):
    results = smoked(CURVES, tmp_path, only=method)
    (record,) = results.records.values()
    parameters = [record["metrics"][f"parameters at {share}"] for share in SHARES]
    assert parameters == sorted(parameters, reverse=True)
    assert parameters[-1] < 0.7 * parameters[0]
    (draw,) = CURVES.figures
    line = {trace.name: trace for trace in draw(results)[0].plot.data}[method]
    assert list(line.x) == parameters
    assert list(line.y) == [record["metrics"][f"error at {share}"] for share in SHARES]


def test_pruned_filters_are_the_shortest_and_stay_away_when_others_are_refitted(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    for data in (None, [images]):
        less = pruned(net, counts, data)
        for name in LAYERS:
            before, after = (one.get_submodule(name).weight.flatten(1).norm(dim=1) for one in (net, less))
            assert set((after == 0).nonzero().flatten().tolist()) == set(before.argsort()[:2].tolist())


def test_a_refitted_pruned_network_is_nearer_to_the_whole_one(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    with torch.no_grad():
        raw, refitted = (
            float((pruned(net, counts, data)(images) - net(images)).square().mean())
            for data in (None, [images])
        )
    assert refitted < raw


def test_nothing_pruned_is_the_network_itself(plain):
    net, images = plain
    with torch.no_grad():
        assert torch.equal(pruned(net, dict.fromkeys(LAYERS, 0), [images])(images), net(images))


def test_parameters_left_are_those_of_the_network_that_has_no_such_filters(plain):
    net, _ = plain
    counts = {name: number for number, name in enumerate(LAYERS)}
    channels, total = 3, 0
    for name in LAYERS:
        filters = len(net.get_submodule(name).weight) - counts[name]
        total += sum(parameter.numel() for parameter in nn.Conv2d(channels, filters, 3).parameters())
        channels = filters
    total += sum(parameter.numel() for parameter in nn.Linear(channels, 10).parameters())
    assert left(net, counts) == total


def test_pruning_leaves_as_many_parameters_as_merging(tmp_path, smoked):
    (record,) = smoked(EQUAL, tmp_path).records.values()
    metrics = record["metrics"]
    for share in EQUAL_SHARES:
        for methods in ALIKE:
            merged, cut = (metrics[f"parameters, {method} at {share}"] for method in methods)
            assert merged <= cut < 1.1 * merged < metrics["parameters"]


def test_one_more_filter_would_leave_too_few_parameters(plain):
    net, _ = plain
    counts = dict.fromkeys(LAYERS, 2)
    assert as_many(net, counts, left(net, counts)) == counts
    assert sum(as_many(net, counts, left(net, dict.fromkeys(LAYERS, 0))).values()) == 0
    assert 0 < sum(as_many(net, counts, left(net, counts) + 1).values()) < 12
