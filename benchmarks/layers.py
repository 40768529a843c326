"""A training step of our layers against the ordinary layers that a user would type instead.

    python benchmarks/layers.py

Geometric layers against nn.Linear, and whole networks, each with its floor, in processor time of one thread; CReLU
against ReLU with twice the filters, MeanNorm against batch norm, with one thread and with two. Wide layers before
memory is reused ("time") and after ("reusing").
"""

import time
from collections.abc import Callable, Iterable
from functools import partial

import torch
from measure import LAYOUTS, Row, device_asked_for, interleaved, report, threads
from measure import training_step as whole_step
from torch import Tensor, nn

from relucid.models import create
from relucid.nn import CReLU, GeometricLinear, MeanNorm

Sides = dict[str, nn.Module]
# Size and batch, and the bars of a training step and of evaluation.
WIDE = [(1024, 64, 2.2, 1.5), (1024, 256, 1.5, 1.25), (4096, 64, 3.4, 1.5)]
CASES = [
    *(
        (size, 64, step, evaluation)
        for size, step, evaluation in ((64, 3, 2.5), (100, 2.7, 2.5), (256, 2.3, 1.8))
    ),
    *(
        (size, 256, step, evaluation)
        for size, step, evaluation in ((64, 2.5, 2.2), (100, 2.2, 2), (256, 1.9, 1.5))
    ),
    *((size, 1024, 1.6, 1.4) for size in (64, 100, 256, 1024)),
]
# Options of create, the shape of a batch, and the bars.
NETWORKS = {
    "MLP 16-100-10, batch 7494": ("mlp", {"hidden": (100,), "in_channels": 16}, (7494, 16), 1.5, 1.25),
    "MLP 784-256-256-256-10, batch 128": (
        *("mlp", {"hidden": (256, 256, 256), "in_channels": 784}),
        *((128, 784), 1.85, 1.35),
    ),
    "VGG-6, half width, batch 32": ("vgg6", {"width": 0.5}, (32, 3, 32, 32), 1.1, 1.1),
    "ResNet-20, batch 32": ("resnet20", {}, (32, 3, 32, 32), 1.1, 1.1),
}


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


def floor(nets: Iterable[nn.Module]) -> Callable[[], None]:
    """What no geometric step can do without: sin, cos, a running product and a running sum of the latitudes."""
    latitudes = [
        p.detach() for net in nets for name, p in net.named_parameters() if name.endswith("latitudes")
    ]

    def operations() -> None:
        for x in latitudes:
            x.sin()
            x.cos().cumprod(-1)
            x.cumsum(-1)

    return operations


def rows_of(
    case: str,
    steps: dict[str, Callable[[], object]],
    nets: Sides,
    x: Tensor,
    bars: tuple[float, float],
    reuse: bool,
) -> list[Row]:
    """A training step, its floor, and evaluation."""
    begin = time.process_time()
    steps["ours"]()
    repeats = max(5, min(200, int(3 / (time.process_time() - begin))))
    measure = "reusing" if reuse else "time"
    measured = interleaved({**steps, "floor": floor([nets["ours"]])}, repeats, reuse, time.process_time)
    theirs, bound = measured["theirs"], measured["floor"]
    evaluations = {name: partial(evaluate, net.eval(), x) for name, net in nets.items()}
    evaluation = interleaved(evaluations, 2 * repeats, reuse, time.process_time)
    return [
        Row(f"{case}: training step", measure, measured["ours"], theirs, bars[0]),
        Row(f"{case}: floor of the training step", measure, theirs + bound, theirs, bars[0]),
        Row(f"{case}: evaluation", measure, evaluation["ours"], evaluation["theirs"], bars[1]),
    ]


def geometric(reuse: bool) -> list[Row]:
    rows = []
    for size, batch, *bars in WIDE if reuse else CASES + WIDE:
        nets, x = linear(size), torch.randn(batch, size)
        steps = {name: training_step(net, x) for name, net in nets.items()}
        case = f"GeometricLinear({size}, {size}) with ReLU, batch {batch}"
        rows += rows_of(case, steps, nets, x, (bars[0], bars[1]), reuse)
    return rows


def networks() -> list[Row]:
    rows = []
    for case, (name, options, shape, *bars) in NETWORKS.items():
        weights = {"ours": "geometric", "theirs": "standard"}
        nets: Sides = {
            side: create(name, num_classes=10, weights=kind, **options) for side, kind in weights.items()
        }
        x, labels = torch.randn(shape), torch.randint(10, shape[:1])
        steps = {side: whole_step(net, x, labels, lr=1e-6) for side, net in nets.items()}
        rows += rows_of(f"{case}, geometric", steps, nets, x, (bars[0], bars[1]), reuse=True)
    return [Row(r.case, "time", r.ours, r.theirs, r.bar) for r in rows]


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
    with threads(1):
        rows = geometric(reuse=False) + geometric(reuse=True) + networks()  # once reused, always reused
    report("layers", rows + images())


if __name__ == "__main__":
    main()
