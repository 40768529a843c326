"""What nesterov2 costs beyond its transforms: forward and backward of 100 layers.

    python benchmarks/propagation.py

Against the plain rule with the same transforms, and against Eq. 13 as it is printed, a sum over all layers.
"""

from collections.abc import Callable

import torch
from measure import Row, device_asked_for, interleaved, report
from reversible import transforms
from torch import Tensor, nn

from relucid.nn.propagation import Propagation
from relucid.nn.rules import RelaxedNesterov2, Rule

DEPTH = 100


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU())


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())


def against(
    name: str, other: str | Rule, make: Callable[[], nn.Module], x: Tensor, *, bar: float, repeats: int
) -> Row:
    layers = [make() for _ in range(DEPTH)]
    ours, theirs = (Propagation(layers, rule) for rule in ("nesterov2", other))
    seconds = interleaved(
        {"ours": lambda: ours(x).sum().backward(), "theirs": lambda: theirs(x).sum().backward()}, repeats
    )
    return Row(name, "time", seconds["ours"], seconds["theirs"], bar)


def main() -> None:
    device_asked_for(__doc__)
    torch.manual_seed(0)
    vectors, small, images = (
        torch.randn(shape) for shape in ((256, 256), (32, 16, 16, 16), (32, 64, 32, 32))
    )
    twice = "conv-BN-ReLU-conv-BN 64, 32x32, batch 32: plain"
    rows = [
        against("linear 256, batch 256: plain", "plain", linear, vectors, bar=1.2, repeats=25),
        against("conv-BN-ReLU 16, 16x16, batch 32: plain", "plain", convolution, small, bar=1.2, repeats=15),
        against(twice, "plain", lambda: transforms(1, 64)[0], images, bar=1.2, repeats=4),
        against("linear: sum over all layers", RelaxedNesterov2(), linear, vectors, bar=0.5, repeats=3),
    ]
    report("propagation", rows)


if __name__ == "__main__":
    main()
