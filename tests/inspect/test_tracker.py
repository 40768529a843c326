import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.convert import to_crelu, to_geometric
from relucid.inspect._boundary import boundary, hyperplanes
from relucid.inspect.tracker import BoundaryTracker, change
from relucid.nn import GeometricLinear
from relucid.nn.meannorm import MeanNorm


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(1e-6, 10))
def test_changes_are_the_distance_of_locations_and_the_angle_of_directions(seed, inputs, size):
    torch.manual_seed(seed)
    w, b = torch.randn(5, inputs, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    before, after = hyperplanes(w, b), hyperplanes(w + size * torch.randn_like(w), b + size)
    moved, turned = change(before, after)
    torch.testing.assert_close(moved, (after.location - before.location).norm(dim=1), rtol=1e-5, atol=1e-9)
    cosine = (before.direction * after.direction).sum(1).clamp(-1, 1)
    torch.testing.assert_close(turned, cosine.acos(), rtol=1e-5, atol=1e-7)


def test_small_turns_are_not_lost_to_rounding():
    before = hyperplanes(torch.tensor([[1.0, 0.0]]), None)
    after = hyperplanes(torch.tensor([[1.0, 1e-5]]), None)
    # arccos of the cosine would give 0
    assert float(change(before, after)[1]) == pytest.approx(1e-5, rel=1e-5)


def train(net, tracker, steps, lr=0.1, inputs=2, call=False):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    if not call:
        tracker.attach(optimizer)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(16, inputs)).square().mean().backward()
        optimizer.step()
        if call:
            tracker.step()
        history.append({name: boundary(*layer) for name, layer in tracker.layers.items()})
    return history


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        GeometricLinear(8, 6, activation=nn.ReLU()),
        nn.Linear(6, 1),
    )


@pytest.mark.parametrize("call", [True, False])
def test_each_step_is_compared_with_the_one_before(call):
    net = mlp()
    tracker = BoundaryTracker(net, torch.zeros(1, 2))
    start = {name: boundary(*layer) for name, layer in tracker.layers.items()}
    history = train(net, tracker, 5, call=call)
    measured = tracker.result()
    assert measured.steps == (1, 2, 3, 4, 5)
    for name in ("0", "3"):
        states = [start[name], *(h[name] for h in history)]
        changes = [change(a, b) for a, b in itertools.pairwise(states)]
        torch.testing.assert_close(measured.moved[name], torch.stack([moved.max() for moved, _ in changes]))
        torch.testing.assert_close(
            measured.turned[name], torch.stack([turned.max() for _, turned in changes])
        )
    assert "moves by at most" in measured.summary()


def test_sampling_shows_the_same_single_steps():
    nets = mlp(), mlp()
    trackers = (
        BoundaryTracker(nets[0], torch.zeros(1, 2)),
        BoundaryTracker(nets[1], torch.zeros(1, 2), every=3),
    )
    for net, tracker in zip(nets, trackers, strict=True):
        train(net, tracker, 8)
    every, third = (tracker.result() for tracker in trackers)
    assert third.steps == (3, 6)
    for name in ("0", "3"):
        torch.testing.assert_close(third.moved[name], every.moved[name][[2, 5]])
        torch.testing.assert_close(third.turned[name], every.turned[name][[2, 5]])


def test_with_an_example_rectified_layers_and_their_norms_are_tracked():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(4, 4, 1),
        MeanNorm(4, bias=True),
        nn.ReLU(),
        nn.Conv2d(4, 2, 1),
    )
    tracker = BoundaryTracker(net, torch.zeros(1, 1, 8, 8))
    assert tracker.layers == {"0": (net[0], net[1]), "4": (net[4], net[5])}
    assert BoundaryTracker(net).layers == {"0": (net[0], None), "4": (net[4], None), "7": (net[7], None)}


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = torch.relu(self.fc(x) * self.gain)
        return torch.relu(self.fc(x) + x)


def test_layers_that_cannot_be_tracked_are_listed_with_the_reason():
    measured = BoundaryTracker(Residual(), torch.zeros(1, 3)).result()
    assert not measured.moved
    assert measured.skipped == {
        "fc": "only a layer with at most one norm can be tracked: fc -> mul",
        "fc#2": "a sum of 2 branches",
    }


def test_a_unit_that_loses_its_weights_is_left_out():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    tracker = BoundaryTracker(net, torch.zeros(1, 2))
    net[0].weight.data[1] = 0
    tracker.step()
    measured = tracker.result()
    assert measured.moved["0"].tolist() == [0.0]
    assert measured.turned["0"].tolist() == [0.0]


def test_a_layer_that_became_geometric_has_the_boundaries_that_it_had():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    tracker = BoundaryTracker(net, torch.zeros(1, 2))
    to_geometric(net, torch.randn(4, 2), inplace=True)
    tracker.step()
    assert tracker.result().moved["0"].max() < 1e-6


def test_a_network_that_was_converted_needs_a_new_tracker():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    tracker = BoundaryTracker(net, torch.zeros(1, 2))
    tracker.step()
    to_crelu(net, torch.randn(4, 2), inplace=True)
    with pytest.raises(RuntimeError, match=r"has been converted since it is tracked: .*new BoundaryTracker"):
        tracker.step()
    BoundaryTracker(net, torch.zeros(1, 2)).step()


def test_detaching_lets_go_of_every_optimizer():
    net = mlp()
    tracker, optimizers = BoundaryTracker(net), [torch.optim.SGD(net.parameters()) for _ in range(2)]
    for optimizer in optimizers:
        tracker.attach(optimizer)
    tracker.detach()
    for optimizer in optimizers:
        optimizer.step()
    assert tracker.result().steps == ()


def test_before_the_first_look_nothing_is_known():
    measured = BoundaryTracker(mlp(), every=5).result()
    assert measured.steps == ()
    assert measured.summary() == ""


@pytest.mark.needs("plotly")
def test_the_figure_shows_the_movement():
    net = mlp()
    tracker = BoundaryTracker(net, torch.zeros(1, 2))
    train(net, tracker, 4)
    measured = tracker.result()
    assert [line.y for line in measured.figure().data] == [
        tuple(measured.moved[name].tolist()) for name in ("0", "3")
    ]
