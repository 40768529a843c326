import copy
import json

import torch
from torch import nn

from relucid.convert import to_crelu
from relucid.inspect import examine

DATA = torch.randn(64, 4)


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())


def test_units_that_died_or_were_revived_are_named():
    before = network()
    before[0].bias.data[1] = -100
    after = copy.deepcopy(before)
    after[0].bias.data[:3] = torch.tensor([-100.0, 0.0, 0.0])
    comparison = examine(after, DATA).against(examine(before, DATA))
    assert list(comparison.shared) == ["0", "2"]
    assert (comparison.died("0"), comparison.revived("0")) == ([0], [1])
    change = (before[0](DATA) > 0).double().mean(0) - (after[0](DATA) > 0).double().mean(0)
    assert abs(comparison.moved("0") - float(change.abs().mean())) < 1e-12
    assert "0: 1 units died, 1 were revived" in str(comparison)
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_what_differs_stands_beside_what_it_was():
    before, after = network(), network()
    before[0].bias.data.fill_(-100)
    after[0].bias.data.fill_(100)
    row, _ = examine(after, DATA).against(examine(before, DATA)).rows()
    assert (row["dead"], row["always on"], row["kind"]) == ("6 -> 0", "0 -> 6", "relu")


def test_a_network_is_compared_with_its_conversion():
    before = network()
    after = to_crelu(before, DATA, layers=["0"]).model
    first, second = examine(after, DATA).against(examine(before, DATA)).rows()
    assert first["kind"] == "relu -> crelu"
    assert second["kind"] == "relu"
    assert second["activity moved by"] == "0.0%"


def test_layers_that_only_one_network_has_are_named():
    comparison = examine(network()[:2], DATA).against(examine(network(), DATA))
    assert (comparison.gone, comparison.new) == (("2",), ())
    assert "2: only in the first network" in comparison.summary()


def test_no_unit_counts_as_dead_on_a_handful_of_inputs():
    before, after = network(), network()
    after[0].bias.data.fill_(-100)
    assert examine(after, DATA[:5]).against(examine(before, DATA[:5])).died("0") == []
