"""An agent of stable-baselines3: watched, converted in the middle of training, saved, resumed in a new process.

pip install "relucid[rl]"
python examples/stable_baselines.py PPO    # or DQN or SAC, whose target networks follow
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.save_util import load_from_zip_file
from torch import Tensor, nn

import relucid

STEPS = {"PPO": 2048, "DQN": 2000, "SAC": 400}
TASK = {"PPO": "CartPole-v1", "DQN": "CartPole-v1", "SAC": "Pendulum-v1"}


def build(name):
    """A new agent; that of PPO and DQN has ReLU, as SAC's has by default."""
    net = {"net_arch": [32, 32], "activation_fn": nn.ReLU}
    options = {
        "PPO": {"n_steps": 256},
        "DQN": {
            "learning_starts": 200,
            "train_freq": 1,
            "target_update_interval": 200,
            "learning_rate": 1e-3,
        },
        "SAC": {"learning_starts": 100},
    }[name]
    kind = {"PPO": PPO, "DQN": DQN, "SAC": SAC}[name]
    return kind("MlpPolicy", TASK[name], policy_kwargs=net, seed=0, device="cpu", **options)


def optimizers(policy):
    return [part.optimizer for part in (policy, *policy.children()) if hasattr(part, "optimizer")]


def convert(name, policy, x: Tensor) -> None:
    """CReLU in every network, and the same in the target networks."""
    if name == "PPO":
        relucid.to_crelu(policy, x, inplace=True, optimizer=policy.optimizer)
    elif name == "DQN":
        conversion = relucid.to_crelu(policy.q_net, x, inplace=True, optimizer=policy.optimizer)
        conversion.apply_to(policy.q_net_target)
    else:
        relucid.to_crelu(policy.actor, x, inplace=True, optimizer=policy.actor.optimizer)
        pair, optimizer = (x, torch.zeros(len(x), 1)), policy.critic.optimizer
        relucid.to_crelu(policy.critic, pair, inplace=True, optimizer=optimizer).apply_to(
            policy.critic_target
        )


@torch.no_grad()
def outputs(name, policy, x: Tensor) -> Tensor:
    """What every network of an agent returns, side by side."""
    if name == "PPO":
        return torch.cat([policy.get_distribution(x).distribution.logits, policy.predict_values(x)], 1)
    if name == "DQN":
        return torch.cat([policy.q_net(x), policy.q_net_target(x)], 1)
    action = policy.actor(x, deterministic=True)
    return torch.cat([action, *policy.critic(x, action), *policy.critic_target(x, action)], 1)


def resumed(name, path):
    """A new agent, with the conversions, the weights and the optimizers of a saved one."""
    agent = build(name)
    _, parameters, _ = load_from_zip_file(path)
    relucid.restore(agent.policy, parameters["policy"], optimizer=optimizers(agent.policy))
    agent.set_parameters(parameters)
    return agent


def score(name, agent) -> float:
    """The mean return of the same five episodes."""
    return evaluate_policy(agent, make_vec_env(TASK[name], seed=7), 5)[0]


def observations(name) -> Tensor:
    return torch.randn(64, 3 if name == "SAC" else 4, generator=torch.Generator().manual_seed(0))


def go_on(name, path) -> None:
    """What the new process does."""
    agent = resumed(name, path)
    torch.save(outputs(name, agent.policy, observations(name)), Path(path).with_suffix(".pt"))
    print(f"resumed: return {score(name, agent):.1f}")
    agent.learn(STEPS[name] // 4)
    print(f"and trained on: return {score(name, agent):.1f}")


def main(name="PPO") -> None:
    agent, x = build(name), observations(name)
    watch = relucid.Watch(agent.policy, every=20, step=lambda: agent.num_timesteps, log=lambda *_: None)
    watch.attach(optimizers(agent.policy)[-1])
    agent.learn(STEPS[name])
    print(f"step {agent.num_timesteps}: {watch.metrics['dead']:.0%} dead, srank {watch.metrics['srank']:.0f}")
    before = outputs(name, agent.policy, x)
    print(f"trained: return {score(name, agent):.1f}")
    convert(name, agent.policy, x)
    moved = float((outputs(name, agent.policy, x) - before).abs().max())
    print(f"converted: return {score(name, agent):.1f}, outputs moved by {moved:.1e}")
    agent.learn(STEPS[name] // 2, reset_num_timesteps=False)
    print(f"trained on: return {score(name, agent):.1f}, {watch.metrics['dead']:.0%} dead", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "agent.zip"
        agent.save(path)
        subprocess.run([sys.executable, __file__, name, path], check=True)
        differ = (torch.load(path.with_suffix(".pt")) - outputs(name, agent.policy, x)).abs().max()
    print(f"outputs in the new process differ by {float(differ):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) < 3 else go_on(*sys.argv[1:])
