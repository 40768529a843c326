import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relucid.data import Split, holdout, k_fold, moments


def labelled(n: int, classes: int = 2) -> Split:
    return Split(torch.arange(n).view(n, 1), torch.arange(n) % classes)


@pytest.mark.parametrize("shape", [(2500, 3), (1200, 3, 4, 5)])
@pytest.mark.parametrize("kind", ["bytes", "far from zero"])
def test_moments_are_those_of_numpy(shape, kind):
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, shape, dtype=np.uint8)
    if kind == "far from zero":
        inputs = inputs / 255 + 1e6
    rows = np.moveaxis(inputs, 1, -1).reshape(-1, 3).astype(np.float64)
    found = moments(Split(torch.from_numpy(inputs), torch.zeros(len(inputs))))
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12)
    # numpy centres on its own rounded mean, hence an absolute error of (1e6 * 1e-16)^2 and a relative one
    np.testing.assert_allclose(found.covariance, np.cov(rows.T, bias=True), rtol=1e-8, atol=1e-11)


def test_normalized_training_inputs_have_mean_zero_and_deviation_one():
    part = Split(torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8), torch.zeros(50))
    normal = moments(part).normalize(part.inputs)
    assert normal.dtype == torch.float32
    assert normal.mean((0, 2, 3)).abs().max() < 1e-6
    assert (normal.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6


def test_a_constant_channel_is_centred_and_not_blown_up_by_rounding():
    part = Split(torch.full((999, 1), 0.1, dtype=torch.float64), torch.zeros(999))
    assert moments(part).normalize(part.inputs).abs().max() < 1e-15


def test_examples_from_all_over_the_part_stand_for_it_where_a_limit_is_set():
    assert moments(labelled(100), limit=10).mean == 45


@given(st.integers(20, 60), st.integers(2, 5), st.integers(0, 99), st.sampled_from([0, 3]))
def test_folds_divide_a_part_and_keep_the_proportion_of_the_classes(n, folds, seed, classes):
    part = labelled(n, classes or 1)
    if not classes:  # values instead of classes
        part = Split(part.inputs, part.targets.float().unsqueeze(1))
    pairs = [k_fold(part, index, folds, seed) for index in range(folds)]
    held = torch.cat([held.inputs for _, held in pairs]).flatten()
    assert sorted(held.tolist()) == list(range(n))
    for rest, held in pairs:
        assert sorted(torch.cat([rest.inputs, held.inputs]).flatten().tolist()) == list(range(n))
        if classes:
            counts = held.targets.bincount(minlength=classes)
            assert counts.max() - counts.min() <= 2


def test_a_held_out_share_keeps_the_proportion_of_the_classes_and_follows_from_the_seed():
    rest, held = holdout(labelled(100, 4), 0.2, seed=1)
    assert len(rest) == 80
    assert held.targets.bincount().tolist() == [5] * 4
    assert not set(rest.inputs.flatten().tolist()) & set(held.inputs.flatten().tolist())
    assert holdout(labelled(100, 4), 0.2, seed=1)[1].inputs.equal(held.inputs)
    assert not holdout(labelled(100, 4), 0.2, seed=2)[1].inputs.equal(held.inputs)
