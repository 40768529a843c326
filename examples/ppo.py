"""A PPO agent with methods and no forward, in plain torch: a watch sees its parts, and redraws units that have died.

It pushes points left or right to keep them at their targets.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import relucid


class Agent(nn.Module):
    """Actor and critic, as in cleanrl."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()) for _ in range(2)]
        self.actor, self.critic = (nn.Sequential(*hidden[i], nn.Linear(32, 2 - i)) for i in range(2))

    def act(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Actions, their log-probabilities, the policy's entropy, and values: all (points,)."""
        policy = Categorical(logits=self.actor(x))
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action), policy.entropy(), self.critic(x).squeeze(1)


torch.manual_seed(0)
agent, state = Agent(), torch.randn(16, 2)  # of every point: where it is, and its target
optimizer = torch.optim.Adam(agent.parameters(), lr=0.01)
redo = lambda watch: print(relucid.redo(agent, watch.inputs, optimizer=optimizer))  # noqa: E731
watch = relucid.Watch(agent, every=100, policy="actor", limit=0.4, act=redo).attach(optimizer)
for rollout in range(40):
    steps, rewards, gains = [], [], []
    with torch.no_grad():
        for _ in range(32):
            action, chance, _, value = agent.act(state)
            steps.append((state.clone(), action, chance, value))
            state[:, 0] += 0.2 * (2 * action - 1)
            rewards.append(-(state[:, 0] - state[:, 1]).abs())
            state = torch.where(torch.rand(16, 1) < 0.05, torch.randn(16, 2), state)  # some start again
        gain = agent.act(state)[3]
    for reward in reversed(rewards):
        gain = reward + 0.9 * gain
        gains.insert(0, gain)
    x, actions, chances, values, gain = (torch.cat(parts) for parts in (*zip(*steps, strict=True), gains))
    for rows in (part for _ in range(4) for part in torch.randperm(len(x)).split(128)):
        _, now, entropy, estimate = agent.act(x[rows], actions[rows])
        advantage, ratio = gain[rows] - values[rows], (now - chances[rows]).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        ((estimate - gain[rows]).square().mean() / 2 - surrogate - 0.01 * entropy.mean()).backward()
        optimizer.step()
    if rollout % 8 == 7:
        dead, reward = watch.metrics["worst dead"], torch.stack(rewards).mean().item()
        print(f"rollout {rollout + 1}: reward {reward:.2f}, {dead:.0%} dead in the worst layer")
