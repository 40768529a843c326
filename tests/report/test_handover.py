from dataclasses import replace

import pytest
import torch
from torch import nn

from relucid.report.handover import PROGRAM, exported
from relucid.studies.improve import improve
from relucid.studies.task import RECIPE

INPUTS = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))


class Prototypes(nn.Module):
    """A network with views of the data as a parameter, a buffer and a constant."""

    def __init__(self, inputs):
        super().__init__()
        self.parameter = nn.Parameter(inputs[:3])
        self.register_buffer("buffer", inputs[3:6])
        self.constant = inputs[6:9]

    def forward(self, x):
        return (x @ self.parameter.T).relu() + x @ self.buffer.T + x @ self.constant.T


def rows_in(path, inputs):
    """How many inputs are in a file, byte for byte."""
    content = path.read_bytes()
    return sum(row.numpy().tobytes() in content for row in inputs)


def test_the_network_handed_back_holds_none_of_the_data(tmp_path):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    labels = (INPUTS.sum(1) > 0).long()
    found = improve(
        net,
        ((INPUTS[:1500], labels[:1500]), (INPUTS[1500:], labels[1500:])),
        tries=["crelu"],
        recipe=replace(RECIPE, epochs=1),
        seeds=2,
        store=tmp_path / "runs",
        jobs=1,
    )
    found.save(tmp_path / "out")
    assert rows_in(tmp_path / "out" / PROGRAM, INPUTS) == 0


@pytest.mark.parametrize("first", [0, 100])
def test_views_of_the_data_in_a_network_bring_no_other_rows_along(tmp_path, first):
    network = Prototypes(INPUTS).eval()
    program, note = exported(network, INPUTS[first : first + 8])
    torch.export.save(program, tmp_path / "network.pt2")
    assert rows_in(tmp_path / "network.pt2", INPUTS[:9]) == 9
    assert rows_in(tmp_path / "network.pt2", INPUTS[9:]) == 0
    loaded = torch.export.load(tmp_path / "network.pt2").module()
    assert note == ""
    assert torch.equal(loaded(INPUTS[:5]), network(INPUTS[:5]))
