import pytest
import torch
from relucid.studies.merge import LAYERS, MERGE, MERGE_DATA, PRUNE, PRUNE_DATA, SHARES, STUDIES, label, pruned
from relucid.studies.merge import _parameters_left as parameters_left
from torch import nn

from relucid.convert import fuse
from relucid.models import create
from relucid.studies import run, table
from relucid.studies.table import Cell, Table

(STUDY,) = STUDIES


@pytest.fixture(scope="module")
def plain():
    """A network of plain convolutions, and images."""
    torch.manual_seed(0)
    net = create("vgg6", norm="batch", num_classes=10, width=0.0625).eval()
    images = torch.randn(16, 3, 32, 32)
    return fuse(net, images[:2]).model, images


@pytest.mark.parametrize("method", [MERGE_DATA, PRUNE_DATA])
def test_a_network_is_trained_and_loses_filters_step_by_step(tmp_path, method):
    run(STUDY, "smoke", only=method, store=tmp_path, jobs=1)
    (record,) = table(STUDY, "smoke", only=method, store=tmp_path).runs
    assert record["state"] == "finished", record["error"]
    left = [record["metrics"][f"parameters at {share}"] for share in SHARES]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.7 * left[0]


def test_pruned_filters_are_the_shortest_and_stay_away_when_others_are_refitted(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    for data in (None, [images]):
        less = pruned(net, counts, images[:2], data)
        for name in LAYERS:
            before, after = (each.get_submodule(name).weight.flatten(1).norm(dim=1) for each in (net, less))
            assert set((after == 0).nonzero().flatten().tolist()) == set(before.argsort()[:2].tolist())


def test_refitting_brings_a_pruned_network_nearer_to_the_whole_one(plain):
    net, images = plain
    counts = dict.fromkeys(LAYERS, 2)
    with torch.no_grad():
        errors = [
            float((pruned(net, counts, images[:2], data)(images) - net(images)).square().mean())
            for data in (None, [images])
        ]
    assert errors[1] < errors[0]


def test_nothing_pruned_is_the_network_itself(plain):
    net, images = plain
    with torch.no_grad():
        assert torch.equal(pruned(net, dict.fromkeys(LAYERS, 0), images[:2], [images])(images), net(images))


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


@pytest.mark.parametrize(
    "merged, words",
    [
        ((30.0, 31.0), "25% without data -10.00 ± 0.71 (p = 0.005), the claim holds here"),
        ((40.0, 41.0), "no more than noise"),
    ],
)
def test_the_verdict_follows_the_figures(merged, words):
    rows = dict.fromkeys(STUDY.rows, (40.0, 41.0)) | {MERGE: merged}
    cells = {
        (row, label(share)): Cell(values, 2, {"finished": 2})
        for row, values in rows.items()
        for share in SHARES
    }
    runs = [
        {
            "config": {"method": row},
            "metrics": {f"error at {share}": 40 + share for share in SHARES}
            | {f"parameters at {share}": 100 - (20 if row == PRUNE else 10) * share for share in SHARES},
        }
        for row in STUDY.rows
    ]
    said = STUDY.verdict(Table(STUDY, "small", cells, runs))
    assert words in said
    assert f"At equal parameters, 95: merge {sum(merged) / 2:.1f}%, pruning 40.2%" in said
    assert f"{PRUNE} {40.5 - sum(merged) / 2:+.1f}" in said
