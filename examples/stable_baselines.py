"""A policy of stable-baselines3, converted in the middle of training: same actions, and its optimizer goes on.

pip install "relucid[rl]"
python examples/stable_baselines.py
"""

import torch
from stable_baselines3 import PPO
from torch import nn

from relucid.convert import to_crelu


def main(steps: int = 4000) -> None:
    agent = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": nn.ReLU}, seed=0, device="cpu")
    agent.learn(steps)
    observations = torch.randn(32, 4)
    before = agent.policy.get_distribution(observations).distribution.logits
    conversion = to_crelu(agent.policy, observations, inplace=True)  # the policy holds its optimizer
    after = agent.policy.get_distribution(observations).distribution.logits
    print("\n".join(conversion.notes()))
    print(f"largest change of an action's logit: {float((after - before).detach().abs().max()):.2g}")
    agent.learn(steps)


if __name__ == "__main__":
    main()
