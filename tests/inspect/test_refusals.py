"""What the room refuses: the call, the error, and the value that the message names."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from relucid.inspect import BoundaryTracker, Watch, examine, invariance, metrics, pairing, phase_correlation
from relucid.inspect import boundary as boundary_of
from relucid.inspect import reconstruct as reconstruct_from
from relucid.inspect._boundary import Boundary
from relucid.inspect._statistics import cosine_cdf

NET = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
CONV = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
X, IMAGE = torch.randn(150, 4), torch.randn(1, 1, 6, 6)
POOLED = torch.zeros(1, 2, 1, 1).long()


def spoilt(value):
    data = X.clone()
    data[100, 2] = value
    return data


REFUSALS = [
    # examine
    (lambda: examine(NET, X, measures=["pears"]), ValueError, "pears"),
    (lambda: examine(nn.Linear(4, 2, device="meta"), X), ValueError, "meta device"),
    (lambda: examine(nn.Sequential(nn.LazyLinear(2), nn.ReLU()), X), ValueError, "lazy"),
    (lambda: examine(NET, (X, X, 3), call="predict"), ValueError, "predict"),
    (lambda: examine(NET, X, policy="head"), AttributeError, "head"),
    # its data
    *(
        (lambda v=v: examine(NET, X[:1], spoilt(v)), ValueError, "batch 1 .*1 of 256")
        for v in (torch.nan, torch.inf)
    ),
    *(
        (lambda d=d: examine(NET, X[:1], d), ValueError, "empty")
        for d in ([], iter(()), X[:0], TensorDataset(X[:0]))
    ),
    (lambda: examine(NET, X[:1], X.view(50, 3, 4)), ValueError, "3 dimensions .* 2 on the example"),
    (lambda: examine(NET, X[:1], 7), TypeError, "int"),
    (lambda: examine(NET, X[:1], "images.npy"), ValueError, r"images\.npy"),
    (lambda: examine(NET, X[:1], [{"x": X}]), TypeError, "mapping"),
    # metrics, Watch, BoundaryTracker
    *((lambda d=d: metrics(NET, d), ValueError, "at least one") for d in (X[:0], [])),
    (lambda: metrics(NET, torch.full((4, 4), torch.nan)), ValueError, "nan"),
    (lambda: Watch(NET, every=0), ValueError, "got 0"),
    (lambda: Watch(NET, limit=7), ValueError, "got 7"),
    (lambda: BoundaryTracker(NET, every=0), ValueError, "got 0"),
    # boundary
    *(
        (lambda layer=layer: boundary_of(layer), TypeError, f"not {type(layer).__name__}")
        for layer in (nn.ReLU(), nn.ConvTranspose2d(2, 3, 3), nn.BatchNorm1d(3))
    ),
    (lambda: boundary_of(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False)), TypeError, "batch"),
    (lambda: Boundary(torch.eye(3), torch.zeros(3)).figure(), ValueError, "these have 3"),
    # invariance
    (lambda: invariance(CONV, iter([IMAGE])), ValueError, "iterator"),
    (lambda: invariance(nn.Conv2d(1, 2, 1), IMAGE), ValueError, "no layer"),
    (lambda: invariance(CONV, IMAGE, crop=8), ValueError, "6 x 6 cannot be cropped to 8"),
    # pairing, phases
    (lambda: pairing(torch.randn(7)), ValueError, "filters"),
    (lambda: pairing(torch.randn(0, 3)), ValueError, "filters"),
    (lambda: pairing(torch.full((7, 3), torch.nan)), ValueError, "finite"),
    (lambda: pairing(torch.ones(7, 3, dtype=torch.int64)), ValueError, "floating-point"),
    (lambda: pairing(torch.randn(7, 3), groups=2), ValueError, "groups=2"),
    (lambda: cosine_cdf(torch.zeros(1), 0), ValueError, "got 0"),
    *(
        (lambda shape=shape, n=n: phase_correlation(torch.randn(shape), n), ValueError, "2 x units")
        for shape, n in (((4, 5), None), ((4, 10), 4), ((4,), 2))
    ),
    # reconstruct
    *(
        (
            lambda m=m: reconstruct_from(nn.Sequential(nn.Linear(4, 6), m), torch.randn(8, 6), (4,)),
            ValueError,
            "affine",
        )
        for m in (nn.ReLU(), nn.BatchNorm1d(6), nn.Dropout())
    ),
    (lambda: reconstruct_from(nn.Linear(3, 5), torch.randn(2, 7), (3,)), ValueError, r"\(2, 5\).*\(2, 7\)"),
    (
        lambda: reconstruct_from(nn.Conv2d(1, 1, 1), torch.randn(1, 2, 2, 2), (1, 4, 4), indices=POOLED),
        ValueError,
        "indices",
    ),
]


@pytest.mark.parametrize("call, error, value", REFUSALS, ids=map(str, range(len(REFUSALS))))
def test_it_is_refused_with_the_value(call, error, value):
    with pytest.raises(error, match=value):
        call()
