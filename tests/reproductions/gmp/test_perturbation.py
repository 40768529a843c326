import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relucid.inspect._boundary import boundary
from relucid.inspect.tracker import change
from relucid.nn import GeometricLinear
from relucid.nn.sphere import angles_of, metric
from relucid_reproductions.gmp.fig1 import perturbation

quick = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32)


@quick
@given(seeds, st.integers(1, 30), st.floats(1e-6, 4))
def test_a_geometric_unit_never_turns_by_more_than_its_angles_change(seed, inputs, epsilon):
    # gmp Theorem 3, the inequality
    torch.manual_seed(seed)
    found = perturbation(torch.randn(6, inputs), torch.randn(6), [epsilon, -epsilon])
    bound = epsilon * math.sqrt(inputs - 1)  # the length of the change of all angles
    assert (found.turned["geometric"] <= bound * (1 + 1e-9) + 1e-7).all()


@quick
@given(seeds, st.integers(2, 30))
def test_to_first_order_it_turns_by_the_length_in_the_metric(seed, inputs):
    # gmp Theorem 3, the equality
    torch.manual_seed(seed)
    epsilon, weight = 1e-6, torch.randn(6, inputs, dtype=torch.float64)
    turned = perturbation(weight, None, [epsilon]).turned["geometric"][0]
    first_order = epsilon * metric(angles_of(weight)).sum(1).sqrt()
    torch.testing.assert_close(turned, first_order, rtol=1e-3, atol=0)


@quick
@given(seeds, st.integers(1, 10), st.floats(1e-4, 1))
def test_weight_normalization_turns_as_far_as_the_standard_layer(seed, inputs, epsilon):
    # gmp Eq. 12 and 14
    torch.manual_seed(seed)
    found = perturbation(torch.randn(4, inputs), torch.randn(4), [epsilon])
    torch.testing.assert_close(found.turned["weightnorm"], found.turned["standard"])


def test_small_standard_weights_turn_by_any_angle_where_geometric_ones_do_not():
    weight = torch.tensor([[-1e-3, -1e-3]])
    found = perturbation(weight, torch.tensor([1e-3]), [2e-3])
    assert float(found.turned["standard"]) == pytest.approx(math.pi)
    assert float(found.turned["geometric"]) == pytest.approx(2e-3, rel=1e-3)


def test_geometric_units_change_as_the_layers_parameters_do():
    layer = GeometricLinear(5, 3).double()
    layer.offset.data.normal_()
    before = boundary(layer)
    found = perturbation(before.direction, before.radius, [0.01])
    layer.latitudes.data -= 0.01  # latitude = pi/2 - angle
    layer.offset.data += 0.01
    after = boundary(layer)
    torch.testing.assert_close(found.after["geometric"][0].direction, after.direction)
    torch.testing.assert_close(found.after["geometric"][0].radius, after.radius)
    moved, _ = change(found.before, found.after["geometric"][0])
    torch.testing.assert_close(moved, (after.location - before.location).norm(dim=1))


def test_a_direction_in_one_dimension_is_a_sign_and_cannot_turn():
    found = perturbation(torch.tensor([[-2.0], [1.0]]), None, [0.5])
    assert not found.turned["geometric"].any()
    assert found.after["geometric"][0].direction.tolist() == [[-1.0], [1.0]]


def test_units_without_a_boundary_and_no_epsilon_are_refused():
    with pytest.raises(ValueError, match="all zero"):
        perturbation(torch.zeros(1, 3), None, [0.1])
    with pytest.raises(ValueError, match="at least one epsilon"):
        perturbation(torch.ones(1, 3), None, [])
