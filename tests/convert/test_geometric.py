import pytest
import torch
from torch import nn

from relucid.convert import to_geometric
from relucid.nn import GeometricLinear


def by_name(conversion):
    return {change.name: change for change in conversion.changes}


def test_a_relu_moves_inside_only_where_it_alone_reads_the_layer():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.alone, self.both, self.fc = (nn.Linear(3, 3) for _ in range(3))
            self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

        def forward(self, x):
            y = self.both(self.relu1(self.alone(x)))
            return self.fc(y + self.relu2(y))

    net = to_geometric(Twice(), torch.randn(2, 3)).model
    assert net.alone.activation is not None
    assert net.both.activation is None


def test_the_output_layer_is_left_alone_unless_named():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    assert type(to_geometric(model, x).model.get_submodule("2")) is nn.Linear
    named = to_geometric(model, x, layers=["2"])
    assert type(named.model.get_submodule("2")).__name__ == "GeometricLinear"
    assert by_name(named)["0"].reason == "not chosen"


@pytest.mark.filterwarnings("ignore:to_geometric changes no layer")
def test_a_layer_with_a_filter_of_zeros_keeps_its_standard_form_and_is_reported():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].weight.data[2] = 0
    change = by_name(to_geometric(model, torch.randn(5, 3)))["0"]
    assert (change.status, change.reason) == ("kept", "1 filters are exactly zero and have no direction: 2")


def test_a_layer_with_thousands_of_weights_per_filter_is_described():
    # Cosines of 9,216 latitudes in float32 are off in one direction on some processors, which is not the layer's fault.
    found = to_geometric(nn.Sequential(nn.Linear(9216, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(4, 9216))
    assert by_name(found)["0"].status == "changed"


def test_a_shared_layer_stays_shared():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(3, 2))
    conversion = to_geometric(model, torch.randn(5, 3))
    shared = [m for m in conversion.model.modules() if type(m).__name__ == "GeometricLinear"]
    assert len(shared) == 1
    assert shared[0].activation is None


@pytest.mark.filterwarnings("ignore:to_geometric changes no layer")
def test_transposed_convolutions_and_nan_are_refused():
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.ReLU(), nn.Conv2d(4, 2, 1))
    assert by_name(to_geometric(model, torch.randn(1, 3, 4, 4)))["0"].status == "refused"


@pytest.mark.parametrize("factor", [1e-4, 1e-8, 1e-20])
def test_a_unit_whose_boundary_is_far_away_is_kept_and_trains_on(factor):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].weight[2] *= factor
        net[0].bias[2] = 0.2
    conversion = to_geometric(net, torch.randn(5, 6))
    kept = next(change for change in conversion.changes if change.name == "0")
    assert kept.status == "kept"
    assert "too far" in kept.reason
    assert type(conversion.model[2]) is GeometricLinear
