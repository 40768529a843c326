import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.inspect import effective_rank, examine, stable_rank
from relucid.inspect.features import LARGEST
from relucid.nn import CReLU

DATA = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))


def measured(net, data=DATA, example=None, layer="0"):
    examination = examine(net, data[:2] if example is None else example, data, measures=["plasticity"])
    return examination[layer].plasticity


def reference(outputs, units, phases=1):
    """Activity of units and singular values of outputs (places, channels), by the definitions."""
    size = outputs.abs().double().mean(0).view(phases, units).sum(0)
    return size / size.mean(), torch.linalg.svdvals(outputs.double())


ACTIVATIONS = {
    "relu": (nn.ReLU(), F.relu, 1),
    "leaky": (nn.LeakyReLU(0.3), lambda x: F.leaky_relu(x, 0.3), 1),
    "relu6": (nn.ReLU6(), F.relu6, 1),
    "hardtanh": (nn.Hardtanh(), F.hardtanh, 1),
    "prelu": (nn.PReLU(init=0.2), lambda x: F.leaky_relu(x, 0.2), 1),
    "abs": (None, torch.abs, 1),
    "crelu": (CReLU(), lambda x: torch.cat([x.relu(), (-x).relu()], 1), 2),
}


class Absolute(nn.Module):
    def forward(self, x):
        return x.abs()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_it_is_what_the_definitions_say_of_the_outputs(name):
    module, function, phases = ACTIVATIONS[name]
    net = nn.Sequential(nn.Linear(5, 7), module or Absolute())
    net[0].weight.data *= 4  # some values beyond 1 and 6
    examination = measured(net)
    activity, singular = reference(function(net[0](DATA)).detach(), 7, phases)
    torch.testing.assert_close(examination.activity, activity, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(examination.singular[: len(singular)], singular, rtol=1e-3, atol=1e-3)
    assert examination.effective_rank == pytest.approx(float(effective_rank(singular)), rel=1e-3)
    assert examination.stable_rank == pytest.approx(float(stable_rank(singular)), rel=1e-4)


def test_dormant_units_are_dead_ones_and_those_that_are_hardly_active():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    net[0].bias.data[0] = -100.0
    net[0].weight.data[1] *= 0.001
    net[0].bias.data[1] = 0.0
    examination = measured(net)
    assert examination.dormant.tolist() == [True, True, False, False]
    report = examine(net, DATA[:2], DATA, measures=["activity", "plasticity"])
    assert report["0"].activity.dead.tolist() == [True, False, False, False]
    (finding,) = [each for each in report.findings if each.kind == "dormant"]
    assert finding.evidence["units"] == [0, 1]
    assert "to_crelu" in finding.sentence
    assert finding.suggestion.conversion == "to_crelu"


def test_few_dormant_units_and_few_inputs_are_not_a_finding():
    net = nn.Sequential(nn.Linear(5, 20), nn.ReLU())
    net[0].weight.data = torch.randn(20, 5)
    net[0].bias.data.zero_()
    assert not examine(net, DATA[:2], DATA, measures=["plasticity"]).findings
    net[0].bias.data.fill_(-100.0)
    assert not examine(net, DATA[:2], DATA[:20], measures=["plasticity"]).findings


def test_a_silent_layer_is_all_dormant_and_has_no_rank():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
    net[0].bias.data.fill_(-100.0)
    examination = measured(net)
    assert examination.dormant.all()
    assert examination.effective_rank is None
    assert "rank" not in examination.summary()
    json.dumps(examination.to_dict(), allow_nan=False)


def test_norms_are_those_of_the_weights_and_of_their_latest_gradients():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
    assert measured(net).gradient is None
    net(DATA).sum().backward()
    examination = measured(net)
    weight, bias = net[0].weight, net[0].bias
    assert examination.weight == pytest.approx(weight.norm().item())
    assert examination.gradient == pytest.approx(torch.cat([weight.grad.flatten(), bias.grad]).norm().item())


def test_the_rank_of_a_very_wide_layer_is_not_computed():
    net = nn.Sequential(nn.Linear(1, LARGEST + 1), nn.ReLU())
    examination = measured(net, torch.randn(40, 1))
    assert examination.singular is None
    assert "effective rank" not in examination.row()


@pytest.mark.needs("plotly")
def test_figures_show_every_unit_and_every_singular_value():
    activity, singular = measured(nn.Sequential(nn.Linear(5, 4), nn.ReLU())).figures().values()
    assert len(activity.data[0].y) == 4
    assert singular.data[0].y[0] == 1


def test_a_unit_that_is_not_finite_leaves_the_others_as_they_are_and_the_rank_unknown():
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU())
    whole = measured(net).activity
    net[0].weight.data[0] = torch.nan
    examination = measured(net)
    torch.testing.assert_close(examination.activity[1:], whole[1:] / whole[1:].mean())
    assert torch.equal(examination.dormant[1:], ~(examination.activity[1:] > 0.1))
    assert not examination.dormant[0]
    assert examination.singular is examination.effective_rank is None


def test_products_of_half_precision_do_not_overflow():
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU()).half()
    with torch.no_grad():
        outputs = net(1000 * DATA.half()).float()
    torch.testing.assert_close(
        measured(net, 1000 * DATA.half()).singular.float(), torch.linalg.svdvals(outputs), rtol=1e-3, atol=1.0
    )
