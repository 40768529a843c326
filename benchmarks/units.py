"""The units against their published formulations: weights from angles, CReLU, a training step of VGG-6.

Weights in processor time of one thread. Run it with nothing else on the machine: ``python benchmarks/units.py``.
Against ordinary layers: layers.py.
"""

import time
from functools import partial

import torch
import torch.nn.functional as F
from measure import LAYOUTS, Row, device_asked_for, interleaved, report, saved_bytes, threads, training_step
from torch import Tensor, nn

from relucid.nn import GeometricConv2d, crelu, direction, unit_vector


def published_unit_vector(angles: Tensor) -> Tensor:
    """The unit vector of gmp Eq. 10 as it is usually written, differentiated by autograd."""
    ones = torch.ones_like(angles[..., :1])
    products = torch.cat((ones, torch.cumprod(angles.sin(), -1)), -1)
    return products * torch.cat((angles.cos(), ones), -1)


def published_crelu(x: Tensor) -> Tensor:
    return torch.cat((F.relu(x), F.relu(-x)), 1)


def forward_backward(function, x: Tensor, grad: Tensor) -> None:
    x.grad = None
    function(x).backward(grad)


def weights_from_angles(reuse: bool) -> list[Row]:
    rows = []
    for units, inputs in [(64, 64), (100, 100), (256, 256), (256, 2304), (1024, 1024), (4096, 4096)]:
        repeats = max(8, min(80, 2**25 // (units * inputs)))
        latitudes = 0.02 * torch.randn(units, inputs - 1)
        angles, grad = (torch.pi / 2 - latitudes).requires_grad_(), torch.randn(units, inputs)
        latitudes.requires_grad_()
        theirs = partial(forward_backward, published_unit_vector, angles, grad)
        kept = saved_bytes(partial(published_unit_vector, angles))
        for function, x, bar in ((unit_vector, angles, 0.8), (direction, latitudes, 0.8)):
            sides = {"ours": partial(forward_backward, function, x, grad), "published": theirs}
            # two at a time, as each meets the caches that the one before it leaves
            seconds = interleaved(sides, repeats, reuse, time.process_time)
            case = f"{function.__name__} {units}x{inputs}"
            measure = "reusing" if reuse else "time"
            rows.append(Row(case, measure, seconds["ours"], seconds["published"], bar))
            if not reuse:
                rows.append(Row(case, "bytes", saved_bytes(partial(function, x)), kept, 0.6))
    return rows


def crelu_against_two_relus() -> list[Row]:
    rows = []
    for channels in (96, 48):
        for name, layout in LAYOUTS.items():
            x = torch.randn(64, channels, 32, 32).to(memory_format=layout).requires_grad_()
            grad = torch.randn(64, 2 * channels, 32, 32).to(memory_format=layout)
            conv = nn.Conv2d(2 * channels, 8, 3)
            sides = {"ours": crelu, "published": published_crelu}
            seconds = interleaved({k: partial(forward_backward, f, x, grad) for k, f in sides.items()}, 40)
            kept = {
                k: saved_bytes(lambda f=f, x=x, conv=conv: conv(f(x)), exclude=conv.parameters())
                for k, f in sides.items()
            }
            case = f"crelu {channels} channels, {name}"
            rows.append(Row(case, "time", seconds["ours"], seconds["published"], 1.0))
            rows.append(Row(case, "bytes", kept["ours"], kept["published"], 0.5))
    return rows


def vgg6(geometric: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for width in (128, 256, 512):
        for _ in range(2):
            if geometric:
                layers.append(GeometricConv2d(channels, width, 3, padding=1, activation=nn.ReLU()))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def training_step_of_vgg6() -> list[Row]:
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    sides = {
        name: training_step(vgg6(name == "geometric"), images, labels, lr=1e-3)
        for name in ("standard", "geometric")
    }
    seconds = interleaved(sides, 12)
    return [Row("training step of VGG-6, geometric", "time", seconds["geometric"], seconds["standard"], 1.03)]


if __name__ == "__main__":
    device_asked_for(__doc__)
    torch.manual_seed(0)
    with threads(1):
        weights = weights_from_angles(reuse=False) + weights_from_angles(
            reuse=True
        )  # once reused, always reused
    report("units", weights + crelu_against_two_relus() + training_step_of_vgg6())
