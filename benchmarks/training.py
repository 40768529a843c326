"""`fit` against a plain PyTorch loop (contiguous, default allocator): time of a step of ResNet-20.

A lower bound stands beside it: the convolutions of the network, forward and backward, in `fit`'s layout and with its
allocator, and the passes that no batch norm can do without, right after the convolution, while its output is in the
cache: one to read it for its moments, one to normalize it (with ReLU and sum at no cost), one over output and gradient
for the sums that backward needs, one to write the gradient. Losses, optimizers and batches are left out.

The allocator's setting belongs to a process, so each side has a process of its own, with one thread. The sides take
turns, an epoch at a time. Processor time is measured: on a quiet machine that is what the clock shows.

Run it with nothing else on the machine: ``python benchmarks/training.py``.
"""

import statistics
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F
from measure import Row, report
from torch import Tensor, nn

from relucid.data import Split, moments
from relucid.memory import keep_memory
from relucid.models import create
from relucid.train import Engine, Machine, Recipe, fit
from relucid.train.engine import lay_out

BATCH, STEPS, ROUNDS = 128, 10, 7
CASES = {"ResNet-20, 32 pixels": (1.0, 32, 1.4), "ResNet-20, half width, 16 pixels": (0.5, 16, 1.6)}
ENGINES = {"fit": Engine("channels_last"), "fit, compiled": Engine("channels_last", compile=True)}
BOUND = "convolutions, passes of batch norms"
SIDES = ("loop", *ENGINES, BOUND)
SPARE = torch.empty(BATCH * 16 * 32 * 32)  # as large as the largest output of a convolution


class Turns:
    """Images that wait for their turn before each epoch, and then tell what the last one took."""

    def __init__(self, split: Split, connection: Connection) -> None:
        self.split, self.connection = split, connection
        self.targets, self.begin, self.steps = split.targets, 0.0, 0

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, indices: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The examples; whatever is not a batch of training is not timed."""
        if len(indices) == BATCH:
            if self.steps % STEPS == 0:
                self.connection.send(time.process_time() - self.begin)
                self.connection.recv()
                self.begin = time.process_time()
            self.steps += 1
        return self.split.batch(indices, seed)


def images(pixels: int) -> Split:
    """As many as an epoch has; what they show does not matter to the time."""
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH * STEPS, 3, pixels, pixels)
    shown = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return Split(shown, torch.randint(10, shape[:1], generator=generator))


def loop(network: nn.Module, train: Turns) -> None:
    """Training as one would write it, on images that have been normalized before."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    while True:
        for indices in torch.randperm(len(train)).split(BATCH):
            inputs, targets = train.batch(indices)
            optimizer.zero_grad()
            F.cross_entropy(network(inputs), targets).backward()
            optimizer.step()


def necessary(network: nn.Module, train: Turns) -> None:
    """The convolutions of a step, each forward and backward on an input of its size, and the passes of batch norms."""
    keep_memory()
    lay_out(network, torch.channels_last)
    calls: list[tuple[nn.Module, Tensor]] = []

    def look(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        calls.append((module, args[0].detach().requires_grad_(bool(calls))))  # images need no gradient

    hooks = [m.register_forward_pre_hook(look) for m in network.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        network(Engine().arrange(train.split.inputs[:BATCH]))
    for hook in hooks:
        hook.remove()
    while True:
        for indices in torch.randperm(len(train)).split(BATCH):
            train.batch(indices)
            network.zero_grad()
            for module, x in calls:
                x.grad = None
                y = module(x)
                passes(y.detach())
                y.backward(y.detach())


def passes(y: Tensor) -> None:
    """What batch norm has to read and write, forward and backward: y is both its input and the gradient here."""
    values = y.permute(0, 2, 3, 1).view(-1)  # as they lie in memory
    spare = SPARE[: len(values)]
    values.sum()
    torch.add(values, 1, out=spare)
    torch.dot(values, spare)
    torch.add(values, spare, out=spare)


def side(connection: Connection, case: str, name: str) -> None:
    """One side, for as long as it is given turns."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, pixels, _ = CASES[case]
    network, split = create("resnet20", num_classes=10, width=width), images(pixels)
    normalized = Split(moments(split).normalize(split.inputs), split.targets)
    if name in ENGINES:
        recipe = Recipe(epochs=10**6, batch_size=BATCH)
        fit(network, Turns(split, connection), recipe, machine=Machine(engine=ENGINES[name]))
    elif name == BOUND:
        necessary(network, Turns(normalized, connection))
    else:
        loop(network, Turns(normalized, connection))


def compare(case: str) -> tuple[list[Row], dict[str, float]]:
    """The rows of a case, and the images per second of each side."""
    context = get_context("spawn")
    connections, processes = {}, []
    for name in SIDES:
        connections[name], other = context.Pipe()
        processes.append(context.Process(target=side, args=(other, case, name), daemon=True))
        processes[-1].start()
        connections[name].recv()  # ready for its first epoch
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(1 + ROUNDS):
        for name, connection in connections.items():
            connection.send("go")
            seconds[name].append(connection.recv() / STEPS)
    for process in processes:
        process.kill()  # Lightning takes a polite request for the end of an epoch
    step = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    bar = 1 / CASES[case][2]
    rows = [Row(f"{case}: {name}", "time", step[name], step["loop"], bar) for name in SIDES if name != "loop"]
    return rows, {f"{case}: {name}": BATCH / value for name, value in step.items()}


def main() -> None:
    rows, images_per_second = [], {}
    for case in CASES:
        found, rates = compare(case)
        rows += found
        images_per_second |= rates
    for name, rate in images_per_second.items():
        print(f"{name}: {rate:.0f} images per second")
    torch.set_num_threads(1)
    report("training", rows, images_per_second=images_per_second)


if __name__ == "__main__":
    main()
