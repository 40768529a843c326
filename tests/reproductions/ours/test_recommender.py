from dataclasses import replace
from pathlib import Path

import pytest
import torch

from relucid.experiments import Results, read, run
from relucid_reproductions.ours import recommender as ours
from relucid_reproductions.ours._bandit import Agents, Arm, Draws, World

ROOT = Path(__file__).parents[3]
WORLD = World(phases=3, steps=20, users=30, batch=6, memory=60, updates=2, explore=0.1)


@pytest.fixture
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


each_study = pytest.mark.parametrize("study", ours.STUDIES, ids=lambda study: study.name)


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(
    "arm", [Arm(), Arm("crelu", norm=True), Arm(renew=True), Arm(redo=0.1), Arm(recycle=0.02)]
)
def test_an_agent_of_a_stack_is_the_agent_alone(arm):
    together, alone = (Agents(replace(WORLD, steps=6), arm, [1e-3], seeds) for seeds in ([1, 2, 3], [2]))
    together.live()
    alone.live()
    torch.testing.assert_close(together.stack.flat[1:2], alone.stack.flat, rtol=1e-6, atol=1e-9)


def test_arms_see_the_same_users_tastes_and_draws():
    agents = [
        Agents(WORLD, arm, [1e-3], [1])
        for arm in (Arm(), Arm("crelu", renew=True), Arm(perturb=0.5, redo=0.1))
    ]
    for agent in agents:
        agent.live()
    assert all(torch.equal(agents[0].tastes, each.tastes) for each in agents)
    assert all(torch.equal(agents[0].users, each.users) for each in agents)
    assert all(torch.equal(agents[0].served, each.served) for each in agents)


def test_one_taste_per_step_changes_under_drift():
    agent = Agents(replace(WORLD, drift=True, phases=1), Arm(), [1e-3], [1, 2])
    draws = Draws.of(agent.world, agent.generators)
    agent.tastes = draws.tastes.clone()
    for number in range(20):
        before = agent.tastes.clone()
        agent.step(draws, number)
        changed = agent.tastes != before
        assert bool((changed.sum(1) <= 1).all())
    assert not torch.equal(agent.tastes, draws.tastes)


def test_a_reward_is_the_share_of_items_that_users_like():
    agent = Agents(replace(WORLD, explore=1.0), Arm(), [0.0], [1])
    draws = Draws.of(agent.world, agent.generators)
    agent.tastes = draws.tastes
    expected = (draws.tastes[0][draws.users[0, 0]] == draws.items[0, 0]).double().mean()
    assert agent.step(draws, 0).item() == pytest.approx(expected.item())


def phases(agent, late, worst):
    agent.life.late = [torch.tensor(each) for each in late]
    agent.life.worst = [torch.tensor(each) for each in worst]
    return agent.warned().tolist()


def test_there_is_a_warning_when_a_layer_is_dead_or_two_phases_have_earned_much_less_than_the_first():
    agent = Agents(WORLD, Arm(repair="convert"), [1e-3], [1, 2])
    assert phases(agent, [[50.0, 50.0]], [[89.0, 90.0]]) == [False, True]
    dead = [[0.0, 0.0]] * 3
    assert phases(agent, [[50.0, 50.0], [39.0, 39.0], [39.0, 41.0]], dead) == [True, False]
    assert phases(agent, [[50.0, 50.0], [39.0, 41.0]], dead[:2]) == [False, False]


REPAIRS = {
    "convert": 21962,
    "revive and convert": 21962,
    "slopes": 13322,
    "grow": 22274,
    "inject": 39390,
}


@pytest.mark.parametrize("repair", REPAIRS)
def test_an_agent_is_repaired_once_at_the_warning_and_its_outputs_stay(repair):
    agent = Agents(replace(WORLD, phases=4), Arm(repair=repair), [1e-3], [2, 1])
    with torch.no_grad():
        agent.stack.view(agent.stack.flat, 3)[0] = -100.0  # a layer of the first agent is dead
    life = agent.live()
    assert life.repaired.tolist()[0] == 1.0
    assert float(life.moved.max()) <= 1e-4
    assert life.parameters == REPAIRS[repair]
    assert bool(life.worst[-1][0] < 95)


@pytest.mark.parametrize("repair", ["slopes", "inject"])
def test_a_repaired_network_goes_on_learning_and_its_first_step_is_short(repair):
    agent = Agents(WORLD, Arm(repair=repair), [1e-3], [1, 2])
    agent.live()
    agent.repair(1, 3)
    before = agent.stack.flat.clone()
    draws = Draws.of(agent.world, agent.generators)
    agent.learn((draws.replayed[:, 0, 0] * WORLD.memory).long())
    new = agent.stack.places[agent.stack.slopes].start if repair == "slopes" else 0
    assert 0 < float((agent.stack.flat - before)[1, new:].abs().max()) <= 1.001e-3
    if agent.added:
        assert [bool(each.any()) for each in agent.injected(agent.users)] == [False, True]


def test_until_the_warning_a_repaired_agent_is_the_plain_one():
    plain, repaired = (Agents(WORLD, arm, [1e-3], [1]).live() for arm in (Arm(), Arm(repair="convert")))
    assert repaired.repaired.tolist() == [0.0]
    assert torch.equal(torch.stack(plain.late), torch.stack(repaired.late))


def test_wider_networks_have_about_the_parameters_of_the_converted_one_and_narrow_ones_fewer_than_relu():
    counts = {row: Agents(WORLD, next(iter(ours.TRIED[row].values())), [1e-3], [1]).life.parameters
              for row in (ours.RELU, ours.WIDER, ours.CRELU, ours.NARROW)}  # fmt: skip
    assert counts[ours.WIDER] == pytest.approx(counts[ours.CRELU], rel=0.02)
    assert counts[ours.WIDER] > counts[ours.CRELU]
    assert counts[ours.NARROW] < counts[ours.RELU]


def test_no_seed_chooses_and_is_judged():
    assert not set(ours.CHOOSING) & set(ours.SEEDS)
    for study in ours.STUDIES:
        expected = ours.CHOOSING if study in (ours.early, ours.strengths, ours.whole) else ours.SEEDS
        assert all(set(each.run.config["seeds"]) <= set(expected) for each in study.plan("cpu"))


def recorded(study):
    return Results(study, "cpu", read(ROOT / "results"))


def test_rates_are_those_that_the_records_choose():
    results = recorded(ours.early)
    assert results.records
    assert results.whole
    assert all(ours.chosen_rate(results, name) == ours.EARLY_RATES.get(name, ours.USUAL) for name in ours.ALL)


def test_strengths_are_those_that_the_records_choose():
    results = recorded(ours.strengths)
    assert results.whole
    several = {row for row, tried in ours.TRIED.items() if len(tried) > 1}
    assert {row: ours.chosen_strength(results, row) for row in several} == ours.STRENGTHS


def test_rates_with_hindsight_are_those_that_the_records_choose():
    results = recorded(ours.whole)
    assert results.whole
    assert {row: ours.hindsight_rate(results, row) for row in ours.HINDSIGHT_RATES} == ours.HINDSIGHT_RATES
    assert {*ours.TRIED} - {*ours.HINDSIGHT_RATES} == {*ours.ADDED}


@each_study
def test_a_smoke_run_fills_every_cell(study, tmp_path):
    results = run(study, "smoke", store=tmp_path, jobs=1)
    assert all(len(results[cell]) for cell in results.cells)
    assert not [record for record in results.records.values() if record["state"] != "finished"]


@pytest.mark.usefixtures("_double")
def test_agents_at_several_rates_are_those_at_each():
    world = replace(WORLD, steps=6)
    together, alone = (Agents(world, Arm(redo=0.1), rates, [1, 2]) for rates in ([1e-3, 1e-2], [1e-2]))
    together.live()
    alone.live()
    torch.testing.assert_close(together.stack.flat[2:], alone.stack.flat, rtol=1e-6, atol=1e-9)
