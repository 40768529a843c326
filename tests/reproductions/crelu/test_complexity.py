"""crelu Section 4.1 and Appendix B, by enumeration of all signs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.nn import CReLU

IDENTITY, RELU, CRELU = nn.Identity(), nn.ReLU(), CReLU(dim=0)


def complexity(values, activation=IDENTITY, width=1, bound=1.0):
    """The empirical Rademacher complexity of ``width`` units, an activation and weights of norm at most ``bound``.

    R = E sup |2/L sum_i s_i h . rho(g(x_i))| over signs s. The supremum over weights h is a norm; that over layers g
    is taken over all choices of units. With the defaults it is R(F) of crelu Definition B.1.

    Args:
        values: (units, L), the value of every unit of the class at every input.
        activation: takes (1, units, L) and returns (phases, units, L).
    """
    signs = torch.tensor([*itertools.product((-1.0, 1.0), repeat=values.shape[1])], dtype=torch.float64)
    sums = signs @ activation(values[None]).mT  # (phases, signs, units)
    layers = torch.tensor([*itertools.product(range(len(values)), repeat=width)])
    norms = torch.linalg.vector_norm(sums[..., layers], dim=(0, -1))  # (signs, layers)
    return 2 / values.shape[1] * bound * float(norms.amax(1).mean())


@pytest.mark.parametrize(
    "values, expected",
    [
        (torch.ones(1, 4), 2 / 4 * 3 / 2),  # one unit: E|s1 + s2 + s3 + s4| = 3/2
        (torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4), 2.0),  # some unit equals the signs
    ],
)
def test_definition_b1_takes_the_supremum_over_the_class(values, expected):
    assert complexity(values.double()) == pytest.approx(expected)


def test_theorem_41_is_false_as_printed():
    # Inputs 1 and -1, units x -> wx with |w| <= 1: the supremum is at w = 1 or -1.
    values = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    assert complexity(values, CRELU) == pytest.approx(math.sqrt(2))
    assert complexity(values) == pytest.approx(1)
    assert (complexity(values) + complexity(values.abs())) / math.sqrt(2) == pytest.approx(math.sqrt(2))


def test_corollary_b3_is_false_with_an_absolute_value():
    values = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    assert complexity(values) == pytest.approx(1)
    assert complexity(values, RELU) == pytest.approx(7 / 6)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 8), st.integers(1, 3), st.floats(0.1, 10))
def test_theorem_41_holds_as_corrected(seed, units, inputs, width, bound):
    torch.manual_seed(seed)
    values = torch.randn(units, inputs, dtype=torch.float64)
    relu, crelu = (complexity(values, each, width, bound) for each in (RELU, CRELU))
    corrected = math.sqrt(width) * bound * (complexity(values) + complexity(values.abs())) / math.sqrt(2)
    assert crelu <= corrected * (1 + 1e-12)
    assert relu <= crelu * (1 + 1e-12)
