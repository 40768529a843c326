import importlib

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from relucid.inspect import figure_of_pairs, pairing

module = importlib.import_module("relucid.inspect._pairing")


quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32)


def slow_pairing(weight):
    unit = F.normalize(weight.flatten(1).double(), dim=1)
    rows = []
    for i in range(len(unit)):
        cosines = [(float(unit[i] @ unit[j]), j) for j in range(len(unit)) if j != i]
        rows.append((*min(cosines), *max(cosines)))
    return torch.tensor(rows, dtype=torch.float64).T


@quick
@given(seeds, st.integers(2, 40), st.integers(2, 6), st.integers(1, 50))
def test_pairing_equals_the_comparison_of_every_filter_with_every_other(seed, filters, inputs, block):
    torch.manual_seed(seed)
    weight = torch.randn(filters, inputs, 3, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        result = pairing(weight)
    opposite, opposite_index, aligned, aligned_index = slow_pairing(weight)
    torch.testing.assert_close(result.opposite, opposite)
    torch.testing.assert_close(result.aligned, aligned)
    assert result.opposite_index.tolist() == opposite_index.tolist()
    assert result.aligned_index.tolist() == aligned_index.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_planted_opposite_pairs_are_found_and_nothing_else(dtype):
    weight = torch.randn(64, 3, 5, 5)
    pairs = [(3, 41), (7, 8), (20, 60)]
    for i, j in pairs:
        weight[j] = -2.5 * weight[i] + 0.01 * torch.randn(3, 5, 5)
    result = pairing(weight.to(dtype))
    assert result.mutual == pairs
    assert result.paired.nonzero().flatten().tolist() == sorted(sum(pairs, ()))
    assert result.share == pytest.approx(6 / 64)
    assert result.random_share < 1e-6
    assert not result.twins.any()
    assert result.summary().startswith("9% of 64 filters have an opposite partner")


def test_planted_twins_are_found_and_are_not_pairs():
    weight = torch.randn(32, 27)
    weight[5] = 3 * weight[11]
    result = pairing(weight)
    assert result.twins.nonzero().flatten().tolist() == [5, 11]
    assert not result.paired.any()
    assert result.random_share == 0


def test_random_filters_have_no_pairs_more_often_than_the_level_says():
    result = [bool(pairing(torch.randn(24, 12), level=0.05, threshold=0.0).paired.any()) for _ in range(400)]
    assert sum(result) / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_filters_that_share_an_axis_are_not_pairs_by_that_alone():
    # Aligned partners as strong as opposite ones: a layer of low rank, not the signature of crelu.
    axis = torch.randn(27)
    noise = 0.3 * torch.randn(30, 27)
    aligned_more = torch.cat([axis + noise[:20], -axis + 3 * noise[20:]])
    assert pairing(aligned_more).paired[:20].float().mean() < 0.2


@quick
@given(seeds, st.floats(1e-3, 1e3))
def test_the_length_of_filters_does_not_matter(seed, scale):
    torch.manual_seed(seed)
    weight = torch.randn(16, 9)
    torch.testing.assert_close(pairing(weight * scale).opposite, pairing(weight).opposite)


def test_turning_every_filter_round_changes_nothing():
    weight = torch.randn(16, 9)
    torch.testing.assert_close(pairing(-weight).opposite, pairing(weight).opposite)


def test_filters_of_different_groups_make_no_pairs():
    weight = torch.randn(8, 30)
    weight[5] = -weight[1]  # opposite, but they see different inputs
    weight[7] = -weight[6]
    result = pairing(weight, groups=2)
    assert result.mutual == [(6, 7)]
    halves = [pairing(half) for half in weight.chunk(2)]
    torch.testing.assert_close(result.opposite, torch.cat([half.opposite for half in halves]))
    assert result.opposite_index[4:].tolist() == [i + 4 for i in halves[1].opposite_index.tolist()]


@pytest.mark.parametrize(
    "weight, groups", [(torch.randn(1, 9), 1), (torch.randn(6, 1, 3, 3), 6), (torch.zeros(4, 5), 1)]
)
def test_a_filter_without_company_has_no_partner(weight, groups):
    result = pairing(weight, groups)
    assert result.opposite.isnan().all()
    assert set(result.opposite_index.tolist()) == {-1}
    assert not result.paired.any()
    assert result.summary()


def test_a_filter_of_zeros_is_nobodys_partner():
    weight = torch.eye(3).repeat(1, 3)[:2]  # cosine 0 with each other
    result = pairing(torch.cat([weight, torch.zeros(1, 9)]))
    assert result.opposite_index.tolist() == [1, 0, -1]
    assert result.opposite[2].isnan()


def test_no_more_cosines_than_a_block_are_held_at_once(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(
                t.numel() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)
            )
            return out

    weight = torch.randn(1000, 4)
    with Watch():
        pairing(weight)
    assert max(sizes) <= max(64 * 64, weight.numel())


@pytest.mark.needs("plotly")
def test_the_histogram_shows_the_filters_and_the_density_of_random_ones():
    result = pairing(torch.randn(64, 27))
    bars, line = result.figure("conv1").data
    assert sorted(bars.x) == sorted(result.opposite.tolist())
    assert sum(line.y) * (line.x[1] - line.x[0]) == pytest.approx(1)


@pytest.mark.needs("plotly")
def test_the_picture_puts_every_filter_beside_its_pair():
    weight = torch.randn(10, 3, 5, 5)
    (image,) = figure_of_pairs(weight, pairing(weight), columns=4).data
    assert image.z.shape == (3 * 6, 4 * 11, 3)
    with pytest.raises(ValueError, match="two spatial dimensions"):
        figure_of_pairs(torch.randn(4, 9), pairing(torch.randn(4, 9)))
