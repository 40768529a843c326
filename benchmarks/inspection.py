"""Inspection at full size: pairing, reconstruction, tracking and examination against the time or memory they may take.

Where there is no other side to compare with, "theirs" is the limit itself and the bar is 1. captum and torchlens are
compared where they are installed.
"""

import resource
import statistics
import time
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from measure import Row, interleaved, report, threads
from networks import resnet
from torch import Tensor, nn

from relucid.inspect import BoundaryTracker, Watch, examine, pairing, reconstruct, reconstruction_ratio
from relucid.nn import crelu


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pairing_memory() -> list[Row]:
    """Memory beyond the weights: the cosines of 100,000 filters would take 40,000 MB, those of 16,384 1,074 MB."""
    rows = []
    for case, shape, limit in (
        ("pairing 100,000 x 27", (100_000, 27), 500),
        ("pairing 16,384 x 4,096: more memory", (16_384, 4096), 256),
    ):
        weight = torch.randn(shape)
        before = peak_megabytes()
        pairing(weight)
        rows.append(Row(case, "MB", peak_megabytes() - before, limit, 1))
    return rows


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
    times = interleaved({"ours": lambda: pairing(weight), "product": lambda: weight @ weight.T}, 1)
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


def feed_forward(blocks: int, width: int = 4096, hidden: int = 16_384) -> nn.Module:
    """The ReLU feed-forward blocks of a large language model: 134M weights each."""
    layers = (
        m for _ in range(blocks) for m in (nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
    )
    return nn.Sequential(*layers)


class Statistics:
    """How many values of each unit are positive, how many negative, and their sum."""

    def __init__(self) -> None:
        self.found: dict[Hashable, list[Tensor]] = {}

    def add(self, name: Hashable, x: Tensor) -> None:
        """Add a batch of what enters a ReLU."""
        places = [d for d in range(x.dim()) if d != 1]
        new = [(x > 0).sum(places), (x < 0).sum(places), x.sum(places)]
        old = self.found.get(name)
        if old is not None:
            new = [a + b for a, b in zip(old, new, strict=True)]
        self.found[name] = new


def relus(net: nn.Module) -> list[nn.Module]:
    return [module for module in net.modules() if isinstance(module, nn.ReLU)]


def by_hooks(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Statistics of every ReLU as one would write it in plain PyTorch.

    A ReLU module that is called more than once mixes its calls up; here they are distinguished by the number of units.
    """
    statistics = Statistics()

    def look(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        statistics.add((module, args[0].shape[1]), args[0])

    handles = [module.register_forward_pre_hook(look) for module in relus(net)]
    plain(net, batches)
    for handle in handles:
        handle.remove()


def by_captum(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """The same statistics of what captum's LayerActivation returns: the last call of each ReLU module."""
    from captum.attr import LayerActivation

    statistics, layers = Statistics(), relus(net)
    activations = LayerActivation(net, layers)
    with torch.no_grad():
        for batch in batches:
            found = activations.attribute(batch, attribute_to_layer_input=True)
            for layer, x in zip(layers, found, strict=True):
                statistics.add(layer, x)


def by_torchlens(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """A trace of every operation, as torchlens takes it; no statistics of it yet."""
    import torchlens

    with torch.no_grad():
        for batch in batches:
            torchlens.trace(net, batch)


OTHERS = {"hooks": by_hooks, "captum": by_captum, "torchlens": by_torchlens}


def plain(net: nn.Module, batches: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for batch in batches:
            net(batch)


def at_scale(name: str, net: nn.Module, batches: Sequence[Tensor], repeats: int) -> list[Row]:
    """Activity, boundaries and dead units against a plain pass and against others; memory with four times the data."""
    net.eval()

    def ours(times: int = 1) -> None:
        examine(net, batches[0][:1], list(batches) * times, measures=("activity", "boundary"))

    others = {n: partial(f, net, batches) for n, f in OTHERS.items() if n == "hooks" or find_spec(n)}
    times = interleaved({"ours": ours, "a plain pass": partial(plain, net, batches), **others}, repeats)
    before = peak_megabytes()
    ours(4)
    grown = Row(f"examine, memory for 4 x the data: {name}", "MB", peak_megabytes() - before, 64, 1)
    return [
        *(
            Row(f"examine against {other}: {name}", "time", times["ours"], seconds, 1.5)
            for other, seconds in times.items()
            if other != "ours"
        ),
        grown,
    ]


def scale() -> list[Row]:
    images = torch.randn(64, 3, 160, 160).split(16)
    rows = at_scale("ResNet-50, 25M", resnet(3, 4, 6, 3), images, 7)
    for blocks in (1, 5):
        net = feed_forward(blocks)
        weights = sum(p.numel() for p in net.parameters())
        rows += at_scale(f"feed-forward, {weights / 1e6:.0f}M", net, torch.randn(256, 4096).split(64), 3)
    return rows


def examination() -> list[Row]:
    net, images = resnet(3, 4, 6, 3), torch.randn(8, 3, 224, 224)
    seconds = interleaved({"ours": lambda: examine(net, images)}, 1)["ours"]
    case, layers = "examine ResNet-50 on 8 images", len(examine(net, images).layers)
    return [Row(case, "seconds", seconds, 60, 1), Row(case, "layers", 49, layers, 1)]


def watching(steps: int = 1000) -> list[Row]:
    """Training a small network with a Watch, and without."""

    def loop(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(64, 16)).square().mean().backward()
            optimizer.step()

    rows = []
    for every, bar in ((100, 1.5), (1000, 1.1)):
        sides = {}
        for name in ("without", "with"):
            net = nn.Sequential(
                *(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
            )
            optimizer = torch.optim.Adam(net.parameters())
            if name == "with":
                Watch(net, every=every, log=lambda metrics, step: None).attach(optimizer)
            sides[name] = partial(loop, net, optimizer)
        with threads(1):
            seconds = interleaved(sides, 7, clock=time.process_time)
        rows.append(Row(f"watch every {every} steps", "time", seconds["with"], seconds["without"], bar))
    return rows


if __name__ == "__main__":
    torch.manual_seed(0)
    rows = reconstruction() + pairing_memory() + pairs() + tracker() + watching() + examination() + scale()
    report("inspection", rows)
