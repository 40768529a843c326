"""stable-baselines3's own PPO on a pole whose sensors change; needs the extra ``rl``."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import relucid
from relucid.inspect._policy import CERTAIN
from relucid_reproductions.ours._ppo import ACTIONS, FALLEN, RECENT, sensors


def live(arm: str, tasks: int, steps: int, seed: int) -> tuple[list[Tensor], int]:
    """Let an agent learn all tasks: its return by rollout (rollouts,) in each, and how many warnings there were.

    Args:
        arm: "relu"; "crelu"; "warned", with a new policy head at the warning; or "new", a new agent for every task.
        tasks: how often sensors are other ones, the first time included.
        steps: per task.
        seed: of everything.
    """
    from gymnasium import ObservationWrapper, make
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Sensors(ObservationWrapper):
        shown = sensors(seed, tasks).numpy()
        task = 0

        def observation(self, observation: Any) -> Any:
            return (observation @ self.shown[self.task]).astype(np.float32)

    class Look(BaseCallback):
        best, warnings = 0.0, 0

        def __init__(self) -> None:
            super().__init__()
            self.returns: list[float] = []

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            agent: Any = self.model
            lengths = [episode["l"] for episode in agent.ep_info_buffer]
            recent = float(np.mean(lengths)) if lengths else 0.0
            self.returns.append(recent)
            self.best = max(self.best, recent)
            inputs = torch.as_tensor(agent.rollout_buffer.observations).flatten(0, 1)
            entropy = relucid.metrics(agent.policy, inputs, policy=_policy)["policy entropy"]
            if entropy < CERTAIN * math.log(ACTIONS) and recent < FALLEN * self.best:
                self.warnings += 1
                if arm == "warned":
                    relucid.reset(agent.policy, ["action_net"], optimizer=agent.policy.optimizer)

    environment, look = Sensors(make("CartPole-v1")), Look()

    def agent(number: int) -> Any:
        made = PPO(
            "MlpPolicy", environment, seed=number, device="cpu", stats_window_size=RECENT,
            policy_kwargs={"activation_fn": nn.ReLU},
        )  # fmt: skip
        if arm == "crelu":
            double(made.policy)
        return made

    model, returns = agent(seed), []
    for task in range(tasks):
        environment.task = task
        if task and arm == "new":
            model = agent(seed + 1000 * task)
        model.learn(steps, reset_num_timesteps=False, callback=look)
        returns.append(torch.tensor(look.returns))
        look.returns = []
    return returns, look.warnings


def double(policy: Any) -> None:
    """Give a new policy CReLU, its weights drawn as stable-baselines3 draws them."""
    relucid.to_crelu(policy, torch.randn(32, 4), inplace=True)
    for part, gain in ((policy.mlp_extractor, 2**0.5), (policy.action_net, 0.01), (policy.value_net, 1.0)):
        for layer in part.modules():
            policy.init_weights(layer, gain)


def _policy(policy: Any, inputs: Tensor) -> Any:
    return policy.get_distribution(inputs).distribution
