from itertools import pairwise

import numpy as np
import pytest
import torch

from relucid.experiments import run
from relucid_reproductions.ours import games as ours

RATE, MEMORY = 1e-3, 40


PLAIN = ours.Arm()


def played(arm=PLAIN, steps=MEMORY):
    """An agent that remembers what it has seen of no game."""
    torch.manual_seed(0)
    agent, draws = ours.Agent(arm, RATE, MEMORY), np.random.default_rng(0)
    states = draws.integers(0, 2, (steps + 1, ours.CHANNELS, ours.SIDE, ours.SIDE)).astype(np.uint8)
    for before, after in pairwise(states):
        agent.remember(before, agent.act(before, draws), 1.0, False, after)
    return agent, draws


def size(row):
    return sum(p.numel() for p in ours.network(ours.ROWS[row]).parameters())


def test_wider_networks_have_about_the_parameters_of_the_converted_one_and_half_ones_about_half_of_relu():
    assert size(ours.WIDER) == pytest.approx(size(ours.CRELU), rel=0.05)
    assert size(ours.HALF) == pytest.approx(size(ours.RELU) / 2, rel=0.05)


@pytest.mark.parametrize("arm", [ours.Arm(), ours.Arm(norm=True)])
def test_a_conversion_moves_no_value_and_the_agent_goes_on_learning(arm):
    agent, draws = played(arm)
    agent.learn(draws)
    _, states = agent.states(8, draws)
    before = agent.values(states).detach()
    agent.convert(states)
    torch.testing.assert_close(agent.values(states), before)
    agent.learn(draws)
    assert not torch.equal(agent.values(states), before)


def test_the_oldest_transition_is_forgotten():
    agent, _ = played(steps=MEMORY + 1)
    again, _ = played()
    assert not np.array_equal(agent.before[0], again.before[0])
    assert np.array_equal(agent.before[2:], again.before[2:])


def test_a_smoke_run_fills_every_cell(tmp_path):
    pytest.importorskip("minatar")
    results = run(ours.games, "smoke", store=tmp_path, jobs=1)
    assert all(len(results[cell]) for cell in results.cells)
