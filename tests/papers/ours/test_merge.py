import pytest
import torch
from torch import nn

from relucid.convert import fuse
from relucid.models import create
from relucid.papers.ours.merge import (
    EQUAL_SHARES,
    LAYERS,
    MERGE,
    MERGE_DATA,
    PRUNE,
    PRUNE_DATA,
    SHARES,
    STUDIES,
    as_many,
    pruned,
)
from relucid.papers.ours.merge import _parameters_left as parameters_left

EQUAL, STUDY = STUDIES


@pytest.fixture(scope="module")
def plain():
    """A network of plain convolutions, and images."""
    torch.manual_seed(0)
    net = create("vgg6", norm="batch", num_classes=10, width=0.0625).eval()
    images = torch.randn(16, 3, 32, 32)
    return fuse(net, images[:2]).model, images


@pytest.mark.parametrize("method", [MERGE_DATA, PRUNE_DATA])
def test_a_network_is_trained_and_loses_filters_step_by_step(tmp_path, method, smoke_tested):
    (record,) = smoke_tested(STUDY, tmp_path, only=method).runs
    left = [record["metrics"][f"parameters at {share}"] for share in SHARES]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.7 * left[0]


def test_pruned_filters_are_the_shortest_and_stay_away_when_others_are_refitted(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    for data in (None, [images]):
        less = pruned(net, counts, data)
        for name in LAYERS:
            before, after = (each.get_submodule(name).weight.flatten(1).norm(dim=1) for each in (net, less))
            assert set((after == 0).nonzero().flatten().tolist()) == set(before.argsort()[:2].tolist())


def test_a_refitted_pruned_network_is_nearer_to_the_whole_one(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    with torch.no_grad():
        errors = [
            float((pruned(net, counts, data)(images) - net(images)).square().mean())
            for data in (None, [images])
        ]
    assert errors[1] < errors[0]


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
    assert parameters_left(net, counts) == total


@pytest.mark.parametrize("gain, state", [(10.0, "undecided"), (0.0, "no difference found")])
def test_merging_is_compared_with_pruning_of_the_same_kind(filled, standing, gain, state):
    def values(row, column):
        whole, wobble = (41.0 - gain, 0.01) if row == MERGE else (41.0, 0.0)
        return [whole - 1 - wobble, whole + 2 * wobble, whole + 1 - wobble]

    found = standing(filled(STUDY, values), "merging opposite filters")
    assert found.state == state
    assert [(each.expected.a.row, each.expected.b.row) for each in found.judged] == [
        *[(MERGE, PRUNE)] * 2,
        *[(MERGE_DATA, PRUNE_DATA)] * 2,
    ]
    assert f"{PRUNE} {gain:+.1f}" in found.remark


def test_pruning_leaves_as_many_parameters_as_merging(tmp_path, smoke_tested):
    (record,) = smoke_tested(EQUAL, tmp_path).runs
    metrics = record["metrics"]
    for share in EQUAL_SHARES:
        for merge, prune in ((MERGE, PRUNE), (MERGE_DATA, PRUNE_DATA)):
            merged, cut = (metrics[f"parameters, {method} at {share}"] for method in (merge, prune))
            assert merged <= cut < 1.1 * merged < metrics["parameters"]


def test_one_more_filter_would_leave_too_few_parameters(plain):
    net, _ = plain
    counts = dict.fromkeys(LAYERS, 2)
    whole = parameters_left(net, dict.fromkeys(LAYERS, 0))
    assert as_many(net, counts, parameters_left(net, counts)) == counts
    assert sum(as_many(net, counts, whole).values()) == 0
    some = as_many(net, counts, parameters_left(net, counts) + 1)
    assert 0 < sum(some.values()) < 12
