"""Sides of boundaries, for every activation that has them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relucid.inspect import activity, examine
from relucid.inspect._boundary import hyperplanes
from relucid.inspect.activity import StreamingActivity
from relucid.inspect.measurement import LayerBatch


def counted(values, dim, block=activity.BLOCK, inputs=3, **options):
    gauge = StreamingActivity(values.shape[dim], **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity, "BLOCK", block)
        gauge.update(LayerBatch(values, dim, inputs))
    return gauge.compute()


def counted_in_batches(weight, bias, x):
    """The activity of units weight . x + bias on inputs (inputs, n), in batches of 3."""
    gauge = StreamingActivity(len(bias), hyperplanes(weight, bias).radius)
    for batch in x.split(3):
        lengths = batch.norm(dim=1)
        shell = float(lengths.min()), float(lengths.max())
        gauge.update(LayerBatch(batch @ weight.T + bias, 1, len(batch), shell=shell))
    return gauge.compute()


def by_unit(values, dim):
    return values.movedim(dim, 0).flatten(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_counts_are_exact_in_every_precision(dtype):
    values = torch.randn(2, 100_000).to(dtype)
    assert torch.equal(counted(values, dim=0).active, (values > 0).double().mean(1))


@settings(deadline=None, max_examples=40)
@given(
    st.permutations([0, 1, 2, 3]),
    st.integers(0, 3),
    st.sampled_from([1, 7, 1 << 18]),
    st.lists(st.sampled_from([0.0, -0.0, torch.nan, torch.inf, -torch.inf]), max_size=3),
)
def test_counts_are_exact_in_any_layout_and_blocks_and_what_has_no_sign_counts_as_neither(
    order, dim, block, planted
):
    values = torch.randn(3, 5, 4, 6)
    values.view(-1)[torch.randperm(360)[: len(planted)]] = torch.tensor(planted)
    values = values.permute(order)
    examination, rows = counted(values, dim, block, ceiling=1.0), by_unit(values, dim)
    assert torch.equal(examination.active, (rows > 0).double().mean(1))
    assert torch.equal(examination.inactive, (rows < 0).double().mean(1))
    assert torch.equal(examination.saturated, (rows > 1).double().mean(1))
    assert torch.equal(examination.finite, rows.isfinite().all(1))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 20))
def test_sides_are_those_of_all_inputs_at_once(seed, units, inputs):
    torch.manual_seed(seed)
    weight, bias, x = torch.randn(units, 4), torch.randn(units), torch.randn(inputs, 4)
    result, planes = counted_in_batches(weight, bias, x), hyperplanes(weight, bias)
    torch.testing.assert_close(result.active, (planes.distance(x) > 0).double().mean(0))
    assert result.outside.tolist() == (planes.radius.abs() > x.norm(dim=1).max()).tolist()
    assert result.inputs == inputs


def test_a_boundary_beyond_every_input_is_outside_the_data():
    x = torch.tensor([[1.0], [2.0], [1.5], [4.0], [2.0]])
    examination = counted_in_batches(torch.ones(2, 1), torch.tensor([3.0, 5.0]), x)
    assert examination.shell == (1.0, 4.0)
    assert examination.outside.tolist() == [False, True]


def test_dead_always_on_and_nearly_linear_units_are_distinguished():
    values = torch.ones(6, 200)
    values[0] = -1.0  # dead
    values[1] = 0.0  # dead too: nothing is positive
    values[3, :2] = -1.0  # off on 1%
    values[4, :3] = -1.0  # off on 1.5%
    values[5, :50] = 0.0  # never off
    examination = counted(values, 0, inputs=200)
    assert examination.dead.tolist() == [True, True, False, False, False, False]
    assert examination.always_on.tolist() == [False, False, True, False, False, True]
    assert examination.nearly_linear.tolist() == [False, False, False, True, False, False]
    assert examination.summary() == "of 6 units on 200 inputs: 2 dead, 2 always on, 1 nearly linear"


def switching(module, biases):
    """Six units on 64 inputs of standard deviation 1, with these biases."""
    net = nn.Sequential(nn.Linear(3, len(biases)), module)
    net[0].weight.data = nn.functional.normalize(torch.randn(len(biases), 3), dim=1)
    net[0].bias.data = torch.tensor(biases)
    return net


@pytest.mark.parametrize("module", [nn.LeakyReLU(), nn.PReLU(3), nn.RReLU()], ids=repr)
def test_units_that_leak_are_never_dead_but_may_have_one_phase_only(module):
    net, x = switching(module, [-100.0, 0.0, 100.0]), torch.randn(64, 3)
    examination = examine(net, x)
    (finding,) = examination.findings
    assert (finding.kind, finding.evidence["units"], finding.suggestion) == ("one phase", [0, 2], None)
    torch.testing.assert_close(examination["0"].activity.active, (net[0](x) > 0).double().mean(0))
    assert examination["0"].boundary.radius.tolist() == pytest.approx([-100.0, 0.0, 100.0])
    assert examination["0"].pairing["0"].others == 2


@pytest.mark.parametrize("module, low, high", [(nn.ReLU6(), 0.0, 6.0), (nn.Hardtanh(), -1.0, 1.0)], ids=str)
def test_clipped_units_are_dead_on_either_side_and_linear_between(module, low, high):
    middle = (low + high) / 2
    net, x = switching(module, [-100.0, 100.0, middle]), torch.randn(64, 3)
    net[0].weight.data[2] *= 1e-3
    activity = examine(net, x)["0"].activity
    values = net[0](x)
    torch.testing.assert_close(activity.active, (values > low).double().mean(0))
    torch.testing.assert_close(activity.saturated, (values > high).double().mean(0))
    assert activity.dead.tolist() == [True, True, False]
    assert activity.always_on.tolist() == [False, False, True]


def test_the_boundary_of_a_clipped_unit_is_where_its_slope_changes_first():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Hardtanh(-2.0, 2.0)).eval()
    net[1].weight.data.uniform_(-2, 2)
    net[1].bias.data.normal_()
    x = torch.randn(50, 3)
    examination = examine(net, x)["0"].boundary
    distance = examination.distance(x)
    assert ((distance > 0) == (net[:2](x) > -2)).all()
