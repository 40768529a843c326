import math

import numpy as np
import pytest
import torch

from relucid.experiments import run
from relucid_reproductions.ours import ppo as ours
from relucid_reproductions.ours._ppo import Agents, Arm, Poles, Training, sensors, weigh

TINY = Training(tasks=2, rollouts=3, environments=2, steps=8, epochs=2)


def test_a_pole_moves_as_that_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    pole, poles = gymnasium.make("CartPole-v1").unwrapped, Poles([0], 1)
    pole.reset(seed=0)
    poles.state[0, 0] = pole.state
    ended = False
    while not ended:
        _, _, ended, _, _ = pole.step(1)
        fallen, _ = poles.push(np.array([[True]]))
        assert poles.state[0, 0] == pytest.approx(np.array(pole.state))
        assert bool(fallen) == ended


def test_an_episode_ends_after_500_steps():
    poles = Poles([0], 1)
    poles.age[:] = 499
    assert poles.push(np.array([[True]]))[1].all()


def test_sensors_show_all_of_the_state():
    first, *others = sensors(3, 4)
    assert torch.equal(first, torch.eye(4, dtype=first.dtype))
    for shown in others:
        torch.testing.assert_close(shown @ shown.T, torch.eye(4, dtype=shown.dtype))


def test_advantages_sum_discounted_errors_up_to_the_end_of_an_episode():
    torch.manual_seed(0)
    setting, values, rewards = Training(1, 1), torch.randn(4, 1, 1), torch.randn(3, 1, 1)
    ends = torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)
    g, trace, v, r = setting.discount, setting.trace, values.flatten(), rewards.flatten()
    second, third = r[1] - v[1], r[2] + g * v[3] - v[2]
    expected = torch.stack([r[0] + g * v[1] - v[0] + g * trace * second, second, third])
    torch.testing.assert_close(weigh(values, rewards, ends, setting).flatten(), expected)


@pytest.mark.parametrize("arm", [Arm(), Arm("crelu", renew="agent"), Arm(renew="head", redo=0.1)])
def test_an_agent_of_a_stack_is_the_agent_alone(arm):
    together, alone = (Agents(TINY, arm, 1e-3, seeds) for seeds in ([1, 2, 3], [2]))
    together.live()
    alone.live()
    torch.testing.assert_close(together.policy.flat[1:2], alone.policy.flat, rtol=1e-4, atol=1e-5)


def certain(agents):
    """The policies choose the first action, and have done much better before."""
    with torch.no_grad():
        agents.policy.params[-1][:, 0] = torch.tensor([50.0, -50.0])
    agents.best[:] = 100.0


def test_a_policy_that_is_certain_and_returns_little_gets_a_new_head_and_keeps_the_rest():
    agents = Agents(TINY, Arm(warned="head"), 1e-3, [1, 2])
    certain(agents)
    before, head = agents.policy.flat.clone(), agents.policy.places[4].start
    agents.look(agents.collect(0), 0)
    assert agents.life.warnings.tolist() == [1.0, 1.0]
    assert torch.equal(agents.policy.flat[:, :head], before[:, :head])
    log = agents.policy(agents.collect(0).seen).detach().log_softmax(2)
    assert float(-(log.exp() * log).sum(2).mean()) > 0.99 * math.log(2)


def test_a_conversion_at_the_warning_moves_no_output_and_lets_second_phases_learn():
    agents = Agents(TINY, Arm(warned="convert"), 1e-3, [1])
    certain(agents)
    rollout = agents.collect(0)
    before = agents.policy(rollout.seen)
    agents.look(rollout, 0)
    assert torch.equal(agents.policy(rollout.seen), before)
    assert not agents.policy.closed.any()


def test_until_something_is_done_arms_live_alike():
    one = Training(1, 3, environments=2, steps=8, epochs=2)
    agents = [Agents(one, arm, 1e-3, [1]) for arm in (Arm(), Arm(renew="agent"), Arm(warned="head"))]
    assert len({tuple(torch.stack(each.live().mean).flatten().tolist()) for each in agents}) == 1


def test_a_smoke_run_fills_every_cell(tmp_path):
    results = run(ours.ppo, "smoke", store=tmp_path, jobs=1)
    assert all(len(results[cell]) for cell in results.cells)
    assert not [record for record in results.records.values() if record["state"] != "finished"]


@pytest.mark.slow
def test_a_smoke_run_of_stable_baselines3_fills_every_cell(tmp_path):
    pytest.importorskip("stable_baselines3")
    results = run(ours.stable, "smoke", store=tmp_path, jobs=1)
    assert all(len(results[cell]) for cell in results.cells)
