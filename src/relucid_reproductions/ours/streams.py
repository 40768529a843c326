"""Networks on data that change: three streams of tasks, and the networks that learn them one task after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from relucid.data import Split
from relucid.nn import CReLU, GeometricConv2d, GeometricLinear
from relucid.train.stream import Stream
from relucid_reproductions.images import images
from relucid_reproductions.ours._bandit import all_digits

PROBE = 256  # inputs on which units are watched after every task
HEADS = 1_000_000  # added to a seed for the draws of output layers


@dataclass(frozen=True)
class Arm:
    """A network, and what is done to keep it learning.

    Args:
        activation: "relu", "leaky_relu" or "crelu".
        units: per layer, as a share of those of the ReLU network.
        norm: whether layer norm precedes the activation.
        geometric: whether the hidden layers have geometric weights.
        decay: the strength of an L2 penalty on all parameters.
        renew: whether dead units are redrawn after every task.
    """

    activation: str = "relu"
    units: float = 1.0
    norm: bool = False
    geometric: bool = False
    decay: float = 0.0
    renew: bool = False

    @property
    def phases(self) -> int:
        """Output channels per unit."""
        return 2 if self.activation == "crelu" else 1


class StreamNetwork(nn.Module):
    """Hidden layers, each with what follows it, and a linear head on the means over all positions.

    Args:
        layers: linear or convolution layers.
        after: what follows each of them.
        head: the output layer.
    """

    def __init__(self, layers: Sequence[nn.Module], after: Sequence[nn.Module], head: nn.Linear) -> None:
        super().__init__()
        self.layers, self.after, self.head = nn.ModuleList(layers), nn.ModuleList(after), head

    def forward(self, x: Tensor, hidden: bool = False) -> Any:
        """The outputs (N, classes) of inputs (N, ...), or the values of all hidden layers."""
        seen = []
        for layer, after in zip(self.layers, self.after, strict=True):
            x = after(layer(x))
            seen.append(x)
        return seen if hidden else self.head(x.flatten(2).mean(2) if x.dim() > 2 else x)


def dense(arm: Arm) -> StreamNetwork:
    """Build a network of linear layers for images of 8 x 8 pixels and ten classes."""
    make = GeometricLinear if arm.geometric else nn.Linear
    return _network(arm, 64, (64, 64, 64), 10, make, nn.LayerNorm)


def convolutional(arm: Arm) -> StreamNetwork:
    """Build a network of 3 x 3 convolutions for two classes, each of which halves the image."""

    def make(channels: int, filters: int, **options: Any) -> nn.Module:
        kind = GeometricConv2d if arm.geometric else nn.Conv2d
        return kind(channels, filters, 3, stride=2, padding=1, **options)

    return _network(arm, 3, (16, 32, 64), 2, make, lambda channels: nn.GroupNorm(1, channels))


def _network(
    arm: Arm,
    inputs: int,
    widths: Sequence[int],
    classes: int,
    make: Callable[..., nn.Module],
    norm: Callable[[int], nn.Module],
) -> StreamNetwork:
    layers, after = [], []
    for width in widths:
        units = round(arm.units * width)
        options = {"activation": nn.ReLU()} if arm.geometric else {}
        layers.append(make(inputs, units, **options))
        then = [norm(units)] * arm.norm + [_activation(arm)] * (not arm.geometric)
        after.append(nn.Sequential(*then))
        inputs = arm.phases * units
    return StreamNetwork(layers, after, nn.Linear(inputs, classes))


def _activation(arm: Arm) -> nn.Module:
    kinds: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "crelu": CReLU}
    return kinds[arm.activation]()


@dataclass
class Learners:
    """Networks that learn a stream together: `copies` blocks of one network per seed; blocks see the same data."""

    stream: Stream
    seeds: Sequence[int]
    copies: int
    phases: int  #: output channels per unit, 2 for CReLU
    draws: list[torch.Generator] = field(init=False)  #: of the data
    #: of new output layers, whose size must not change the data
    heads: list[torch.Generator] = field(init=False)

    def __post_init__(self) -> None:
        self.draws, self.heads = (
            [torch.Generator().manual_seed(first + seed) for seed in self.seeds] for first in (0, HEADS)
        )

    def draw(self, make: Callable[[torch.Generator], Tensor]) -> Tensor:
        """What each seed draws, (seeds, ...)."""
        return torch.stack([make(generator) for generator in self.draws])

    def each(self, values: Tensor) -> Tensor:
        """Values (seeds, ...) for all networks, (M, ...)."""
        return values.repeat(self.copies, *[1] * (values.dim() - 1))

    def learn(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Take a step on batches (seeds, B, ...); return which inputs were classified correctly before it, (M, B)."""
        targets = self.each(targets)
        outputs = self.stream.learn(self.each(inputs), targets, cross_entropy)
        return outputs.argmax(2) == targets

    def epochs(self, inputs: Tensor, targets: Tensor, epochs: int, batch: int) -> None:
        """Train on (seeds, N, ...) for some epochs, in random order."""
        rows = torch.arange(len(self.seeds)).unsqueeze(1)
        for _ in range(epochs):
            order = self.draw(lambda generator: torch.randperm(inputs.shape[1], generator=generator))
            for chosen in order.split(batch, 1):
                self.learn(inputs[rows, chosen], targets[rows, chosen])

    @torch.no_grad()
    def accuracy(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The percentage of inputs (seeds, N, ...) that each network classifies correctly, (M,)."""
        outputs: Tensor = self.stream(self.each(inputs))
        return 100 * (outputs.argmax(2) == self.each(targets)).double().mean(1)

    @torch.no_grad()
    def constant(self, inputs: Tensor) -> list[Tensor]:
        """For each hidden layer, which units have the same value on all inputs (seeds, N, ...), (M, units)."""
        found = []
        for values in self.stream(self.each(inputs), hidden=True):
            by_channel = values.transpose(1, 2).flatten(2)
            flat = by_channel.amax(2) == by_channel.amin(2)
            found.append(flat.unflatten(1, (self.phases, -1)).all(1))
        return found


@torch.no_grad()
def renew(stream: Stream, dead: Sequence[Tensor], draws: torch.Generator) -> None:
    """Redraw the incoming weights of dead units, and set their outgoing weights and Adam's moments to zero.

    Adam's step counter goes on, so that their first steps are larger than a new network's: so the runs were recorded.
    """
    last = len(dead) - 1
    for place, units in enumerate(dead):
        weight, bias = (f"layers.{place}.{name}" for name in ("weight", "bias"))
        onward = f"layers.{place + 1}.weight" if place < last else "head.weight"
        bound = stream.params[weight][0, 0].numel() ** -0.5  # as nn.Linear and nn.Conv2d draw them
        for name in (weight, bias):
            values = stream.params[name]
            fresh = torch.empty_like(values).uniform_(-bound, bound, generator=draws)
            values[units] = fresh[units]
        stream.params[onward].transpose(1, 2)[units] = 0
        for moments in (stream.first, stream.second):
            moments[weight][units] = moments[bias][units] = 0
            moments[onward].transpose(1, 2)[units] = 0


@torch.no_grad()
def reset_head(learners: Learners) -> None:
    """Draw a new output layer for every seed, and set Adam's moments of it to zero."""
    stream = learners.stream
    bound = stream.params["head.weight"].shape[2] ** -0.5
    for name in ("head.weight", "head.bias"):
        values = stream.params[name]
        shape = values.shape[1:]
        drawn = torch.stack([torch.rand(shape, generator=draws) for draws in learners.heads])
        values.copy_(learners.each(2 * bound * drawn - bound))
        stream.first[name].zero_()
        stream.second[name].zero_()


class Permuted:
    """Digits whose pixels are permuted differently in every task; each is seen once. Accuracy while learning."""

    def __init__(self, digits: int, batch: int) -> None:
        self.digits, self.batch, self.data = digits, batch, all_digits()

    def build(self, arm: Arm) -> StreamNetwork:
        """A network for these inputs."""
        return dense(arm)

    def task(self, learners: Learners) -> tuple[Tensor, Tensor]:
        """Learn one task; return the score of each network, (M,), and inputs to watch units on."""
        pixels = learners.draw(lambda draws: torch.randperm(64, generator=draws))
        chosen = learners.draw(lambda draws: torch.randperm(len(self.data), generator=draws)[: self.digits])
        inputs = self.data.inputs[chosen].gather(2, pixels.unsqueeze(1).expand(-1, self.digits, -1))
        targets = self.data.targets[chosen]
        batches = zip(inputs.split(self.batch, 1), targets.split(self.batch, 1), strict=True)
        right = torch.cat([learners.learn(x, y) for x, y in batches], 1)
        return 100 * right.double().mean(1), inputs[:, -PROBE:]


class RandomLabels:
    """Digits with new random labels in every task. The share of labels fitted after some epochs."""

    def __init__(self, digits: int, batch: int, epochs: int) -> None:
        self.digits, self.batch, self.epochs, self.data = digits, batch, epochs, all_digits()
        self.inputs: Tensor | None = None  #: (seeds, digits, 64)
        self.targets: Tensor | None = None  #: (seeds, digits): the latest labels

    def build(self, arm: Arm) -> StreamNetwork:
        """A network for these inputs."""
        return dense(arm)

    def task(self, learners: Learners) -> tuple[Tensor, Tensor]:
        """Learn one task; return the score of each network, (M,), and inputs to watch units on."""
        if self.inputs is None:
            chosen = learners.draw(
                lambda draws: torch.randperm(len(self.data), generator=draws)[: self.digits]
            )
            self.inputs = self.data.inputs[chosen]
        self.targets = learners.draw(lambda draws: torch.randint(10, (self.digits,), generator=draws))
        learners.epochs(self.inputs, self.targets, self.epochs, self.batch)
        return learners.accuracy(self.inputs, self.targets), self.inputs[:, :PROBE]


class Pairs:
    """Two other classes of images in every task, with a new output layer. Accuracy on test images."""

    def __init__(self, source: str, images: int, tested: int, batch: int, epochs: int) -> None:
        self.images, self.tested, self.batch, self.epochs = images, tested, batch, epochs
        self.train, self.test = small_images(source)

    def build(self, arm: Arm) -> StreamNetwork:
        """A network for these inputs."""
        return convolutional(arm)

    def task(self, learners: Learners) -> tuple[Tensor, Tensor]:
        """Learn one task; return the score of each network, (M,), and inputs to watch units on."""
        reset_head(learners)
        classes = learners.draw(lambda draws: torch.randperm(10, generator=draws)[:2])
        inputs, targets = self._drawn(learners, self.train, classes, self.images // 2)
        learners.epochs(inputs, targets, self.epochs, self.batch)
        return learners.accuracy(*self._drawn(learners, self.test, classes, self.tested // 2)), inputs[
            :, :PROBE
        ]

    def _drawn(
        self, learners: Learners, part: Mapping[int, Tensor], classes: Tensor, each: int
    ) -> tuple[Tensor, Tensor]:
        inputs = []
        for draws, pair in zip(learners.draws, classes.tolist(), strict=True):
            found = [part[label] for label in pair]
            inputs.append(torch.cat([x[torch.randperm(len(x), generator=draws)[:each]] for x in found]))
        targets = torch.arange(2).repeat_interleave(each).expand(len(inputs), -1)
        return torch.stack(inputs), targets


Setting = Permuted | RandomLabels | Pairs
SETTINGS: dict[str, Callable[..., Setting]] = {"permuted": Permuted, "labels": RandomLabels, "pairs": Pairs}


@lru_cache
def small_images(source: str) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Images of 3 x 16 x 16 by class, for training and for testing, standardized by the training images.

    From "cifar10", or, where nothing is to be read, from "digits".
    """
    data = images(source, pool=2)
    train = data.train.inputs.float()
    mean, deviation = train.mean(), train.std()

    def by_class(part: Split) -> dict[int, Tensor]:
        inputs = ((part.inputs - mean) / deviation).expand(-1, 3, -1, -1)
        return {label: inputs[part.targets == label] for label in range(10)}

    return by_class(data.train), by_class(data.test)


@dataclass(frozen=True)
class Course:
    """What networks did on a stream: scores and the share of dead units in %, (tasks, rates, seeds)."""

    scores: Tensor
    dead: Tensor
    stream: Stream


def begin(arm: Arm, setting: Setting, rates: Sequence[float], seeds: Sequence[int]) -> Learners:
    """Build a new network for every rate and seed; a seed has the same initial weights at every rate."""
    networks = []
    for _ in rates:
        for seed in seeds:
            torch.manual_seed(seed)
            networks.append(setting.build(arm))
    each = [rate for rate in rates for _ in seeds]
    optimizers = [
        Adam(network.parameters(), lr=rate, weight_decay=arm.decay)
        for network, rate in zip(networks, each, strict=True)
    ]
    return Learners(Stream(networks, optimizers), seeds, len(rates), arm.phases)


def course(learners: Learners, setting: Setting, tasks: int, renewing: bool = False) -> Course:
    """Let networks learn some tasks, one after the other; redraw dead units after each if asked for."""
    scores, dead = [], []
    draws = torch.Generator().manual_seed(learners.seeds[0])
    for _ in range(tasks):
        score, inputs = setting.task(learners)
        constant = learners.constant(inputs)
        scores.append(score)
        dead.append(100 * torch.cat(constant, 1).double().mean(1))
        if renewing:
            renew(learners.stream, constant, draws)
    shape = tasks, learners.copies, len(learners.seeds)
    return Course(torch.stack(scores).view(shape), torch.stack(dead).view(shape), learners.stream)
