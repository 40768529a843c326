import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relucid.papers.crelu.complexity import complexity


def exact(values, rho, phases):
    """The supremum of the norm of 2/L sum_i s_i rho(f(x_i)), averaged over all sign vectors."""
    count = values.shape[1]
    total = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=count):
        sums = [
            2 / count * (torch.tensor(signs, dtype=torch.float64) * rho(p * values)).sum(1) for p in phases
        ]
        total += float(torch.stack(sums).norm(dim=0).max())
    return total / 2**count


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 6))
def test_estimates_agree_with_all_sign_vectors(seed, units, inputs):
    torch.manual_seed(seed)
    values = torch.randn(units, inputs, dtype=torch.float64)
    found = complexity(values, width=3, bound=2.0, draws=4000, generator=torch.Generator().manual_seed(seed))
    factor = 2 * math.sqrt(3)
    expected = {
        "units": exact(values, lambda v: v, [1]),
        "absolute": exact(values, torch.abs, [1]),
        "relu": factor * exact(values, torch.relu, [1]),
        "crelu": factor * exact(values, torch.relu, [1, -1]),
    }
    for name, value in expected.items():
        estimate = getattr(found, name)
        assert abs(estimate.value - value) <= 5 * estimate.error + 1e-12


def test_theorem_41_is_false_as_printed():
    # Inputs 1 and -1, units x -> wx with |w| <= 1: the supremum is at w = 1 or -1.
    found = complexity(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), draws=20_000)
    assert found.crelu.value == pytest.approx(math.sqrt(2))
    assert found.crelu.error < 1e-12
    assert abs(found.printed.value - 1) <= 5 * found.printed.error
    assert found.corrected.value == pytest.approx(math.sqrt(2) * 1, rel=0.05)


def test_corollary_b3_is_false_with_an_absolute_value():
    values = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    assert exact(values, lambda v: v, [1]) == pytest.approx(1)
    assert exact(values, torch.relu, [1]) == pytest.approx(7 / 6)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 30), st.integers(1, 9), st.floats(0.1, 10))
def test_theorem_41_holds_as_corrected(seed, units, inputs, width, bound):
    # Draw by draw, and so without sampling error.
    torch.manual_seed(seed)
    found = complexity(torch.randn(units, inputs), width=width, bound=bound, draws=50)
    assert found.crelu.value <= found.corrected.value * (1 + 1e-12)
    assert found.relu.value <= found.crelu.value * (1 + 1e-12)


def test_error_bars_shrink_with_the_root_of_the_draws():
    values = torch.randn(10, 20)
    few, many = complexity(values, draws=100), complexity(values, draws=10_000)
    assert many.crelu.error == pytest.approx(few.crelu.error / 10, rel=0.3)
    assert "Theorem 4.1 as printed" in many.summary()


@pytest.mark.parametrize("shape, draws", [((3,), 10), ((0, 4), 10), ((3, 4), 1)])
def test_values_of_another_shape_are_refused(shape, draws):
    with pytest.raises(ValueError, match="at least 2 draws"):
        complexity(torch.randn(shape), draws=draws)
