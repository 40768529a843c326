"""Results print as their summaries, and as tables in notebooks."""

import pytest
import torch
from torch import nn

from relucid.convert import to_crelu
from relucid.inspect import examine, pairing, phase_correlation, reconstruct, trace
from relucid.inspect._invariance import Invariance, LayerInvariance
from relucid.printing import html_table
from relucid.train import Ensemble, Fitted


@pytest.fixture(scope="module")
def net():
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.fixture(scope="module")
def results(net):
    weight, inputs = net[0].weight.detach(), torch.randn(64, 6)
    found = examine(net, inputs)
    rates = LayerInvariance(torch.zeros(2), torch.full((2,), 0.5), torch.full((2,), 0.5))
    every = [
        found,
        found.against(found),
        *found["0"].measured.values(),
        pairing(weight),
        phase_correlation(torch.randn(3, 8)),
        reconstruct(nn.Linear(6, 4, bias=False), torch.randn(1, 8), (6,)),
        trace(net, inputs),
        Invariance({"0": rates}, ("flip",)),
        to_crelu(net, inputs),
    ]
    return {type(each).__name__: each for each in every}


def test_a_result_prints_as_its_summary_and_shows_no_tensor(results):
    assert len(results) > 10
    for result in results.values():
        assert str(result) == result.summary() != ""
        assert "tensor(" not in str(result)


def test_an_examination_shows_in_one_line_where_it_is_not_printed(net):
    examined = examine(net, torch.randn(64, 6))
    found = len(examined.findings)
    expected = f"<Examination of 2 layers, {found} finding{'s' * (found != 1)}; print it for the summary>"
    assert repr(examined) == expected


@pytest.mark.parametrize("name", ["Examination", "Changes", "Conversion"])
def test_a_table_is_a_table_in_a_notebook_too(results, name):
    result = results[name]
    shown = result._repr_html_()
    assert shown.startswith(html_table(result.rows()))
    assert shown.count("<tr>") == 1 + len(result.rows())
    assert all(f"<th>{heading}</th>" in shown for heading in result.rows()[0])


def test_what_names_hold_is_no_markup():
    odd = nn.ModuleDict({"<script>": nn.Linear(3, 2)})
    odd.forward = lambda x: torch.relu(odd["<script>"](x))
    shown = examine(odd, torch.randn(50, 3))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_training_prints_how_far_it_came():
    history = {"loss": [2.0, 0.12345], "error": [50.0, 12.5]}
    fitted = Fitted(nn.Identity(), None, history, "cross_entropy", torch.device("cpu"))
    assert str(fitted) == "after 2 epochs: loss 0.1235, error 12.5"
    steps = torch.zeros(9, 3)
    trained = Ensemble(torch.tensor([0.5, 0.25, 1]), torch.tensor([9, 4, 7]), steps[0] > 0, steps, steps)
    assert str(trained) == "3 networks, 4 to 9 epochs, best 0.25 to 1, 0 diverged"
