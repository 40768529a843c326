import pytest
import torch
from torch import nn

from relucid.inspect import examine

LABELS = torch.arange(150) % 3


@pytest.fixture
def examined():
    """Units that look at one coordinate each; a class is where its coordinate is 1."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    net[0].weight.data = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 1], [-1, -1, -1]])
    net[0].bias.data = torch.tensor([-0.5, -0.5, 0.0, 0.0])
    data = torch.nn.functional.one_hot(LABELS, 3).float()
    batches = [(data[i : i + 40], LABELS[i : i + 40]) for i in range(0, 150, 40)]
    return examine(net, data[:1], batches, measures=["classes"])


def test_activity_is_counted_by_class(examined):
    found = examined["0"].measured["classes"]
    assert found.labels == (0, 1, 2)
    assert found.inputs.tolist() == [50, 50, 50]
    assert found.active.tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    assert found.selectivity[:3].tolist() == [1, 1, 0]
    assert found.selectivity[3].isnan()


def test_units_of_one_class_are_a_finding_if_each_class_has_enough_inputs(examined):
    (finding,) = examined.findings
    assert (finding.kind, finding.evidence) == ("one class", {"units": [0, 1], "inputs": 50})
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    few = examine(net, torch.randn(1, 3), [(torch.randn(60, 3), LABELS[:60])], measures=["classes"])
    assert not few.findings


def test_positions_are_averaged():
    net, images, labels = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.randn(20, 1, 5, 5), LABELS[:20]
    found = examine(net, images[:1], [(images, labels)], measures=["classes"])["0"].measured["classes"]
    expected = (net[0](images[labels == 1]) > 0).double().mean((0, 2, 3))
    torch.testing.assert_close(found.active[:, 1], expected)


def test_without_labels_nothing_is_measured():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    assert not examine(net, torch.randn(50, 3), measures=["classes"])["0"].measured
