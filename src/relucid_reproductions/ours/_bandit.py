"""A recommender whose users' tastes change, and the agents that go on learning them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from relucid.data import Split, as_data
from relucid_reproductions.ours._stack import Architecture, Recycling, Stack

ITEMS = 10
# The shares of dead units in any layer, and of the first phase's reward, at which there is a warning.
WORST, FALLEN = 0.9, 0.8


@dataclass(frozen=True)
class Arm:
    """An agent's network, and what is done to keep it learning.

    Args:
        activation: see `Architecture`.
        units: per hidden layer.
        norm: whether layer norm precedes the activation.
        decay: of all weights towards 0, as Adam's ``weight_decay``.
        anchor: the strength of L2-init.
        renew: whether there is a new network after every phase.
        perturb: the share of a new network in the weights after every phase (shrink and perturb).
        redo: units active at most this share of their layer's mean are redrawn every 100 steps.
        recycle: the share of mature units that continual backprop replaces per step of the optimizer.
        repair: at the first warning: "" for nothing, or what keeps outputs: "convert" to CReLU; "revive and convert";
            "slopes", PReLU with slopes of 0; "grow" to 88 units; or "inject", plasticity injection.
        forget: whether the optimizer starts anew where weights are perturbed or the network is repaired.
    """

    activation: str = "relu"
    units: int = 64
    norm: bool = False
    decay: float = 0.0
    anchor: float = 0.0
    renew: bool = False
    perturb: float = 0.0
    redo: float = 0.0
    recycle: float = 0.0
    repair: str = ""
    forget: bool = False

    @property
    def told(self) -> bool:
        """Whether it must be told when tastes change."""
        return self.renew or self.perturb > 0


REDO_EVERY = 100  # steps
# What a network becomes where it is repaired; the others stay of their kind.
BECOMES: Mapping[str, Mapping[str, Any]] = {
    "convert": {"activation": "crelu"},
    "revive and convert": {"activation": "crelu"},
    "slopes": {"activation": "prelu"},
    "grow": {"units": 88},
}


@dataclass(frozen=True)
class World:
    """Users, known by the pixels of a digit each, who like one of ten items. After every phase, tastes change.

    Args:
        phases: of the stream.
        steps: per phase.
        users: of whom there are so many.
        batch: users who are served at every step, and interactions that an update learns from.
        memory: interactions that are remembered.
        updates: per step.
        explore: the share of items chosen at random.
        drift: at every step one user's taste changes, and none after a phase.
    """

    phases: int
    steps: int
    users: int
    batch: int
    memory: int
    updates: int
    explore: float
    drift: bool = False


@dataclass
class Draws:
    """Everything that is drawn for a phase, by seed, whatever the agents do: (M, steps, ...)."""

    users: Tensor
    random: Tensor  #: whether the item is chosen at random
    items: Tensor
    replayed: Tensor  #: from 0 to 1, what an update learns from
    tastes: Tensor  #: (M, users)
    changing: Tensor  #: the user whose taste changes
    taste: Tensor  #: and the new one

    @classmethod
    def of(cls, world: World, generators: Sequence[torch.Generator]) -> "Draws":
        """Draw a phase for every seed."""
        n, b = world.steps, world.batch

        def draw(g: torch.Generator) -> tuple[Tensor, ...]:
            return (
                torch.randint(world.users, (n, b), generator=g),
                torch.rand(n, b, generator=g) < world.explore,
                torch.randint(ITEMS, (n, b), generator=g),
                torch.rand(n, world.updates, b, generator=g),
                torch.randint(ITEMS, (world.users,), generator=g),
                torch.randint(world.users, (n, 1), generator=g),
                torch.randint(ITEMS, (n, 1), generator=g),
            )

        return cls(*map(torch.stack, zip(*map(draw, generators), strict=True)))


@dataclass
class Life:
    """What agents have earned, in %, and what became of their networks; lists of (M,), one per phase."""

    reward: list[Tensor] = field(default_factory=list)  #: of all steps
    late: list[Tensor] = field(default_factory=list)  #: of the last fifth of the steps
    dead: list[Tensor] = field(default_factory=list)  #: units
    worst: list[Tensor] = field(default_factory=list)  #: dead units of the worst layer
    repaired: Tensor = field(default_factory=lambda: torch.zeros(0))  #: after which phase; 0 if never
    #: the largest change of an output by the repair
    moved: Tensor = field(default_factory=lambda: torch.zeros(0))
    parameters: int = 0


class Agents:
    """Agents of one arm; all that have a seed see the same users, tastes and draws.

    A value network chooses items, epsilon-greedily, sees the reward of what it chose, 1 or 0, and learns from its
    latest interactions by squared error and Adam. An agent in a stack is the agent alone, up to rounding.

    Args:
        world: in which they live.
        arm: what they are.
        rates: of Adam; there is an agent of every seed at every rate, which see the same.
        seeds: of the agents.
    """

    def __init__(self, world: World, arm: Arm, rates: Sequence[float], seeds: Sequence[int]) -> None:
        self.world, self.arm = world, arm
        rates, seeds = [rate for rate in rates for _ in seeds], [*seeds] * len(rates)
        now = Architecture(arm.activation, arm.units, arm.norm, outputs=ITEMS)
        becomes = BECOMES.get(arm.repair)
        later = replace(now, **becomes) if becomes else None
        self.stack = Stack(now, seeds, rates, decay=arm.decay, anchor=arm.anchor, later=later)
        # Plasticity injection: what the network gave, less what its successor gave at first, is added to the latter.
        self.added = (deepcopy(self.stack), deepcopy(self.stack)) if arm.repair == "inject" else ()
        self.recycling = Recycling(self.stack, arm.recycle) if arm.recycle else None
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.users = torch.stack([_pixels(world.users, g) for g in self.generators])
        self.tastes = torch.zeros(len(seeds), world.users, dtype=torch.long)
        self.served, self.chosen = (torch.zeros(len(seeds), world.memory, dtype=torch.long) for _ in range(2))
        self.earned = torch.zeros(len(seeds), world.memory)
        self.seen = 0
        self.rows = torch.arange(len(seeds)).unsqueeze(1)
        self.life = Life(repaired=torch.zeros(len(seeds)), moved=torch.zeros(len(seeds)))
        self.life.parameters = int(self.stack.mask[0].sum())

    def values(self, x: Tensor) -> Tensor:
        """The values (M, B, items) of all items for users with pixels (M, B, 64)."""
        return self.stack(x) + self.injected(x)

    @torch.no_grad()
    def injected(self, x: Tensor) -> Tensor | float:
        """What plasticity injection adds to the values."""
        return self.added[0](x) - self.added[1](x) if self.added else 0.0

    def live(self) -> Life:
        """Live through all phases."""
        for phase in range(self.world.phases):
            draws = Draws.of(self.world, self.generators)
            if phase == 0 or not self.world.drift:
                self.tastes = draws.tastes
            rewards = torch.stack([self.step(draws, number) for number in range(self.world.steps)])
            last = max(1, self.world.steps // 5)
            self.life.reward.append(100 * rewards.mean(0))
            self.life.late.append(100 * rewards[-last:].mean(0))
            dead = self.stack.dead_share(self.users)
            self.life.dead.append(dead.mean(1))
            self.life.worst.append(dead.amax(1))
            if phase + 1 < self.world.phases:
                self.maintain(phase + 1)
        self.life.parameters = int(self.stack.mask[0].sum())
        if self.added and self.life.repaired[0]:
            self.life.parameters *= 3  # two of the networks stay as they are
        return self.life

    def step(self, draws: Draws, number: int) -> Tensor:
        """Serve some users and learn; return the mean reward of every agent, (M,)."""
        world = self.world
        if world.drift:
            self.tastes.scatter_(1, draws.changing[:, number], draws.taste[:, number])
        users = draws.users[:, number]
        with torch.no_grad():
            best = self.values(self.users[self.rows, users]).argmax(2)
        items = torch.where(draws.random[:, number], draws.items[:, number], best)
        rewards = (self.tastes.gather(1, users) == items).to(self.earned.dtype)
        place = self.seen % world.memory
        for memory, values in ((self.served, users), (self.chosen, items), (self.earned, rewards)):
            memory[:, place : place + world.batch] = values
        self.seen += world.batch
        for update in range(world.updates):
            self.learn((draws.replayed[:, number, update] * min(self.seen, world.memory)).long())
        if self.arm.redo and (self.seen // world.batch) % REDO_EVERY == 0:
            self.stack.redo(self.users, self.arm.redo)
        return rewards.mean(1)

    def learn(self, which: Tensor) -> None:
        """Take a step on remembered interactions (M, B)."""
        inputs = self.users[self.rows, self.served.gather(1, which)]
        *seen, values = self.stack.layers(inputs)
        values = values + self.injected(inputs)
        chosen = values.gather(2, self.chosen.gather(1, which).unsqueeze(2)).squeeze(2)
        self.stack.step((chosen - self.earned.gather(1, which)).square().mean(1))
        if self.recycling:
            self.recycling.step([*seen, values])

    def maintain(self, phase: int) -> None:
        """Do what the arm does after a phase."""
        warned = self.warned() if self.arm.repair else torch.zeros(len(self.rows), dtype=torch.bool)
        for place in range(len(self.rows)):
            if self.arm.renew:
                self.stack.renew(place)
            if self.arm.perturb:
                self.stack.perturb(place, self.arm.perturb)
                if self.arm.forget:
                    self.stack.forget(place)
            if warned[place] and not self.life.repaired[place]:
                self.repair(place, phase)

    def warned(self) -> Tensor:
        """Which agents there is a warning for: a layer is dead, or two phases earned much less than the first."""
        fallen = torch.zeros(len(self.rows), dtype=torch.bool)
        if len(self.life.late) > 2:
            fallen = torch.stack(self.life.late[-2:]).amax(0) < FALLEN * self.life.late[0]
        return fallen | (self.life.worst[-1] >= 100 * WORST)

    @torch.no_grad()
    def repair(self, place: int, phase: int) -> None:
        """Repair a network; outputs stay."""
        before = self.values(self.users)[place]
        if self.arm.repair == "revive and convert":
            self.stack.revive(place, self.users)
        if self.added:
            old, first = self.added
            old.flat[place] = self.stack.flat[place]
            self.stack.renew(place)
            first.flat[place] = self.stack.flat[place]
        self.stack.open(place)
        if self.arm.forget:
            self.stack.forget(place)
        self.life.repaired[place] = phase
        self.life.moved[place] = (self.values(self.users)[place] - before).abs().max()


def _pixels(users: int, generator: torch.Generator) -> Tensor:
    """The standardized pixels (users, 64) of digits drawn at random."""
    pixels = all_digits().inputs
    return pixels[torch.randperm(len(pixels), generator=generator)[:users]]


def all_digits() -> Split:
    """All 1797 digits as rows of 64 pixels, standardized as a whole."""
    data = as_data("digits")
    pixels = torch.cat([data.train.inputs, data.test.inputs]).flatten(1).to(torch.get_default_dtype())
    return Split((pixels - pixels.mean()) / pixels.std(), torch.cat([data.train.targets, data.test.targets]))
