import math

import pytest
import torch
from torch.nn.functional import mse_loss

from relucid.models import create
from relucid_reproductions.structure import table2, table2_learned
from relucid_reproductions.structure.table2 import RULES, sigmoids

PAPER = ["AGD2 (13)", "AGD (12)", "HB (11)", "GD (7)", "ADMM (14)"]


def losses(order):
    """Losses in this order, best first; what all networks of a seed share must not matter."""

    def values(row, column, seed):
        place = order.index(row) if row in order else 1
        mse = 1 + seed + 0.01 * place + 1e-5 * math.sin(10 * place + seed + table2.DEPTHS[column])
        return {"mse": mse, "mse_of_zero": 1.0 + seed, "mse_of_lstsq": 0.99 + seed}

    return values


@pytest.mark.parametrize(
    "order, confirmed, against",
    [(PAPER, 20, 0), (PAPER[::-1], 0, 20), (["AGD (12)", "AGD2 (13)", *PAPER[2:]], 18, 2)],
)
def test_the_order_of_the_rules_is_compared_pair_by_pair_at_both_depths(
    filled, found, order, confirmed, against
):
    results = filled(sigmoids, losses(order), "small")
    outcomes = [verdict.outcome for verdict in found(results, "Eq. 15, Table 2").verdicts]
    assert (outcomes.count("confirmed"), outcomes.count("reversed")) == (confirmed, against)
    excesses = table2.ordered(results, 30)
    assert [row for row in excesses if row in RULES] == order
    assert excesses["least squares"] == pytest.approx(-0.01)
    assert excesses[order[1]] == pytest.approx(0.01, abs=1e-4)


def test_depths_at_which_no_network_has_learned_more_than_a_constant_are_named(filled):
    def values(row, column, seed):
        _, f = table2.noise(seed, 100, 8)  # as many as at smoke scale
        constant = (mse_loss(f.mean(0).expand_as(f), f) - mse_loss(torch.zeros_like(f), f)).item()
        learned = -1.0 if (row, column) == ("HB (11)", "depth 10") else 0.0
        return {"mse": 1.0 + constant + learned, "mse_of_zero": 1.0, "mse_of_lstsq": 0.9}

    assert table2.constant(filled(sigmoids, values, "smoke")) == [20, 30, 40]


def test_the_loss_of_an_output_of_0_deviates_from_1_by_as_much_as_the_page_says():
    config = sigmoids.runs("full")[0].config
    # of a mean of squares of normal numbers
    assert f"{math.sqrt(2 / (config['pairs'] * config['features'])):.4f}" == "0.0014"


def test_depth_is_drawn_for_every_rule_beside_least_squares_and_the_courses(filled):
    def values(row, column, seed):
        depth = table2.DEPTHS[column]
        return {"mse": 2 + seed + depth / 100, "mse_of_zero": 1.0 + seed, "mse_of_lstsq": 0.5 + seed}

    def history(row, column, seed):
        return {"train_loss": [3.0, 2.0, 1.0]}

    over_depth, courses = table2.figures(filled(sigmoids, values, "smoke", history))
    traces = {trace.name: trace for trace in over_depth.plot.data}
    assert traces.keys() == {*sigmoids.rows, "least squares"}
    for name, trace in traces.items():
        assert list(trace.x) == [10, 20, 30, 40]
        assert list(trace.y) == pytest.approx([-0.5] * 4 if name == "least squares" else [1.1, 1.2, 1.3, 1.4])
    assert [trace.name for trace in courses.plot.data] == list(sigmoids.rows)


LEARNABLE = {"rule": "hb", "depth": 30, "features": 16, "pairs": 50, "epochs": 2, "seed": 0}


def test_deep_students_start_with_signals_that_keep_their_size():
    x = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    for rule in RULES.values():
        stage = table2_learned.student(rule, features=16, depth=30, seed=0)[0]
        usual = create(f"structure/fc-{rule}", num_classes=16, depth=30)
        varied, vanished = (network(x).std(0).mean().item() for network in (stage, usual))
        assert vanished < 1e-4
        assert varied > 100 * vanished
        assert varied > 0.05 or rule == "admm"  # which averages two paths


def test_a_students_rates_are_chosen_on_another_seed_and_each_by_its_own_loss(monkeypatch):
    calls, real = [], table2_learned.ensemble

    def noted(networks, train, *, rates, **rest):
        calls.append((train[0].inputs, list(rates)))
        return real(networks, train, rates=rates, **rest)

    monkeypatch.setattr(table2_learned, "ensemble", noted)
    metrics = table2_learned.run(**LEARNABLE)
    (other, tried), (own, chosen) = calls
    tasks = [table2_learned.task(16, 50, seed).train.inputs for seed in (1000, 0)]
    assert torch.equal(other, tasks[0])
    assert torch.equal(own, tasks[1])
    assert tuple(tried) == table2_learned.RATES
    assert metrics["rate"] == chosen


def test_the_teacher_leaves_its_noise_and_least_squares_more():
    part = table2_learned.task(16, 1000, 0).train
    losses = table2_learned.references(part)
    assert table2_learned.NOISE**2 < losses["mse_of_lstsq"] < losses["mse_of_constant"]
    assert losses["mse_of_constant"] == pytest.approx(part.targets.var(correction=0).item(), rel=1e-4)


def test_networks_without_biases_are_others():
    config = {"rule": "agd2", "depth": 3, "features": 4, "pairs": 20, "epochs": 3, "rate": 0.1, "seed": 0}
    assert table2.run(**config, bias=False)["mse"] != table2.run(**config)["mse"]
    assert table2.run(**config, bias=True)["mse"] == table2.run(**config)["mse"]
