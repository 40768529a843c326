from copy import deepcopy

import pytest
import torch

from relucid.data import Data, Split
from relucid.inspect import BoundaryTracker, boundary
from relucid.train import Plateau
from relucid_reproductions.gmp import fig1
from relucid_reproductions.gmp.evolution import ADAM, BETA1, BETA2, EvolutionWatch
from relucid_reproductions.gmp.problems import METHODS, PROBLEMS, Problem, trials


@pytest.mark.parametrize("batch_size", [None, 10])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_watch_sees_what_a_tracker_sees_in_a_loop(method, features, batch_size):
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(2, 20, features, generator=generator, dtype=torch.float64) for _ in range(3)]
    parts = [Split(x, y[:, :1]) for x, y in draws]
    loss, measure = PROBLEMS["boston"].loss, PROBLEMS["boston"].measure
    both = [Data(part, part) for part in parts]
    problem = Problem(both.__getitem__, loss, measure, 4, Plateau(9, 9), 5, batch_size, False)
    started = trials(problem, method, [0, 1, 2], "train")
    alone = deepcopy(started.networks)
    steps = 4 * (1 if batch_size is None else 2)
    watch = EvolutionWatch(started.networks, method, 5, steps, parts[0].inputs)
    started.learn([0.03] * 3, observe=watch)
    for place, network in enumerate(alone):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
        tracker = BoundaryTracker(network, parts[0].inputs).attach(optimizer)
        order = torch.Generator().manual_seed(place)
        for _ in range(4):
            whole = torch.arange(20) if batch_size is None else torch.randperm(20, generator=order)
            for batch in whole.split(batch_size or 20):
                optimizer.zero_grad()
                network.train()
                loss(network(parts[place].inputs[batch]), parts[place].targets[batch]).backward()
                optimizer.step()
        evolved = tracker.result()
        (name,) = evolved.moved
        assert watch.moved[:, place].tolist() == pytest.approx(evolved.moved[name].tolist(), rel=1e-6)
        turned = evolved.turned[name].tolist()
        assert watch.turned[:, place].tolist() == pytest.approx(turned, rel=1e-6, abs=1e-9)
        if place == 0:
            assert watch.frames[steps][0].location.allclose(boundary(*tracker.layers[name]).location)


def test_no_step_of_adam_is_longer_than_the_bound_and_the_worst_gradients_come_near_it():
    worst = [(BETA1 / BETA2) ** back for back in reversed(range(3000))]
    parameter = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=1.0)
    for gradient in worst:
        before = parameter.item()
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    assert 0.97 * ADAM < abs(parameter.item() - before) <= ADAM


def test_perturbations_turn_small_units_far_unless_they_are_geometric():
    turns = {method: fig1.run(method=method, units=200, seed=0)["turn at 0.001"] for method in fig1.KINDS}
    assert max(turns["GmP"]) == pytest.approx(fig1.BOUND)
    assert max(turns["SP"]) > 90
    assert turns["SP"] == pytest.approx(turns["WN"])
