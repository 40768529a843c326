import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.inspect.phase import phase_correlation


def slow_phase_correlation(weight):
    units = weight.shape[1] // 2
    outgoing = [weight[:, c].flatten().double() for c in range(2 * units)]
    pair, rest = [], []
    for i in range(units):
        for j in range(units):
            cosine = abs(float(F.cosine_similarity(outgoing[i], outgoing[units + j], dim=0)))
            (pair if i == j else rest).append(cosine)
    return torch.tensor(pair), torch.tensor(rest)


@pytest.mark.parametrize("shape", [(8, 6, 3, 3), (5, 8), (4, 2, 7)])
def test_phase_correlation_equals_the_cosines_one_by_one(shape):
    weight = torch.randn(shape)
    pair, rest = slow_phase_correlation(weight)
    result = phase_correlation(weight)
    assert result.pair[0] == pytest.approx(float(pair.mean()), rel=1e-5)
    if shape[1] > 2:
        assert result.pair[1] == pytest.approx(float(pair.std()), rel=1e-4)
        assert result.non_pair == pytest.approx((float(rest.mean()), float(rest.std())), rel=1e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_layer_that_undoes_the_split_has_correlation_one(sign):
    half = torch.randn(6, 5, 3)
    assert phase_correlation(torch.cat([half, sign * half], 1)).pair == pytest.approx((1, 0), abs=1e-6)


def test_a_linear_layer_after_a_flattened_map_is_read_by_channel():
    weight = torch.randn(7, 6, 4, 4)
    flat = phase_correlation(weight.flatten(1), channels=6)
    torch.testing.assert_close(flat.cosines, phase_correlation(weight).cosines)


def test_one_unit_has_no_other_to_compare_with():
    result = phase_correlation(torch.randn(3, 2))
    assert torch.tensor(result.non_pair).isnan().all()


def test_gradients_are_not_kept():
    assert not phase_correlation(nn.Linear(4, 3).weight).cosines.requires_grad
