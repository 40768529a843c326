"""Ours: PPO agents whose sensors change; what keeps them from learning, and which remedy helps.

Written before any run that is recorded: arms, seeds, claims and their directions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    higher,
    lower,
    runner,
)
from relucid.inspect._policy import CERTAIN
from relucid_reproductions.ours._ppo import RECENT, Agents, Arm, Training
from relucid_reproductions.ours._said import failures, finished, settings
from relucid_reproductions.ours._stable import live

RELU, NEW, HEAD = "ReLU", "new agent at every change", "new policy head at every change"
WARNED, CONVERTED = "new policy head at the warning", "converted at the warning"
VALUE, OPTIMIZER = "new value network at every change", "new optimizer at every change"
PERTURBED, REDO, ANCHORED = "shrink and perturb at every change", "ReDo", "L2 towards the start"
CRELU, NORM = "CReLU", "layer norm"

# Strengths are those of pilots on other seeds, the rate is rl-zoo3's.
ROWS: Mapping[str, Arm] = {
    RELU: Arm(),
    NEW: Arm(renew="agent"),
    HEAD: Arm(renew="head"),
    WARNED: Arm(warned="head"),
    CRELU: Arm("crelu"),
    CONVERTED: Arm(warned="convert"),
    NORM: Arm(norm=True),
    ANCHORED: Arm(anchor=5e-4),
    PERTURBED: Arm(perturb=0.5),
    REDO: Arm(redo=0.1),
    VALUE: Arm(renew="value"),
    OPTIMIZER: Arm(renew="optimizer"),
}
RATE = 1e-3
SEEDS = range(700, 710)
SIZES = {"training": {"tasks": 3, "rollouts": 160}}
SMOKE = {"training": {"tasks": 2, "rollouts": 3, "environments": 2, "steps": 8, "epochs": 2}}
FEW = 50  # steps: an episode that ends so early has failed


@runner("ppo")
def run(
    arm: Mapping[str, Any], training: Mapping[str, Any], rate: float, seeds: Sequence[int]
) -> Mapping[str, Any]:
    """Let agents of one arm live, one per seed; values are lists by seed."""
    agents = Agents(Training(**training), Arm(**arm), rate, seeds)
    life = agents.live()
    returns, entropy = (
        torch.stack(of).view(training["tasks"], -1, len(seeds)) for of in (life.mean, life.entropy)
    )
    ends = returns[:, -max(1, returns.shape[1] // 5) :].mean(1)
    measured = {
        "first": returns[0].mean(0),
        "return": returns[1:].mean((0, 1)),
        "end": ends[1:].mean(0),
        "failed": 100 * (ends[1:] < FEW).double().mean(0),
        "entropy": 100 * entropy[1:].mean((0, 1)),
        "dead": life.dead[-1],
        "warnings": life.warnings,
    }
    return {
        **{name: by_seed.tolist() for name, by_seed in measured.items()},
        "parameters": int(agents.policy.mask[0].sum() + agents.value.mask[0].sum()),
        "history": {"return": returns.flatten(0, 1).mean(1).tolist()},
    }


RETURN, END, FAILED = "return", "return at the ends of tasks", "tasks that end below 50 %"
TITLE = "PPO agents whose sensors change: return on CartPole"
COLUMNS = {
    RETURN: Column("return", best="highest", digits=0),
    END: Column("end", best="highest", digits=0),
    FAILED: Column("failed", digits=0),
    "entropy %": Column("entropy", best=None, digits=0),
    "dead %": Column("dead", best=None, digits=0),
    "warnings": Column("warnings", best=None, digits=1),
    "parameters": Column("parameters", best=None, digits=0),
}
USELESS = (CRELU, CONVERTED, REDO, VALUE, OPTIMIZER)  # as predicted


def less_by(row: str, than: str) -> Quantity:
    """By how much a row returns less than another."""
    return Quantity(
        f"{than} minus {row}", [Cell(than, RETURN), Cell(row, RETURN)], lambda theirs, ours: theirs - ours
    )


CLAIMS = [
    Claim("gate, sensors that change", "Once its sensors have changed, the old agent returns less than a new one.",
          lower(RELU, NEW, RETURN)),
    Claim("a new head, sensors that change",
          "With a new policy head at every change, or at the warning, an agent returns more than unchanged.",
          higher((HEAD, WARNED), RELU, RETURN)),
    Claim("a new head and a new agent", "With a new policy head at every change, it returns at most 30 less than a new "
          "agent.", [Contrast(less_by(HEAD, NEW), 30.0, "lower")]),
    Claim("what does not help, sensors that change",
          "With a new policy head at every change, an agent returns more than with CReLU from the start, converted at "
          "the warning, with ReDo, with a new value network and with a new optimizer.",
          higher(HEAD, USELESS, RETURN)),
    Claim("layer norm and L2, sensors that change",
          "With layer norm, or with L2 towards the start, an agent returns more than without.",
          higher((NORM, ANCHORED), RELU, RETURN)),
]  # fmt: skip
ppo = Study(
    "ppo", TITLE, run,
    rows={row: settings("arm", arm) for row, arm in ROWS.items()},
    columns=COLUMNS,
    config={"rate": RATE, "seeds": SEEDS},
    scales={"cpu": Scale(SIZES), "smoke": Scale({**SMOKE, "seeds": [700, 701]})},
    repeat={},
    claims=CLAIMS,
)  # fmt: skip


@runner("ppo-stable-baselines")
def run_stable(arm: str, tasks: int, steps: int, seed: int) -> Mapping[str, Any]:
    """Let stable-baselines3's own agent live."""
    returns, warnings = live(arm, tasks, steps, seed)
    last = [float(task[-max(1, len(task) // 5) :].mean()) for task in returns]
    return {
        "return": float(torch.stack(returns[1:]).mean()),
        "end": sum(last[1:]) / (tasks - 1),
        "warnings": warnings,
        "history": {"return": torch.cat(returns).tolist()},
    }


STABLE = {RELU: "relu", CRELU: "crelu", WARNED: "warned", NEW: "new"}
stable = Study(
    "ppo-stable-baselines", f"{TITLE}, by stable-baselines3's own PPO with its defaults", run_stable,
    rows={row: {"arm": arm} for row, arm in STABLE.items()},
    columns={name: COLUMNS[name] for name in (RETURN, END, "warnings")},
    config={"steps": 40960},
    repeat={"seed": range(800, 805)},
    scales={
        "cpu": Scale({"tasks": 2}),
        "smoke": Scale({"tasks": 2, "steps": 2048}, repeat={"seed": range(800, 802)}),
    },
    claims=[
        Claim("gate, stable-baselines3", "Once its sensors have changed, the old agent returns less than a new one.",
              lower(RELU, NEW, RETURN)),
        Claim("a new head, stable-baselines3",
              "With a new policy head at the warning, an agent returns more than unchanged, and than with CReLU.",
              higher(WARNED, (RELU, CRELU), RETURN)),
    ],
)  # fmt: skip


def story(results: Results) -> str:
    """What became of the agents, in a paragraph made from records."""

    def returned(row: str) -> str:
        return f"{results[row, RETURN].mean():.0f}"

    others = ", ".join(f"{row} {returned(row)}" for row in (*USELESS, NORM, ANCHORED, PERTURBED))
    return (
        f"Unchanged, an agent returns {returned(RELU)} once its sensors have changed, a new agent {returned(NEW)}. A "
        f"new policy head alone, 130 weights, at every change: {returned(HEAD)}; at the warning, told of nothing: "
        f"{returned(WARNED)}. The others: {others}."
    )


STUDIES = [ppo, stable]

__all__ = ["CERTAIN", "RECENT", "STUDIES", "failures", "finished"]  # most are for the page
