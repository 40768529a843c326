"""PPO agents that balance a pole, many at once, while their sensors change."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucid.inspect._policy import CERTAIN
from relucid_reproductions.ours._stack import Architecture, Stack

SENSORS, ACTIONS = 4, 2
LONGEST = 500  # steps of an episode
RECENT = 20  # episodes that the mean return is of
FALLEN = 0.5  # share of the best mean return below which there may be a warning
CLIP, CLIP_NORM, VALUE = 0.2, 0.5, 0.5  # as in stable-baselines3


@dataclass(frozen=True)
class Arm:
    """An agent's networks, and what is done to keep it learning.

    Args:
        activation: see `Architecture`.
        norm: whether layer norm precedes the activation.
        anchor: the strength of L2-init.
        renew: when sensors change, what is new: "" for nothing, "agent", "head", "policy", "value" or "optimizer".
        perturb: the share of a new network in the weights when sensors change (shrink and perturb).
        redo: units active at most this share of their layer's mean are redrawn every 40 rollouts.
        warned: what is done at a warning: "" for nothing, "head" for a new one, "convert" to CReLU, once.
    """

    activation: str = "relu"
    norm: bool = False
    anchor: float = 0.0
    renew: str = ""
    perturb: float = 0.0
    redo: float = 0.0
    warned: str = ""


REDO_EVERY = 40  # rollouts


@dataclass(frozen=True)
class Training:
    """How agents are trained: rl-zoo3's settings for CartPole, with constant rates.

    Args:
        tasks: how often sensors are other ones, the first time included.
        rollouts: per task.
        environments: per agent.
        steps: per rollout and environment.
        epochs: over a rollout, each of one batch.
        discount: gamma.
        trace: lambda.
    """

    tasks: int
    rollouts: int
    environments: int = 8
    steps: int = 32
    epochs: int = 20
    discount: float = 0.98
    trace: float = 0.8


def sensors(seed: int, tasks: int) -> Tensor:
    """What the sensors show of a state, by task: a permutation with signs (tasks, 4, 4), at first the state itself."""
    draws = np.random.default_rng(10_000 + seed)
    changed = [
        np.eye(SENSORS)[draws.permutation(SENSORS)] * draws.choice([-1.0, 1.0], (SENSORS, 1))
        for _ in range(tasks - 1)
    ]
    return torch.tensor(np.stack([np.eye(SENSORS), *changed]))


class Poles:
    """Poles on carts (M, E), as CartPole-v1 has them.

    Args:
        seeds: of M agents.
        each: poles per agent.
    """

    def __init__(self, seeds: Sequence[int], each: int) -> None:
        self.draws = [np.random.default_rng(seed) for seed in seeds]
        self.state = np.zeros((len(seeds), each, SENSORS))
        self.age = np.zeros((len(seeds), each), int)
        self.start(np.ones_like(self.age, bool))

    def start(self, which: np.ndarray) -> None:
        """Begin episodes."""
        self.age[which] = 0
        for place in np.flatnonzero(which.any(1)):
            here = which[place]
            self.state[place, here] = self.draws[place].uniform(-0.05, 0.05, (int(here.sum()), SENSORS))

    def push(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push carts; return which poles have fallen and which episodes are long enough, (M, E) each."""
        _, speed, angle, spin = np.moveaxis(self.state, -1, 0)
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (np.where(right, 10.0, -10.0) + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        change = np.stack((speed, push - 0.05 * turn * cosine / 1.1, spin, turn), -1)
        self.state = self.state + 0.02 * change
        self.age += 1
        fallen = (np.abs(self.state[..., 0]) > 2.4) | (np.abs(self.state[..., 2]) > math.radians(12))
        return fallen, (self.age >= LONGEST) & ~fallen


@dataclass
class Rollout:
    """What agents have seen and done: (M, N, ...), for N = steps x environments."""

    seen: Tensor
    actions: Tensor
    chances: Tensor  #: the logarithm of an action's probability
    advantages: Tensor
    returns: Tensor


@dataclass
class Life:
    """What became of agents; lists of (M,), one per rollout."""

    mean: list[Tensor] = field(
        default_factory=list
    )  #: return of the episodes that ended, of the latest if none did
    entropy: list[Tensor] = field(default_factory=list)  #: of the policy, as a share of the greatest
    dead: list[Tensor] = field(
        default_factory=list
    )  #: percent of the policy's units, at the end of every task
    warnings: Tensor = field(default_factory=lambda: torch.zeros(0))  #: how many there were


class Agents:
    """PPO agents of one arm; all that have a seed see the same sensors. An agent in a stack is the agent alone.

    Args:
        training: how they are trained.
        arm: what they are.
        rate: of Adam.
        seeds: of the agents.
    """

    def __init__(self, training: Training, arm: Arm, rate: float, seeds: Sequence[int]) -> None:
        self.training, self.arm = training, arm
        rates = [rate] * len(seeds)
        shape: dict[str, Any] = {"norm": arm.norm, "layers": 2, "inputs": SENSORS}

        def stack(outputs: int, head: float, first: int) -> Stack:
            now = Architecture(arm.activation, outputs=outputs, head=head, **shape)
            later = replace(now, activation="crelu") if arm.warned == "convert" else None
            drawn = [first + seed for seed in seeds]
            return Stack(now, drawn, rates, anchor=arm.anchor, later=later, epsilon=1e-5)

        self.policy, self.value = stack(ACTIONS, 0.01, 0), stack(1, 1.0, 1_000_000)
        self.poles = Poles(seeds, training.environments)
        self.sensors = torch.stack([sensors(seed, training.tasks) for seed in seeds])
        self.draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.lengths = [deque([0.0], RECENT) for _ in seeds]
        self.best = np.zeros(len(seeds))
        self.life = Life(warnings=torch.zeros(len(seeds)))

    def live(self) -> Life:
        """Learn all tasks."""
        for task in range(self.training.tasks):
            self.poles.start(np.ones_like(self.poles.age, bool))
            if task:
                self.change()
            for number in range(self.training.rollouts):
                rollout = self.collect(task)
                self.learn(rollout)
                self.look(rollout, number)
        return self.life

    def observe(self, task: int) -> Tensor:
        """What the sensors show, (M, E, 4)."""
        return torch.bmm(torch.from_numpy(self.poles.state), self.sensors[:, task]).float()

    @torch.no_grad()
    def collect(self, task: int) -> Rollout:
        """Act for some steps, and weigh what came of it."""
        setting = self.training
        many, each = len(self.draws), setting.environments
        chosen = torch.stack([torch.rand(setting.steps, each, generator=g) for g in self.draws])
        seen, actions, chances, ends = [], [], [], []
        bonus = torch.zeros(setting.steps, many, each)
        lengths: list[list[float]] = [[] for _ in self.draws]
        for step in range(setting.steps):
            seen.append(self.observe(task))
            log = self.policy(seen[-1]).log_softmax(2)
            action = (chosen[:, step] > log[..., 0].exp()).long()
            actions.append(action)
            chances.append(log.gather(2, action.unsqueeze(2)).squeeze(2))
            fallen, long = self.poles.push(action.numpy() == 1)
            if long.any():  # the episode would have gone on
                bonus[step] = (
                    setting.discount * self.value(self.observe(task))[..., 0] * torch.from_numpy(long)
                )
            ends.append(torch.from_numpy(fallen | long))
            for place, pole in zip(*np.nonzero(fallen | long), strict=True):
                lengths[place].append(float(self.poles.age[place, pole]))
            self.poles.start(fallen | long)
        self.record(lengths)
        observed = torch.stack([*seen, self.observe(task)], 1)  # (M, steps + 1, E, 4)
        values = self.value(observed.flatten(1, 2)).view(many, -1, each).movedim(1, 0)
        advantages = weigh(values, bonus + 1, torch.stack(ends).float(), setting)
        returns = advantages + values[:-1]
        parts = (torch.stack(actions), torch.stack(chances), advantages, returns)
        return Rollout(observed[:, :-1].flatten(1, 2), *map(together, parts))

    def record(self, lengths: Sequence[Sequence[float]]) -> None:
        """Note the lengths of the episodes that have ended; a step is rewarded by 1."""
        before = self.life.mean[-1] if self.life.mean else torch.zeros(len(lengths))
        for latest, ended in zip(self.lengths, lengths, strict=True):
            latest.extend(ended)
        means = [
            float(np.mean(ended)) if ended else float(b) for ended, b in zip(lengths, before, strict=True)
        ]
        self.life.mean.append(torch.tensor(means))

    def learn(self, rollout: Rollout) -> None:
        """Take the steps of PPO on a rollout."""
        weights = rollout.advantages
        weights = (weights - weights.mean(1, keepdim=True)) / (weights.std(1, keepdim=True) + 1e-8)
        for _ in range(self.training.epochs):
            log = self.policy(rollout.seen).log_softmax(2)
            ratio = (log.gather(2, rollout.actions.unsqueeze(2)).squeeze(2) - rollout.chances).exp()
            gain = torch.minimum(weights * ratio, weights * ratio.clamp(1 - CLIP, 1 + CLIP))
            errors = (self.value(rollout.seen)[..., 0] - rollout.returns).square()
            gradients = self.policy.gradient(-gain.mean(1)), self.value.gradient(VALUE * errors.mean(1))
            norm = torch.cat(gradients, 1).norm(dim=1, keepdim=True)
            shrink = (CLIP_NORM / (norm + 1e-6)).clamp(max=1.0)
            self.policy.descend(gradients[0] * shrink)
            self.value.descend(gradients[1] * shrink)

    @torch.no_grad()
    def look(self, rollout: Rollout, number: int) -> None:
        """Measure, and do what the arm does after a rollout."""
        log = self.policy(rollout.seen).log_softmax(2)
        self.life.entropy.append(-(log.exp() * log).sum(2).mean(1) / math.log(ACTIONS))
        if number + 1 == self.training.rollouts:
            self.life.dead.append(100 * self.policy.dead(rollout.seen).double().mean((1, 2)))
        means = np.array([np.mean(latest) for latest in self.lengths])
        self.best = np.maximum(self.best, means)
        certain = self.life.entropy[-1].numpy() < CERTAIN
        for place in np.flatnonzero(certain & (means < FALLEN * self.best)).tolist():
            self.life.warnings[place] += 1
            if self.arm.warned == "head":
                self.policy.renew(place, head=True)
            if self.arm.warned == "convert":
                self.policy.open(place)
                self.value.open(place)
        if self.arm.redo and (number + 1) % REDO_EVERY == 0:
            for stack in (self.policy, self.value):
                stack.redo(rollout.seen, self.arm.redo)

    def change(self) -> None:
        """Do what the arm does when sensors change."""
        what = self.arm.renew
        for place in range(len(self.draws)):
            for stack, name in ((self.policy, "policy"), (self.value, "value")):
                if what in ("agent", name):
                    stack.renew(place)
                if what == "optimizer":
                    stack.forget(place)
                if self.arm.perturb:
                    stack.perturb(place, self.arm.perturb)
            if what == "head":
                self.policy.renew(place, head=True)


def weigh(values: Tensor, rewards: Tensor, ends: Tensor, training: Training) -> Tensor:
    """Generalized advantages (T, M, E) from values (T + 1, M, E), rewards and ends of episodes (T, M, E)."""
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        going = training.discount * (1 - ends[step])
        error = rewards[step] + going * values[step + 1] - values[step]
        advantages[step] = last = error + training.trace * going * last
    return advantages


def together(values: Tensor) -> Tensor:
    """Values (T, M, E) as (M, N)."""
    return values.movedim(0, 1).flatten(1)
