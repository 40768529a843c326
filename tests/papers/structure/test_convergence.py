import math

import pytest
import torch

from relucid.nn.rules import HeavyBall, Plain
from relucid.papers.structure.convergence import layers_to_reach, strongly_convex
from relucid.papers.structure.section5_1 import count


@pytest.fixture(scope="module")
def found():
    config = {"seed": 0, "features": 100, "limit": 100_000}
    rules, kappas = ("gd", "hb-best", "agd-theta", "agd-constant"), (10, 100, 1000)
    return {rule: [count({**config, "kappa": k, "rule": rule})["layers"] for k in kappas] for rule in rules}


def test_the_instance_has_the_condition_number_and_the_minimizer_it_claims():
    objective, minimizer = strongly_convex(kappa=100, size=20)
    hessian = torch.autograd.functional.hessian(objective.f, objective.to_z(minimizer))
    values = torch.linalg.eigvalsh(hessian)
    assert float(values.min()) == pytest.approx(1 / 100)
    assert float(values.max()) <= 1
    assert float(objective.gradient(minimizer).abs().max()) < 1e-14


def test_accelerated_rules_need_layers_as_the_root_of_kappa_and_gradient_descent_as_kappa(found):
    growth = {name: math.log10(layers[-1] / layers[1]) for name, layers in found.items()}
    assert growth["gd"] == pytest.approx(1, abs=0.05)
    assert growth["hb-best"] == pytest.approx(0.5, abs=0.06)
    assert growth["agd-constant"] == pytest.approx(0.5, abs=0.06)
    # theta_k does not know mu: better than gradient descent, worse than the constant made for it
    assert 0.55 < growth["agd-theta"] < 0.95


def test_gradient_descent_takes_the_layers_its_slowest_direction_takes(found):
    # (1 - mu)^k = 1e-6, from where its share of the first error lies in that direction, at most all of it
    for kappa, layers in zip((10, 100, 1000), found["gd"], strict=True):
        assert 0.7 * math.log(1e6) * kappa < layers < math.log(1e6) * kappa


def test_beta_one_does_not_converge():
    objective, minimizer = strongly_convex(kappa=10, size=20)
    begin = torch.zeros_like(minimizer)
    assert layers_to_reach(HeavyBall(1.0), objective, begin, minimizer, limit=2000) == -1


def test_layers_are_counted_to_the_first_state_within_the_tolerance():
    objective, minimizer = strongly_convex(kappa=10, size=20)
    x = begin = torch.zeros_like(minimizer)
    k = layers_to_reach(Plain(), objective, begin, minimizer, tolerance=1e-3)
    for _ in range(k - 1):
        x = objective.layer(x)
    goal = 1e-3 * minimizer.norm()
    assert (x - minimizer).norm() > goal
    assert (objective.layer(x) - minimizer).norm() <= goal
