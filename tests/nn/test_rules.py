"""Every rule against the algorithm it comes from, written in the algorithm's own variables."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.nn.propagation import Propagation
from relucid.nn.rules import (
    ADMM,
    HeavyBall,
    LatestNesterov2,
    Nesterov,
    RelaxedADMM,
    RelaxedNesterov2,
    nesterov_weights,
)

SIZE = 5
quick = settings(deadline=None, max_examples=30)
depths = st.integers(1, 12)
betas = st.floats(-1.5, 1.5)


def layers(depth):
    return [nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh()).double() for _ in range(depth)]


def state():
    return torch.randn(3, SIZE, dtype=torch.float64)


def gradients(transforms):
    """T(x) = x - gradient(x): the functions whose gradient steps the layers are."""
    return [lambda z, T=T: z - T(z) for T in transforms]


def thetas(n):
    """theta_0, ..., theta_n, each the positive root of theta^2 / theta_before^2 + theta - 1 = 0."""
    theta = [1.0]
    for _ in range(n):
        a = 1 / theta[-1] ** 2
        theta.append((-1 + math.sqrt(1 + 4 * a)) / (2 * a))
    return theta


# The algorithms of structure section 2; gradient k is that of layer k.


def gradient_descent(g, z):
    for gradient in g:
        z = z - gradient(z)
    return z


def heavy_ball(g, z, beta, before):
    for gradient in g:
        z, before = z - gradient(z) + beta * (z - before), z
    return z


def nesterov(g, z):
    """Eq. 3: y_k and z_{k+1} for every k; the last z, and the y that would follow it."""
    theta, before = thetas(len(g)), z
    for k, gradient in enumerate(g):
        y = z + (theta[k] * (1 - theta[k - 1]) / theta[k - 1] * (z - before) if k > 0 else 0)
        z, before = y - gradient(y), z
    k = len(g)
    return z, z + (theta[k] * (1 - theta[k - 1]) / theta[k - 1] * (z - before) if k > 0 else 0)


def eq4(g, y):
    """Eq. 4 with the h of Eq. 5, as a sum over all layers."""
    theta, taken, h = thetas(len(g)), [], {}
    for k, gradient in enumerate(g):
        taken.append(gradient(y))
        factor = theta[k + 1] * (1 - theta[k]) / theta[k]
        for j in range(k + 1):
            h[k + 1, j] = 1 + factor if j == k else factor * (h[k, j] - (1 if j == k - 1 else 0))
        y = y - sum(h[k + 1, j] * taken[j] for j in range(k + 1))
    return y


def argmin(gradient, at, linear, pull):
    """The x where <gradient, x> + |x - at|^2 / 2 + <linear, x> + |x - pull|^2 / 2 is least."""
    return (at + pull - gradient - linear) / 2


def linearized_admm(g_z, g_y, start):
    z, y, multiplier = start, start, torch.zeros_like(start)
    for gradient_z, gradient_y in zip(g_z, g_y, strict=True):
        z = argmin(gradient_z(z), z, multiplier, y)
        y = argmin(gradient_y(y), y, -multiplier, z)
        multiplier = multiplier + (z - y)
    return y


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@quick
@given(depths)
def test_plain_is_gradient_descent(depth):
    T, x = layers(depth), state()
    close(Propagation(T, "plain")(x), gradient_descent(gradients(T), x))


@quick
@given(depths, betas, st.sampled_from(["same", "zero"]))
def test_heavy_ball_is_the_heavy_ball_algorithm_with_a_past_of_its_start(depth, beta, start):
    T, x = layers(depth), state()
    before = x if start == "same" else torch.zeros_like(x)
    close(Propagation(T, HeavyBall(beta), start=start)(x), heavy_ball(gradients(T), x, beta, before))


@quick
@given(depths)
def test_nesterov_follows_the_z_sequence(depth):
    T, x = layers(depth), state()
    close(Propagation(T, "nesterov")(x), nesterov(gradients(T), x)[0])


@quick
@given(depths)
def test_nesterov2_follows_the_y_sequence_and_the_sum_over_all_layers(depth):
    T, x = layers(depth), state()
    close(Propagation(T, "nesterov2")(x), nesterov(gradients(T), x)[1])
    close(Propagation(T, "nesterov2")(x), eq4(gradients(T), x))


@quick
@given(depths)
def test_admm_is_linearized_admm_with_a_transform_for_each_path(depth):
    T_, T, x = layers(depth), layers(depth), state()
    stage = Propagation(zip(T_, T, strict=True), "admm")
    close(stage(x), linearized_admm(gradients(T_), gradients(T), x))


@quick
@given(depths, st.data())
def test_eq16_with_coefficients_of_each_layer(depth, data):
    beta1, beta2 = (data.draw(st.lists(betas, min_size=depth, max_size=depth)) for _ in range(2))
    T, x = layers(depth), state()
    expected = before = x
    for k in range(depth):
        expected, before = T[k](expected) + beta1[k] * expected + beta2[k] * before, expected
    close(Propagation(T, HeavyBall(beta1=beta1, beta2=beta2))(x), expected)


@quick
@given(depths, betas, betas)
def test_eq17(depth, beta1, beta2):
    T, x = layers(depth), state()
    expected = before = x
    for k in range(depth):
        expected, before = T[k](beta1 * expected + beta2 * before), expected
    close(Propagation(T, Nesterov(beta1=beta1, beta2=beta2))(x), expected)


def triangle(depth, data):
    return [data.draw(st.lists(betas, min_size=k, max_size=k)) for k in range(1, depth + 1)]


@quick
@given(st.integers(1, 6), st.data())
def test_eq18(depth, data):
    alpha, beta = triangle(depth, data), triangle(depth, data)
    T, xs = layers(depth), [state()]
    for k in range(depth):
        xs.append(sum(alpha[k][j] * T[j](xs[j]) + beta[k][j] * xs[j] for j in range(k + 1)))
    close(Propagation(T, RelaxedNesterov2(alpha, beta))(xs[0]), xs[-1])


@quick
@given(st.integers(1, 6), st.data())
def test_eq20(depth, data):
    alpha, beta = triangle(depth, data), triangle(depth, data)
    T_, T, xs_ = layers(depth), layers(depth), [state()]
    xs = [xs_[0]]
    for k in range(depth):
        shared = sum(alpha[k][t] * xs_[t] + beta[k][t] * xs[t] for t in range(k + 1))
        xs_, xs = [*xs_, T_[k](xs_[k]) + shared], [*xs, T[k](xs[k]) + shared]
    close(Propagation(zip(T_, T, strict=True), RelaxedADMM(alpha, beta))(xs[0]), (xs_[-1] + xs[-1]) / 2)


@pytest.mark.parametrize(
    "rule, other",
    [
        ("plain", HeavyBall(0.0)),
        ("residual", HeavyBall(beta1=1.0, beta2=0.0)),
        ("nesterov2", RelaxedNesterov2()),  # the coefficients of Eq. 5
    ],
)
def test_rules_with_these_coefficients_are_others(rule, other):
    T, x = layers(9), state()
    close(Propagation(T, rule)(x), Propagation(T, other)(x))


def test_both_readings_of_eq13_agree_where_all_layers_are_one():
    T, x = layers(1) * 7, state()
    close(Propagation(T, LatestNesterov2())(x), Propagation(T, "nesterov2")(x))


def test_the_latest_layer_is_applied_to_all_states():
    T, xs, h = layers(5), [state()], nesterov_weights(5)
    for k in range(5):
        xs.append(xs[k] + sum(h[k, j] * (T[k](xs[j]) - xs[j]) for j in range(k + 1)))
    close(Propagation(T, LatestNesterov2())(xs[0]), xs[-1])


def test_relaxed_admm_is_dmrnet_by_default_and_not_eq14():
    T_, T, x = layers(4), layers(4), state()
    pairs = list(zip(T_, T, strict=True))
    left = right = x
    for a, b in pairs:
        left, right = a(left) + left / 2 + right / 2, b(right) + left / 2 + right / 2
    close(Propagation(pairs, RelaxedADMM())(x), (left + right) / 2)
    assert not torch.allclose(Propagation(pairs, RelaxedADMM())(x), Propagation(pairs, ADMM())(x))


@pytest.mark.parametrize(
    "rule, shapes",
    [
        (HeavyBall(0.5, learnable=True), {"beta1": (), "beta2": ()}),
        (HeavyBall([0.5] * 4, learnable=True), {"beta1": (4,), "beta2": (4,)}),
        (Nesterov(learnable=True), {"beta1": (4,), "beta2": (4,)}),
        (RelaxedNesterov2(learnable=True), {"alpha": (4, 4), "beta": (4, 4)}),
    ],
)
def test_learnable_coefficients_are_parameters_that_start_at_the_given_values(rule, shapes):
    T, x = layers(4), state()
    stage = Propagation(T, rule).double()
    constant = Propagation(T, type(rule)(**(vars(rule) | {"learnable": False})))
    own = dict(stage.named_parameters(recurse=False))
    assert {name: tuple(value.shape) for name, value in own.items()} == shapes
    torch.testing.assert_close(stage(x), constant(x), rtol=1e-6, atol=1e-6)  # parameters begin in float32
    stage(x).sum().backward()
    assert all(value.grad.abs().sum() > 0 for value in own.values())
    assert set(stage.state_dict()) - set(constant.state_dict()) == set(shapes)


def test_two_paths_can_learn_their_coefficients():
    stage = Propagation(zip(layers(3), layers(3), strict=True), RelaxedADMM(learnable=True)).double()
    stage(state()).sum().backward()
    assert stage.alpha.grad.abs().sum() > 0
    assert stage.beta.grad.abs().sum() > 0


def test_a_triangle_of_coefficients_is_taken():
    assert RelaxedADMM(alpha=[[1], [0.5, 0.5]]).alpha == [[1], [0.5, 0.5]]
