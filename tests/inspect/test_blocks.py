"""Squared norms in blocks."""

import pytest
import torch

from relucid.inspect import blocks
from relucid.inspect.blocks import squared_norms


@pytest.mark.parametrize("block", [1, 50, 1 << 17])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_they_are_those_of_all_vectors_at_once(block, dtype, layout, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", block)
    x = torch.randn(6, 5, 4, 3).to(dtype, memory_format=layout)
    for dim in (1, 2, 3, -1):
        result = squared_norms(x, dim)
        assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(result, x.double().square().sum(dim).to(result))


def test_there_may_be_none():
    assert squared_norms(torch.randn(0, 3), 1).shape == (0,)
    assert squared_norms(torch.randn(2, 0), 1).tolist() == [0, 0]
