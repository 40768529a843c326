import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.nn.propagation import Propagation
from relucid.nn.rules import RULES, HeavyBall, Nesterov, Nesterov2, RelaxedNesterov2
from relucid_reproductions.structure.objective import ACTIVATIONS, Objective, minimize, softplus_integral

SIZE = 6
quick = settings(deadline=None, max_examples=50)
TORCH = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": lambda t: torch.log1p(torch.exp(t)),
    "softsign": lambda t: t / (1 + t.abs()),
    "relu": torch.relu,
    "leaky_relu": nn.functional.leaky_relu,
    "elu": nn.functional.elu,
    "swish": lambda t: t * torch.sigmoid(t),
}
activations = pytest.mark.parametrize("activation", TORCH)


def positive_definite(size=SIZE, scale=0.9):
    a = torch.randn(size, size, dtype=torch.float64)
    w = a @ a.T + 0.1 * torch.eye(size)
    return scale * w / torch.linalg.matrix_norm(w, 2)


def problem(activation, bias=True):
    objective = Objective(
        positive_definite(), activation, torch.randn(SIZE, dtype=torch.float64) if bias else None
    )
    return objective, torch.randn(3, SIZE, dtype=torch.float64)


def test_table_1_has_eight_activations():
    assert list(ACTIVATIONS) == list(TORCH)


@activations
@quick
@given(t=st.floats(-30, 30))
def test_psi_is_an_antiderivative_of_phi(activation, t):
    t = torch.tensor([t or 1e-3], dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(ACTIVATIONS[activation].psi(t).sum(), t)
    torch.testing.assert_close(derivative, TORCH[activation](t.detach()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ACTIVATIONS[activation].phi(t.detach()), TORCH[activation](t.detach()))


@activations
def test_psi_has_no_jump_at_zero(activation):
    left, right = ACTIVATIONS[activation].psi(torch.tensor([-1e-9, 1e-9], dtype=torch.float64))
    assert float(right - left) == pytest.approx(2e-9 * float(TORCH[activation](torch.tensor(0.0))), abs=1e-15)


@pytest.mark.needs("scipy")
@quick
@given(st.floats(-100, 30))
def test_the_dilogarithm_agrees_with_scipy(t):
    from scipy.special import spence

    t = torch.tensor(t, dtype=torch.float64)
    # scipy's spence(z) is polylog(2, 1 - z)
    assert float(softplus_integral(t)) == pytest.approx(
        -spence(1 + torch.exp(t).item()), rel=1e-13, abs=1e-15
    )


@activations
def test_gradients_are_those_of_the_functions(activation):
    objective, x = problem(activation)
    x.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(objective(x).sum(), x)[0], objective.gradient(x))
    torch.testing.assert_close(torch.autograd.grad(objective.f(x).sum(), x)[0], objective.f_gradient(x))


def test_u_is_the_square_root_of_w_and_variables_go_there_and_back():
    objective, x = problem("relu")
    torch.testing.assert_close(objective.root @ objective.root, objective.weight)
    torch.testing.assert_close(objective.to_z(x), x @ objective.root.T)
    torch.testing.assert_close(objective.to_x(objective.to_z(x)), x)
    torch.testing.assert_close(objective.to_x(objective.to_z(x[0])), x[0])


class Layer(nn.Module):
    def __init__(self, objective, phi):
        super().__init__()
        self.weight, self.bias, self.phi = objective.weight, objective.bias, phi

    def forward(self, x):
        return self.phi(x @ self.weight.T + self.bias)


@activations
@pytest.mark.parametrize(
    "rule",
    ["plain", "heavy_ball", HeavyBall(0.3), "nesterov", Nesterov(0.6), "nesterov2", Nesterov2(0.6), "admm"],
    ids=str,
)
def test_the_layers_of_a_network_are_the_iterates_of_the_algorithm(rule, activation):
    objective, x = problem(activation)
    T = Layer(objective, TORCH[activation])
    iterates = objective.to_x(minimize(rule, objective, objective.to_z(x), steps=30))
    torch.testing.assert_close(x, iterates[0], rtol=1e-10, atol=1e-10)
    for k in range(1, 31):
        stage = Propagation([(T, T) if rule == "admm" else T] * k, rule)
        torch.testing.assert_close(stage(x), iterates[k], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rule", ["plain", HeavyBall(0.3), "nesterov", "nesterov2", "admm"], ids=str)
def test_algorithms_end_where_the_gradient_is_zero(rule):
    objective, x = problem("sigmoid")
    last = minimize(rule, objective, objective.to_z(x), steps=400)[-1]
    assert float(objective.f_gradient(last).abs().max()) < 1e-8


@pytest.mark.parametrize(
    "rule", ["residual", HeavyBall(beta1=1.0), Nesterov(beta2=0.1), RelaxedNesterov2()], ids=str
)
def test_a_rule_without_an_algorithm_is_refused(rule):
    objective, x = problem("relu")
    with pytest.raises(ValueError, match="not an algorithm"):
        minimize(rule, objective, x, steps=3)


def test_every_other_name_is_an_algorithm():
    objective, x = problem("relu")
    for rule in set(RULES) - {"residual"}:
        assert minimize(rule, objective, x, steps=2).shape == (3, 3, SIZE)


@pytest.mark.parametrize(
    "weight, words",
    [
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "W must be a symmetric matrix"),
        (torch.ones(2, 3), r"W must be a symmetric matrix; this one, of shape \(2, 3\), is not"),
        (torch.ones(3), "W must be a symmetric matrix"),
        (
            torch.tensor([[1.0, 2.0], [2.0, 1.0]]),
            "W must be positive definite; its smallest eigenvalue is -1",
        ),
        (torch.ones(2, 2), "W must be positive definite; its smallest eigenvalue is"),
    ],
)
def test_a_weight_without_a_positive_definite_root_is_refused(weight, words):
    with pytest.raises(ValueError, match=words):
        Objective(weight, "relu")


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match=r"gelu.*sigmoid"):
        Objective(torch.eye(2), "gelu")
