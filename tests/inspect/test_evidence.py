"""Claims only with evidence: intervals, and the least sample that allows the word "never"."""

import pytest
import torch
from torch import nn

from relucid.inspect import examine
from relucid.inspect.evidence import NEEDED, Sample, interval


@pytest.mark.needs("scipy")
@pytest.mark.parametrize("count", [1, 35, 1000])
def test_intervals_are_those_of_wilson(count):
    from scipy.stats import binomtest

    hits = torch.arange(0, count + 1, max(1, count // 7))
    low, high = interval(hits / count, count)
    for i, k in enumerate(hits.tolist()):
        expected = binomtest(k, count).proportion_ci(method="wilson")
        assert (float(low[i]), float(high[i])) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_sample_is_enough_where_the_interval_of_a_rate_of_0_ends_below_10_percent():
    assert float(interval(torch.zeros(()), NEEDED)[1]) < 0.1 < float(interval(torch.zeros(()), NEEDED - 1)[1])
    assert Sample(NEEDED, NEEDED).enough
    assert not Sample(NEEDED - 1, 10**6).enough  # positions are not images


def test_images_and_positions_are_counted_separately():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.ReLU())
    found = examine(net, torch.randn(64, 3, 8, 8))
    assert [str(layer.activity.sample) for layer in found.layers] == ["64 images x 36 positions", "64 inputs"]


def test_sequences_count_as_inputs():
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    found = examine(net, torch.randn(3, 2, 6), torch.randn(40, 7, 6))
    assert str(found["0"].activity.sample) == "40 inputs x 7 positions"


@pytest.mark.parametrize("inputs", [1, 8, NEEDED - 1])
def test_no_unit_is_called_dead_or_always_on_on_a_handful_of_inputs(inputs):
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU())
    net[0].bias.data[:16], net[0].bias.data[16:] = -100.0, 100.0
    found = examine(net, torch.randn(inputs, 3, 8, 8))
    assert not found.findings
    assert "dead" not in found.rows()[0]
    (doubt,) = found.doubts()
    assert f"{inputs} image{'s' * (inputs > 1)} x 36 positions; at least {NEEDED}" in doubt
    assert doubt in found.summary().splitlines()


def test_rates_come_with_intervals():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    found = examine(net, torch.randn(100, 3))["0"].activity
    low, high = interval(found.active, 100)
    entry = found.to_dict()
    assert entry["active_low"] == pytest.approx(low.tolist())
    assert entry["active_high"] == pytest.approx(high.tolist())
    assert (low <= found.active).all()
    assert (found.active <= high).all()


def test_nan_inside_the_network_is_an_error_and_no_unit_counts_as_dead_for_it():
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU())
    net[0].bias.data[:] = torch.nan
    (finding,) = examine(net, torch.randn(64, 3), measures=["activity"]).findings
    assert (finding.kind, finding.severity, len(finding.evidence["units"])) == ("not finite", "error", 16)
