"""A small reinforcement learner, a contextual bandit whose rewards change, mended when too many units are dead.

It sees a digit, chooses one of ten actions and is paid if it chose the right one; which one is right for which digit
changes every so often. It learns the value of every action from a buffer of its latest experience.

python examples/reinforcement.py
"""

import torch
from torch import Tensor, nn

from relucid.convert import to_crelu
from relucid.data import digits
from relucid.inspect import Watch

PHASE, BATCH, BUFFER, EXPLORING = 1000, 32, 1000, 0.1
LIMIT = 0.25  # share of dead units at which the network is mended


class Bandit:
    """Digits, and the action that pays for each of them."""

    def __init__(self) -> None:
        data = digits()
        self.x, self.y = data.train.inputs.flatten(1) / 8 - 1, data.train.targets
        self.change()

    def change(self) -> None:
        """Let other actions and other pixels matter from now on."""
        self.pays, self.pixels = torch.randperm(10), torch.randperm(64)

    def draw(self) -> tuple[Tensor, int]:
        """A digit, and the action that pays."""
        which = torch.randint(len(self.x), ()).item()
        return self.x[which, self.pixels], int(self.pays[self.y[which]])


class Agent:
    """A network that predicts the reward of every action, and its experience."""

    def __init__(self, rate: float) -> None:
        self.net = nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=rate)
        self.watch = Watch(self.net, every=500, limit=1.0, log=self.seen).attach(self.optimizer)
        self.dead = 0.0
        self.inputs, self.actions = torch.zeros(BUFFER, 64), torch.zeros(BUFFER, dtype=torch.long)
        self.rewards, self.time = torch.zeros(BUFFER), 0

    def seen(self, metrics: dict[str, float], step: int) -> None:
        """Take note of what the watch reports."""
        self.dead = metrics.get("dead", 0.0)

    @torch.no_grad()
    def act(self, x: Tensor) -> int:
        """The best action as far as is known, or any."""
        if torch.rand(()) < EXPLORING:
            return int(torch.randint(10, ()))
        return int(self.net.eval()(x.unsqueeze(0)).argmax())

    def learn(self, x: Tensor, action: int, reward: float) -> None:
        """Remember, and take a step on a batch of memories."""
        place = self.time % BUFFER
        self.inputs[place], self.actions[place], self.rewards[place] = x, action, reward
        self.time += 1
        chosen = torch.randint(min(self.time, BUFFER), (BATCH,))
        self.optimizer.zero_grad()
        values = self.net.train()(self.inputs[chosen])[torch.arange(BATCH), self.actions[chosen]]
        nn.functional.mse_loss(values, self.rewards[chosen]).backward()
        self.optimizer.step()

    def mend(self) -> None:
        """Give dead units their other phase; what was learned, and the optimizer's state, stay."""
        to_crelu(self.net, self.inputs[:2], inplace=True, optimizer=self.optimizer)


def live(mending: bool, phases: int, rate: float) -> tuple[list[float], float]:
    """The mean reward in every phase, and the share of dead units in the end."""
    torch.manual_seed(0)
    bandit, agent, rewards = Bandit(), Agent(rate), []
    for _ in range(phases):
        total = 0.0
        for _ in range(PHASE):
            x, right = bandit.draw()
            action = agent.act(x)
            reward = float(action == right)
            agent.learn(x, action, reward)
            total += reward
            if mending and agent.dead > LIMIT:
                print(f"{agent.dead:.0%} of the units are dead: mended")
                agent.mend()
                agent.dead, mending = 0.0, False
        rewards.append(total / PHASE)
        bandit.change()
    return rewards, agent.dead


def main(phases: int = 6, rate: float = 0.01) -> None:
    for name, mending in {"as it is": False, "mended": True}.items():
        rewards, dead = live(mending, phases, rate)
        print(f"{name}: reward {' '.join(f'{reward:.2f}' for reward in rewards)}, {dead:.0%} dead in the end")


if __name__ == "__main__":
    main()
