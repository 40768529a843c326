import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relucid.inspect.null_distribution import cosine_cdf, discoveries, extreme_p_value

scipy = pytest.importorskip("scipy", reason="needs relucid[studies]")
quick = settings(deadline=None, max_examples=50)


@quick
@given(st.integers(2, 30_000), st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_cosine_cdf_is_a_beta_distribution(dimension, cosines):
    a = (dimension - 1) / 2
    c = torch.tensor(cosines, dtype=torch.float64)
    expected = scipy.special.betainc(a, a, (1 + c.numpy()) / 2)
    assert cosine_cdf(c, dimension).numpy() == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_cosine_cdf_keeps_its_digits_in_the_far_tail():
    # In R^4: density 2/pi sqrt(1 - c^2), so F(-1 + e) = (acos(1 - e) - (1 - e) sqrt(2e - e^2)) / pi ~ e^1.5.
    tiny = 1e-6
    expected = (2 * tiny) ** 1.5 * 2 / (3 * torch.pi)
    assert float(cosine_cdf(torch.tensor([-1 + tiny], dtype=torch.float64), 4)) == pytest.approx(
        expected, rel=1e-5
    )
    far = float(cosine_cdf(torch.tensor([-0.75]), 1153))
    assert 0 < far < 1e-200
    assert far == pytest.approx(scipy.special.betainc(576, 576, 0.125), rel=1e-9)


@quick
@given(st.integers(2, 5000), st.floats(-1, 1))
def test_opposite_and_aligned_are_equally_likely(dimension, cosine):
    assert float(
        cosine_cdf(torch.tensor([cosine, -cosine], dtype=torch.float64), dimension).sum()
    ) == pytest.approx(1)


def test_in_one_dimension_a_cosine_is_minus_one_or_one():
    cosines = torch.tensor([-1.0, 0.0, 1.0])
    assert cosine_cdf(cosines, 1).tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("dimension, others", [(3, 7), (27, 63), (10, 1)])
def test_the_extreme_cosine_of_random_filters_follows_the_null_distribution(dimension, others):
    filters = torch.nn.functional.normalize(
        torch.randn(4000, others + 1, dimension, dtype=torch.float64), dim=2
    )
    smallest = torch.einsum("bd,bnd->bn", filters[:, 0], filters[:, 1:]).amin(1)
    p_values = extreme_p_value(smallest, dimension, others)
    assert scipy.stats.kstest(p_values.numpy(), "uniform").pvalue > 0.01


@quick
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.sampled_from([0.01, 0.05, 0.2]))
def test_discoveries_are_those_of_benjamini_and_hochberg(p_values, level):
    p = torch.tensor(p_values, dtype=torch.float64)
    adjusted = scipy.stats.false_discovery_control(p.numpy())
    clear = abs(adjusted - level) > 1e-12
    assert (discoveries(p, level).numpy() == (adjusted <= level))[clear].all()


def test_nothing_is_discovered_among_nothing():
    assert discoveries(torch.empty(0, dtype=torch.float64), 0.05).tolist() == []
