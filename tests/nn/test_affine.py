import pytest
import torch
from torch import nn

from relucid.nn.affine import affine_of
from relucid.nn.meannorm import MeanNorm


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm1d(5), nn.BatchNorm1d(5, affine=False), MeanNorm(5), MeanNorm(5, bias=True)],
    ids=repr,
)
def test_a_norm_in_evaluation_is_its_affine_map(norm):
    norm = norm.double().eval()
    for tensor in (*norm.parameters(), norm.running_mean):
        tensor.data.normal_()
    if hasattr(norm, "running_var"):
        norm.running_var.uniform_(0.1, 3)
    x = torch.randn(20, 5, dtype=torch.float64)
    scale, shift = affine_of(norm)
    torch.testing.assert_close(norm(x), scale * x + shift)


def test_a_norm_without_running_statistics_is_refused():
    with pytest.raises(TypeError, match="keeps no running mean"):
        affine_of(nn.BatchNorm1d(3, track_running_stats=False))
