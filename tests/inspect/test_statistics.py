"""Claims only with evidence: intervals, the least sample that allows the word "never", and what chance explains."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.inspect import _statistics, examine
from relucid.inspect._statistics import (
    NEEDED,
    Sample,
    cosine_cdf,
    discoveries,
    extreme_p_value,
    interval,
    squared_norms,
)

scipy = pytest.importorskip("scipy", reason="needs relucid[studies]")
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize("count", [1, 35, 1000])
def test_intervals_are_those_of_wilson(count):
    hits = torch.arange(0, count + 1, max(1, count // 7))
    low, high = interval(hits / count, count)
    for i, k in enumerate(hits.tolist()):
        expected = scipy.stats.binomtest(k, count).proportion_ci(method="wilson")
        assert (float(low[i]), float(high[i])) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_sample_is_enough_where_the_interval_of_a_rate_of_0_ends_below_10_percent():
    assert float(interval(torch.zeros(()), NEEDED)[1]) < 0.1 < float(interval(torch.zeros(()), NEEDED - 1)[1])
    assert Sample(NEEDED, NEEDED).enough
    assert not Sample(NEEDED - 1, 10**6).enough  # positions are not images


def test_images_and_positions_are_counted_separately():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.ReLU())
    examination = examine(net, torch.randn(64, 3, 8, 8))
    assert [str(layer.activity.sample) for layer in examination.layers] == [
        "64 images x 36 positions",
        "64 inputs",
    ]


def test_sequences_count_as_inputs():
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    examination = examine(net, torch.randn(3, 2, 6), torch.randn(40, 7, 6))
    assert str(examination["0"].activity.sample) == "40 inputs x 7 positions"


@pytest.mark.parametrize("inputs", [1, 8, NEEDED - 1])
def test_no_unit_is_called_dead_or_always_on_on_a_handful_of_inputs(inputs):
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU())
    net[0].bias.data[:16], net[0].bias.data[16:] = -100.0, 100.0
    examination = examine(net, torch.randn(inputs, 3, 8, 8))
    assert not examination.findings
    assert "dead" not in examination.rows()[0]
    (doubt,) = examination.doubts()
    assert f"{inputs} image{'s' * (inputs > 1)} x 36 positions; at least {NEEDED}" in doubt
    assert doubt in examination.summary().splitlines()


def test_rates_come_with_intervals():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    examination = examine(net, torch.randn(100, 3))["0"].activity
    low, high = interval(examination.active, 100)
    entry = examination.to_dict()
    assert entry["active_low"] == pytest.approx(low.tolist())
    assert entry["active_high"] == pytest.approx(high.tolist())
    assert (low <= examination.active).all()
    assert (examination.active <= high).all()


# Cosines of random filters


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


# Squared norms


@pytest.mark.parametrize("block", [1, 50, 1 << 17])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_squared_norms_in_blocks_are_those_of_all_vectors_at_once(block, dtype, layout, monkeypatch):
    monkeypatch.setattr(_statistics, "BLOCK", block)
    x = torch.randn(6, 5, 4, 3).to(dtype, memory_format=layout)
    for dim in (1, 2, 3, -1):
        result = squared_norms(x, dim)
        assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(result, x.double().square().sum(dim).to(result))


def test_there_may_be_no_vectors():
    assert squared_norms(torch.randn(0, 3), 1).shape == (0,)
    assert squared_norms(torch.randn(2, 0), 1).tolist() == [0, 0]
