"""Inspection at full size: pairing, reconstruction, tracking and examination against the time or memory they may take.

Where there is no other side to compare with, "theirs" is the limit itself and the bar is 1.
"""

import resource
import statistics
import time

import torch
import torch.nn.functional as F
from measure import Row, interleaved, report
from torch import Tensor, nn

from relucid.inspect import BoundaryTracker, examine, pairing, reconstruct, reconstruction_ratio
from relucid.nn import crelu


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def many_filters() -> list[Row]:
    """The matrix of all cosines would take 40,000 MB."""
    weight = torch.randn(100_000, 27)
    before = peak_megabytes()
    pairing(weight)
    return [Row("pairing 100,000 x 27", "MB", peak_megabytes() - before, 500, 1)]


def reconstruction() -> list[Row]:
    """The operator would take 168 GB."""
    image = F.interpolate(torch.randn(1, 3, 28, 28), size=224, mode="bicubic") + 0.1 * torch.randn(
        1, 3, 224, 224
    )
    layer, shape = nn.Conv2d(3, 96, 11, stride=4), (3, 224, 224)
    features = crelu(layer(image)).detach()
    before = peak_megabytes()
    seconds = interleaved({"ours": lambda: reconstruct(layer, features, shape)}, 3)["ours"]
    memory = peak_megabytes() - before
    found = reconstruct(layer, features, shape).input
    ratio = float(reconstruction_ratio(image[..., :223, :223], found[..., :223, :223]))
    case = "reconstruct 3x224x224 from 96 filters 11x11/4"
    return [
        Row(case, "seconds", seconds, 3, 1),
        Row(case, "MB", memory, 1024, 1),
        Row(case, "lost", ratio, 5e-3, 1),
    ]


def pairs() -> list[Row]:
    weight = torch.randn(16_384, 1152)
    times = interleaved({"ours": lambda: pairing(weight), "product": lambda: weight @ weight.T}, 3)
    return [Row("pairing 16,384 x 1,152 / the product", "time", times["ours"], times["product"], 1.5)]


def tracker() -> list[Row]:
    """Medians of the steps and of the tracker's calls between them, for each of the ten it cycles through."""
    net = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(512, 512), nn.ReLU())), nn.Linear(512, 10))
    x, y = torch.randn(128, 512), torch.randint(10, (128,))
    optimizer, watch = torch.optim.Adam(net.parameters()), BoundaryTracker(net, x, every=10)
    steps: list[float] = []
    calls: list[list[float]] = [[] for _ in range(10)]
    for i in range(500):
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        trained = time.perf_counter()
        watch.step()
        calls[i % 10].append(time.perf_counter() - trained)
        steps.append(trained - begin)
    step, call = statistics.median(steps), statistics.mean(map(statistics.median, calls))
    return [Row("training 3 x 512 with a BoundaryTracker / without", "time", step + call, step, 1.05)]


class Bottleneck(nn.Module):
    """A block of ResNet-50, as it is usually written."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        projection = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.skip = projection if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 4 x width, H', W')."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.skip(x)
        return self.relu(y)


def resnet50() -> nn.Module:
    blocks, inputs = [], 64
    for width, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inputs, width, first if i == 0 else 1))
            inputs = 4 * width
    stem = (
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    )
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def examination() -> list[Row]:
    net, images = resnet50(), torch.randn(8, 3, 224, 224)
    seconds = interleaved({"ours": lambda: examine(net, images)}, 1)["ours"]
    case, layers = "examine ResNet-50 on 8 images", len(examine(net, images).layers)
    return [Row(case, "seconds", seconds, 60, 1), Row(case, "layers", 49, layers, 1)]


if __name__ == "__main__":
    torch.manual_seed(0)
    report("inspection", reconstruction() + many_filters() + pairs() + tracker() + examination())
