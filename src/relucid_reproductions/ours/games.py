"""Ours: a value-based agent that cycles through MinAtar's games, as in Abbas et al. 2023 in miniature.

Written before any run that is recorded: arms, games, seeds, claims and their directions. Before any run it was cut, to
save time, from three games, eight arms and ten seeds (scale "full") to two games, six arms and five seeds ("cpu"); the
clock ended it after three seeds, when two had been looked at.
Needs MinAtar, which no extra installs: ``pip install --no-deps MinAtar==1.0.15``.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relucid
from relucid.experiments import Claim, Column, Scale, Study, higher, lower, runner
from relucid.nn import CReLU

ACTIONS, CHANNELS, SIDE = 6, 10, 10
DEAD = 0.5  # share of dead units of any layer at which Watch warns
BATCH, DISCOUNT, EXPLORE, EVERY, COPY = 32, 0.99, 0.1, 2, 1000  # as in the pilots


@dataclass(frozen=True)
class Arm:
    """An agent's network, and what is done to keep it learning.

    Args:
        crelu: whether units are CReLU from the start.
        share: of 16 filters and 128 hidden units.
        norm: whether layer norm precedes the activation.
        renew: whether there is a new agent for every game.
        convert: whether it is converted to CReLU before the next game once there is a warning.
    """

    crelu: bool = False
    share: float = 1.0
    norm: bool = False
    renew: bool = False
    convert: bool = False


def network(arm: Arm) -> nn.Sequential:
    """A convolution and a hidden layer: (N, 10, 10, 10) to (N, actions)."""
    filters, hidden = round(16 * arm.share), round(128 * arm.share)
    wide, size = 1 + arm.crelu, SIDE - 2

    def activation(*shape: int) -> list[nn.Module]:
        norm = [nn.LayerNorm(shape, elementwise_affine=False)] if arm.norm else []
        return [*norm, CReLU(1) if arm.crelu else nn.ReLU()]

    return nn.Sequential(
        nn.Conv2d(CHANNELS, filters, 3), *activation(filters, size, size), nn.Flatten(),
        nn.Linear(wide * filters * size**2, hidden), *activation(hidden), nn.Linear(wide * hidden, ACTIONS),
    )  # fmt: skip


class Agent:
    """A double of networks that learns from its latest transitions by Adam."""

    def __init__(self, arm: Arm, rate: float, memory: int) -> None:
        self.values = network(arm)
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=rate, fused=True)
        self.target = deepcopy(self.values)
        shape = memory, CHANNELS, SIDE, SIDE
        self.before, self.after = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        self.actions = np.zeros(memory, np.int64)
        self.rewards, self.ended = np.zeros(memory, np.float32), np.zeros(memory, np.float32)
        self.seen = 0

    def act(self, state: np.ndarray, draws: np.random.Generator) -> int:
        """Choose an action, one in ten at random."""
        if draws.random() < EXPLORE:
            return int(draws.integers(ACTIONS))
        with torch.no_grad():
            return int(self.values(torch.from_numpy(state[None]).float()).argmax())

    def remember(
        self, before: np.ndarray, action: int, reward: float, ended: bool, after: np.ndarray
    ) -> None:
        """Keep a transition instead of the oldest."""
        place = self.seen % len(self.actions)
        self.before[place], self.after[place], self.actions[place] = before, after, action
        self.rewards[place], self.ended[place] = reward, ended
        self.seen += 1

    def states(self, count: int, draws: np.random.Generator) -> tuple[np.ndarray, Tensor]:
        """Remembered states, and where they are kept."""
        chosen = draws.integers(0, min(self.seen, len(self.actions)), count)
        return chosen, torch.from_numpy(self.before[chosen]).float()

    def learn(self, draws: np.random.Generator) -> None:
        """Take a step."""
        chosen, states = self.states(BATCH, draws)
        with torch.no_grad():
            best = self.target(torch.from_numpy(self.after[chosen]).float()).amax(1)
            wanted = torch.from_numpy(self.rewards[chosen]) + DISCOUNT * best * torch.from_numpy(
                1 - self.ended[chosen]
            )
        actions = torch.from_numpy(self.actions[chosen]).unsqueeze(1)
        loss = F.smooth_l1_loss(self.values(states).gather(1, actions).squeeze(1), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def convert(self, states: Tensor) -> None:
        """Convert in place; outputs stay, and Adam keeps its state."""
        relucid.to_crelu(self.values, states[:2], inplace=True, optimizer=self.optimizer)
        self.target = deepcopy(self.values)


def visit(agent: Agent, game: str, frames: int, warmup: int, seed: int, draws: np.random.Generator) -> float:
    """Play a game for some frames; return the mean return of the episodes that end in the last fifth of them."""
    played = import_module("minatar").Environment(game, sticky_action_prob=0.1)
    played.seed(seed)
    played.reset()
    late, earned, state = [], 0.0, observed(played)
    for frame in range(frames):
        action = agent.act(state, draws)
        reward, ended = played.act(action)
        after = observed(played)
        agent.remember(state, action, reward, ended, after)
        earned, state = earned + reward, after
        if ended:
            late += [earned] if frame >= 0.8 * frames else []
            earned = 0.0
            played.reset()
            state = observed(played)
        if agent.seen > warmup and frame % EVERY == 0:
            agent.learn(draws)
        if frame % COPY == 0:
            agent.target.load_state_dict(agent.values.state_dict())
    return float(np.mean(late)) if late else earned


def observed(game: Any) -> np.ndarray:
    """What is seen of a game, (10, 10, 10); channels that it does not have are 0."""
    state = game.state()
    seen = np.zeros((CHANNELS, SIDE, SIDE), np.uint8)
    seen[: state.shape[2]] = state.transpose(2, 0, 1)
    return seen


GAMES = "breakout", "freeway", "space_invaders"  # those that are learned in the time; asterix is not
CLAIMED = "breakout", "space_invaders"


@runner("games")
def run(
    arm: Mapping[str, Any],
    games: Sequence[str],
    rounds: int,
    frames: int,
    memory: int,
    warmup: int,
    rate: float,
    seed: int,
) -> Mapping[str, Any]:
    """Let an agent cycle through the games; returns are those of the visits after the first round."""
    torch.manual_seed(seed)
    what, draws = Arm(**arm), np.random.default_rng(seed)
    agent, converted, dead = Agent(what, rate, memory), 0, []
    returns: dict[str, list[float]] = {game: [] for game in games}
    for number in range(rounds * len(games)):
        game = games[number % len(games)]
        if what.renew and number:
            agent = Agent(what, rate, memory)
        returns[game].append(visit(agent, game, frames, warmup, 100 * seed + number, draws))
        _, states = agent.states(256, draws)
        dead.append(relucid.metrics(agent.values, states)["worst dead"])
        if what.convert and not converted and dead[-1] > DEAD:
            agent.convert(states)
            converted = number + 1
    return {
        **{game: float(np.mean(returns[game][1:])) for game in games},
        "dead": 100 * dead[-1],
        "converted": converted,
        "parameters": sum(p.numel() for p in agent.values.parameters()),
        "history": {**returns, "dead": [100 * share for share in dead]},
    }


RELU, NEW, CONVERTED = "ReLU", "new agent for every game", "converted at the warning"
WIDER, NORM, NORM_CONVERTED = (
    "ReLU, 1.4 times the units",
    "layer norm",
    "layer norm, converted at the warning",
)
CRELU, HALF = "CReLU", "CReLU, half the units"
ROWS = {
    RELU: Arm(),
    NEW: Arm(renew=True),
    WIDER: Arm(share=1.4),
    CONVERTED: Arm(convert=True),
    NORM: Arm(norm=True),
    NORM_CONVERTED: Arm(norm=True, convert=True),
    CRELU: Arm(crelu=True),
    HALF: Arm(crelu=True, share=0.5),
}
SIZES = {"rounds": 3, "frames": 50_000, "memory": 20_000, "warmup": 1000}
OTHERS = {
    "worst layer dead %": Column("dead", best=None, digits=0),
    "converted after visit": Column("converted", best=None, digits=1),
    "parameters": Column("parameters", best=None, digits=0),
}
games = Study(
    "games",
    "A value-based agent that cycles through MinAtar's games: return in the second and third visits",
    run,
    rows={row: {"arm": {k: v for k, v in asdict(arm).items() if v != asdict(Arm())[k]}} for row, arm in ROWS.items()},
    columns={
        **{game: Column(game, best="highest", digits=1) for game in GAMES},
        **OTHERS,
    },
    config={"rate": 1e-3},
    repeat={"seed": range(900, 910)},
    scales={
        "full": Scale({**SIZES, "games": GAMES}),
        "cpu": Scale({**SIZES, "games": CLAIMED}, repeat={"seed": range(900, 903)},
                     rows={row: {} for row in (RELU, NEW, WIDER, CONVERTED, NORM, HALF)}, columns=[*CLAIMED, *OTHERS]),
        "smoke": Scale({**SIZES, "games": CLAIMED, "rounds": 2, "frames": 60, "memory": 60, "warmup": 40},
                       repeat={"seed": range(900, 902)}, columns=[*CLAIMED, *OTHERS]),
    },
    claims=[
        *(
            Claim(f"gate, {game}", "An agent that goes on returns less than a new one.", lower(RELU, NEW, game))
            for game in CLAIMED
        ),
        Claim("conversion, breakout",
              "Converted at the warning, an agent returns more than unchanged or with as many parameters.",
              higher(CONVERTED, (RELU, WIDER), "breakout")),
        Claim("CReLU, breakout", "With CReLU and half the units, an agent returns more than with ReLU.",
              higher(HALF, RELU, "breakout")),
        Claim("layer norm, breakout", "With layer norm, an agent returns more than with ReLU.",
              higher(NORM, RELU, "breakout")),
        Claim("what units cannot help, space invaders",
              "A new agent returns more than one that is converted, has CReLU with half the units or has layer norm.",
              higher(NEW, (CONVERTED, HALF, NORM), "space_invaders")),
    ],
)  # fmt: skip
STUDIES = [games]
