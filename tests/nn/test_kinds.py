"""The table of activations: each activation does what its row claims."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.nn.activation import AVR, CReLU, crelu
from relucid.nn.kinds import kind_of

ACTIVATIONS = {
    "ReLU": nn.ReLU(),
    "ReLU6": nn.ReLU6(),
    "Hardtanh": nn.Hardtanh(),
    "Hardtanh, lopsided": nn.Hardtanh(-2.0, 3.0),
    "LeakyReLU": nn.LeakyReLU(0.2),
    "RReLU": nn.RReLU().eval(),
    "AVR": AVR(),
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "F.relu6": F.relu6,
    "F.leaky_relu": F.leaky_relu,
    "F.hardtanh": F.hardtanh,
    "torch.abs": torch.abs,
    "Threshold": nn.Threshold(0, 0),
}


def slope(activation, at):
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(activation(x), x)
    return float(gradient)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_change_where_the_table_has_a_kink_and_nowhere_else(name):
    activation = ACTIVATIONS[name]
    kind = kind_of(activation)
    first, last = kind.boundaries[0], kind.boundaries[-1]
    for distance in (1e-6, 10.0):
        assert slope(activation, first - distance) == pytest.approx(kind.below)
        assert slope(activation, last + distance) == pytest.approx(kind.above)
    if last > first:
        assert slope(activation, first + 1e-6) == slope(activation, last - 1e-6) == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_homogeneous_activations_let_a_positive_scale_through(name):
    activation, x = ACTIVATIONS[name], torch.linspace(-8, 8, 33)
    passes = torch.allclose(activation(3 * x), 3 * activation(x))
    assert kind_of(activation).homogeneous == passes


def test_a_unit_of_one_phase_is_constant_below_its_boundary():
    phases = {name: kind_of(activation).phases for name, activation in ACTIVATIONS.items()}
    assert {name for name, count in phases.items() if count == 2} == {
        *("LeakyReLU", "RReLU", "AVR", "F.leaky_relu", "torch.abs")
    }
    assert kind_of(CReLU()).phases == kind_of(crelu).phases == 2


def test_a_learned_slope_is_not_known_beforehand():
    assert kind_of(nn.PReLU(4)).below is None


@pytest.mark.parametrize(
    "activation",
    [
        *(nn.GELU(), torch.tanh, F.silu, CReLU(activation=torch.tanh), nn.Linear(1, 1)),
        *(nn.Threshold(0.1, 0), nn.Threshold(0, 20)),
    ],
)
def test_what_switches_nowhere_or_elsewhere_is_none_of_them(activation):
    assert kind_of(activation) is None


def test_crelu_with_another_activation_inside_has_its_slope():
    kind = kind_of(CReLU(activation=nn.LeakyReLU(0.2)))
    assert (kind.name, kind.below, kind.doubled) == ("crelu", 0.2, True)
