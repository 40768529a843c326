import pytest
import torch
from torch import nn

from relucid.models import create, describe


@pytest.mark.parametrize(
    "name, multiply_adds",
    [("resnet18", 1_814_073_344), ("resnet50", 4_089_184_256), ("densenet121", 2_834_161_664)],
)
def test_multiply_adds_are_those_everyone_knows(name, multiply_adds):
    with torch.device("meta"):
        net = create(name, num_classes=1000)
    assert describe(net).multiply_adds == multiply_adds


def test_the_table_has_a_line_for_each_layer_and_the_sums():
    net = create("crelu/convpool-half", num_classes=10)
    lines = str(describe(net)).splitlines()
    assert lines[0].split() == ["layer", "kind", "output", "parameters", "multiply-adds"]
    assert lines[1].split() == ["conv1", "Conv2d", "48", "x", "32", "x", "32", "1,344", "1,327,104"]
    assert lines[-1].split() == ["total", "644,314", f"{describe(net).multiply_adds:,}"]
    assert len(lines) == 2 + len(list(net.children()))
    assert len(set(map(len, lines))) == 1


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 8)

    def forward(self, x):
        return self.cell(x)[0]


CONVOLUTION = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
EMBEDDING = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 2))


@pytest.mark.parametrize(
    "net, example, rows",
    [
        (CONVOLUTION, torch.zeros(5, 1, 8, 8), [((2, 6, 6), 2 * 9 * 36), ((72,), 0), ((3,), 216)]),
        (EMBEDDING, torch.zeros(5, 3, dtype=torch.long), [((3, 4), 0), ((12,), 0), ((2,), 24)]),
        (Cell(), torch.zeros(5, 3), [((8,), 4 * 8 * (3 + 8))]),  # of several outputs the first is shown
    ],
)
def test_other_networks_are_described_by_an_example(net, example, rows):
    assert [(row.output_shape, row.multiply_adds) for row in describe(net, example).rows] == rows
    with pytest.raises(ValueError, match="describe needs an example input"):
        describe(net)


@pytest.mark.parametrize("layer", [nn.LSTM(3, 8), nn.GRU(3, 8), nn.MultiheadAttention(8, 2)])
def test_layers_whose_multiply_adds_cannot_be_counted_are_refused(layer):
    with pytest.raises(ValueError, match=f"multiply-adds of 0, a {type(layer).__name__}$"):
        describe(nn.Sequential(layer), torch.zeros(5, 4, 3))


def test_describing_changes_nothing():
    net = create("vgg6", norm="batch", num_classes=10, width=0.1)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    describe(net)
    assert net.training
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not net._forward_hooks


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_of_any_precision_is_described(dtype):
    net = create("vgg6", num_classes=10, width=0.1)
    assert describe(net) == describe(net.to(dtype))
