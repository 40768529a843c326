"""A training step of our layers against the ordinary layers that a user would type instead.

    python benchmarks/layers.py

Geometric layers against nn.Linear, CReLU against ReLU with twice the filters, MeanNorm against batch norm. Before
memory is reused ("time") and after ("reusing"), with one thread and with two.
"""

from collections.abc import Callable
from functools import partial

import torch
from measure import LAYOUTS, Row, device_asked_for, interleaved, report, threads
from torch import Tensor, nn

from relucid.nn import CReLU, GeometricLinear, MeanNorm

Sides = dict[str, nn.Module]


def training_step(net: nn.Module, x: Tensor) -> Callable[[], None]:
    # The same gradient at every step: with a larger rate, weights would soon be large.
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-7, momentum=0.9)
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()  # as inside a network
    grad = torch.randn_like(net(x))

    def step() -> None:
        optimizer.zero_grad()
        x.grad = None
        net(x).backward(grad)
        optimizer.step()

    return step


@torch.no_grad()
def evaluate(net: nn.Module, x: Tensor) -> None:
    net(x)


def linear(size: int) -> Sides:
    return {
        "ours": GeometricLinear(size, size, activation=nn.ReLU()),
        "theirs": nn.Sequential(nn.Linear(size, size), nn.ReLU()),
    }


def geometric(reuse: bool) -> list[Row]:
    rows = []
    measure = "reusing" if reuse else "time"
    for size, batch, bar, repeats in [(1024, 64, 2.0, 40), (1024, 256, 1.5, 25), (4096, 64, 2.0, 4)]:
        sides, x = linear(size), torch.randn(batch, size)
        steps = {name: training_step(net, x) for name, net in sides.items()}
        case = f"GeometricLinear({size}, {size}) with ReLU, batch {batch}"
        found = interleaved(steps, repeats, reuse)
        rows.append(Row(f"{case}: training step", measure, found["ours"], found["theirs"], bar))
        found = interleaved({n: partial(evaluate, net.eval(), x) for n, net in sides.items()}, 100, reuse)
        rows.append(Row(f"{case}: evaluation", measure, found["ours"], found["theirs"], 1.1))
    return rows


def convolution(inputs: int, outputs: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


def crelu(channels: int) -> Sides:
    """Two convolutions with the same number of channels between them."""
    return {
        "ours": nn.Sequential(convolution(channels, channels), CReLU(), convolution(2 * channels, channels)),
        "theirs": nn.Sequential(
            convolution(channels, 2 * channels), nn.ReLU(), convolution(2 * channels, channels)
        ),
    }


def norm(channels: int) -> Sides:
    def unit(made: nn.Module) -> nn.Module:
        return nn.Sequential(convolution(channels, channels), made, nn.ReLU())

    return {"ours": unit(MeanNorm(channels, bias=True)), "theirs": unit(nn.BatchNorm2d(channels))}


def images() -> list[Row]:
    rows = []
    for name, layout in LAYOUTS.items():
        x = torch.randn(16, 48, 32, 32).to(memory_format=layout)
        for kind, make in (("CReLU", crelu), ("MeanNorm", norm)):
            sides = {n: net.to(memory_format=layout) for n, net in make(48).items()}
            for count in (1, 2):
                with threads(count):
                    found = interleaved({n: training_step(net, x) for n, net in sides.items()}, 30)
                case = f"{kind}, 48 channels, {name}, threads: {count}"
                rows.append(Row(case, "time", found["ours"], found["theirs"], 1.0))
    return rows


def main() -> None:
    device_asked_for(__doc__)
    torch.manual_seed(0)
    rows = geometric(reuse=False) + geometric(reuse=True)  # once reused, always reused
    report("layers", rows + images())


if __name__ == "__main__":
    main()
