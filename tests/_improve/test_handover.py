from dataclasses import replace

import pytest
import torch
from torch import nn

from relucid._improve._handover import PROGRAM, exported
from relucid._improve._project import improve
from relucid._improve._task import RECIPE
from relucid.convert import load

pytestmark = pytest.mark.filterwarnings("ignore:With 2 seeds")
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


class Net(nn.Module):
    """A network of the user's own class, with a norm that fusion would fold away."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


@pytest.fixture(scope="module")
def improved(tmp_path_factory):
    """An improvement, and the directory of its runs."""
    place = tmp_path_factory.mktemp("runs")
    labels = (INPUTS.sum(1) > 0).long()
    data = (INPUTS[:1500], labels[:1500]), (INPUTS[1500:], labels[1500:])
    recipe = replace(RECIPE, epochs=1)
    return improve(Net(), data, tries=["crelu"], recipe=recipe, seeds=2, store=place, jobs=1), place


def rows_in(path, inputs):
    """How many inputs are in a file, byte for byte."""
    content = path.read_bytes()
    return sum(row.numpy().tobytes() in content for row in inputs)


@pytest.mark.parametrize("row", ["as given", "trained further", "CReLU"])
def test_what_is_returned_can_be_trained_on_by_the_users_own_class_and_deployed(
    improved, row, tmp_path, monkeypatch
):
    found, _ = improved
    monkeypatch.setattr("relucid._improve._improvement.Improvement.row", row)
    found = found.project.concluded(found.results)
    found.save(tmp_path / "out")
    loaded = load(tmp_path / "out", Net())
    assert type(loaded) is type(found.network) is Net
    assert loaded.training
    before = found.network(INPUTS)
    torch.testing.assert_close(loaded.eval()(INPUTS), before, rtol=0, atol=0)
    program = torch.export.load(tmp_path / "out" / PROGRAM).module()
    torch.testing.assert_close(program(INPUTS), before, rtol=1e-4, atol=1e-5)
    optimizer = torch.optim.SGD(loaded.train().parameters(), lr=0.1)
    loaded(INPUTS[:64]).square().sum().backward()
    optimizer.step()
    assert not torch.equal(loaded.eval()(INPUTS), before)


def test_the_returned_network_holds_none_of_the_data(improved, tmp_path):
    improved[0].save(tmp_path / "out")
    assert rows_in(tmp_path / "out" / PROGRAM, INPUTS) == 0


def test_networks_of_several_or_named_inputs_are_exported_for_batches_of_any_size(tmp_path):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layer = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids, weights):
            return self.layer((self.embedding(ids) * weights.unsqueeze(-1)).sum(1))

    network, inputs = Sum(), (torch.randint(9, (8, 5)), torch.rand(8, 5))
    for example in inputs, dict(zip(("ids", "weights"), inputs, strict=True)):
        program, note = exported(network, example)
        assert note == ""
        torch.export.save(program, tmp_path / "network.pt2")
        loaded = torch.export.load(tmp_path / "network.pt2").module()
        few = [each[:3] for each in inputs]
        found = loaded(*few) if isinstance(example, tuple) else loaded(**dict(zip(example, few, strict=True)))
        torch.testing.assert_close(found, network(*few))


@pytest.mark.parametrize("first", [0, 100])
def test_views_of_the_data_in_a_network_include_no_other_rows(tmp_path, first):
    network = Prototypes(INPUTS).eval()
    program, note = exported(network, INPUTS[first : first + 8])
    torch.export.save(program, tmp_path / "network.pt2")
    assert rows_in(tmp_path / "network.pt2", INPUTS[:9]) == 9
    assert rows_in(tmp_path / "network.pt2", INPUTS[9:]) == 0
    loaded = torch.export.load(tmp_path / "network.pt2").module()
    assert note == ""
    assert torch.equal(loaded(INPUTS[:5]), network(INPUTS[:5]))
