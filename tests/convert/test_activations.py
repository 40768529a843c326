"""LeakyReLU, PReLU and the absolute value become CReLU, exactly; what has no two phases is refused and says why."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import to_crelu
from relucid.inspect import examine
from relucid.nn import AVR, CReLU

from .odd import faults


def prelu(units=1):
    module = nn.PReLU(units)
    nn.init.uniform_(module.weight, -0.5, 1.5)
    return module


ACTIVATIONS = {
    "leaky": lambda units: nn.LeakyReLU(0.2, inplace=True),
    "leaky that turns": lambda units: nn.LeakyReLU(-0.3),
    "prelu, shared": lambda units: prelu(),
    "prelu, per channel": prelu,
    "absolute": lambda units: AVR(),
    "threshold": lambda units: nn.Threshold(0, 0),
}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Net(nn.Module):
    """Everything that may read an activation: convolutions, a pool, a norm, an addition, a dropout, a linear layer."""

    def __init__(self, activation):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.conv3 = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 4, 1)
        self.norm2, self.fc1, self.fc2 = nn.BatchNorm2d(4), nn.Linear(4, 6), nn.Linear(6, 2)
        self.acts = nn.ModuleList([activation(4), activation(4), activation(4), activation(6)])
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        a, b, c, d = self.acts
        x = a(self.norm1(self.conv1(x)))
        y = b(self.conv2(x)) + x  # an addition reads the value too
        z = F.max_pool2d(c(self.norm2(self.conv3(F.avg_pool2d(y, 2)))), 2)
        return self.fc2(self.drop(d(self.fc1(z.mean((2, 3))))))


def network(name):
    torch.manual_seed(0)
    return Net(ACTIVATIONS[name]).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_with_two_phases_becomes_crelu_exactly_in_both_modes_and_for_other_sizes(name):
    model, x = network(name)
    conversion = to_crelu(model, x)
    crelus = [module for module in conversion.model.modules() if isinstance(module, CReLU)]
    assert len(crelus) >= 1
    for shape in (5, 3, 8, 8), (3, 3, 11, 9):
        other = torch.randn(shape, dtype=torch.float64)
        for training in (False, True):
            assert faults(model, conversion.model, other, training) == []


def test_learned_slopes_that_become_weights_are_reported():
    model = nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2))
    reason = {c.name: c.reason for c in to_crelu(model, torch.randn(5, 3)).changes}["1"]
    assert "slopes become factors in the weights that read it" in reason


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
@pytest.mark.parametrize("act", [prelu(4), Function(torch.abs), Function(lambda x: F.leaky_relu(x, 0.1))])
def test_only_a_module_of_its_own_called_once_is_replaced_unless_it_is_a_relu(act):
    model = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act, nn.Linear(4, 2))
    net = to_crelu(model, torch.randn(2, 4)).model
    assert not any(isinstance(module, CReLU) for module in net.modules())


@pytest.mark.parametrize(
    "rectify", [torch.relu, lambda x: x.clamp(min=0), lambda x: torch.maximum(x, x.new_zeros(()))]
)
def test_a_relu_by_any_name_is_one_for_the_recorder_and_for_conversions(rectify):
    model, x = nn.Sequential(nn.Linear(4, 4), Function(rectify), nn.Linear(4, 2)), torch.randn(3, 4)
    assert to_crelu(model, x).model[2].in_features == 8
    assert [layer.name for layer in examine(model, x).layers] == ["0"]


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
@pytest.mark.parametrize("high, examined", [(6, ["0"]), (1e4, [])], ids=["6", "a guard"])
def test_a_clamp_on_both_sides_has_no_other_phase_and_a_guard_is_no_activation(high, examined):
    model, x = (
        nn.Sequential(nn.Linear(4, 4), Function(lambda x: x.clamp(0, high)), nn.Linear(4, 2)),
        torch.randn(3, 4),
    )
    assert to_crelu(model, x).model[2].in_features == 4
    assert [layer.name for layer in examine(model, x).layers] == examined


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
@pytest.mark.parametrize(
    "activation, reason",
    [
        (nn.ReLU6(), "its units switch at 0 and 6"),
        (nn.Hardtanh(), "its units switch at -1 and 1"),
        (nn.RReLU(), "in training, it draws a random slope"),
        (Function(lambda x: x.clamp(0, 3)), "its units switch at 0 and 3"),
    ],
)
def test_what_has_no_two_phases_is_refused_with_the_reason(activation, reason):
    model = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2))
    (change,) = [c for c in to_crelu(model, torch.randn(5, 3)).changes if c.status == "refused"]
    assert reason in change.reason


@pytest.mark.filterwarnings("ignore:to_crelu changes no layer")
@pytest.mark.parametrize(
    "between, reads",
    [
        (nn.AvgPool2d(2), True),
        (nn.Dropout(), True),
        (nn.MaxPool2d(2), False),
        (nn.Dropout2d(), True),  # by the conversion's check, dropouts only scale
        (nn.BatchNorm2d(4), False),
        (nn.Sequential(nn.AvgPool2d(2), nn.Dropout()), True),
    ],
)
def test_phases_pass_only_what_treats_them_as_it_treats_their_sum(between, reads):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.LeakyReLU(), between, nn.Conv2d(4, 2, 1))
    statuses = {c.name: c.status for c in to_crelu(model, torch.randn(2, 3, 4, 4)).changes}
    assert statuses["1"] == ("changed" if reads else "refused")
