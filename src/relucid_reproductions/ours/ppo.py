"""Ours: PPO agents whose sensors change; what keeps them from learning, and which remedy helps.

Written before any run that is recorded: arms, rates and strengths to try, seeds, claims and their directions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
from relucid.experiments._page import findings
from relucid.inspect._policy import CERTAIN
from relucid_reproductions.ours._ppo import RECENT, Agents, Arm, Training
from relucid_reproductions.ours._stable import live

RELU, NEW, HEAD = "ReLU", "new agent at every change", "new policy head at every change"
WARNED, CONVERTED = "new policy head at the warning", "converted at the warning"
VALUE, OPTIMIZER = "new value network at every change", "new optimizer at every change"
PERTURBED, REDO, ANCHORED = "shrink and perturb at every change", "ReDo", "L2 towards the start"
CRELU, NORM, NORM_WARNED = "CReLU", "layer norm", "layer norm, new policy head at the warning"

# By row, what is tried of it: labels of strengths, and arms.
TRIED: Mapping[str, Mapping[str, Arm]] = {
    RELU: {"": Arm()},
    NEW: {"": Arm(renew="agent")},
    HEAD: {"": Arm(renew="head")},
    WARNED: {"": Arm(warned="head")},
    CRELU: {"": Arm("crelu")},
    CONVERTED: {"": Arm(warned="convert")},
    NORM: {"": Arm(norm=True)},
    NORM_WARNED: {"": Arm(norm=True, warned="head")},
    ANCHORED: {f"{s:g}": Arm(anchor=s) for s in (1.5e-4, 5e-4, 1.5e-3)},
    PERTURBED: {f"{share:g}": Arm(perturb=share) for share in (0.2, 0.5)},
    REDO: {f"{tau:g}": Arm(redo=tau) for tau in (0.025, 0.1)},
    VALUE: {"": Arm(renew="value")},
    OPTIMIZER: {"": Arm(renew="optimizer")},
}
RATES = 3e-4, 1e-3, 3e-3
CHOOSING, SEEDS = range(600, 603), range(700, 710)
SIZES = {"training": {"tasks": 4, "rollouts": 160}}
SMOKE = {"training": {"tasks": 2, "rollouts": 3, "environments": 2, "steps": 8, "epochs": 2}}
FEW = 50  # steps: an episode that ends so early has failed

# Chosen from records by `chosen_rate` and `chosen_strength`, with which a test compares them.
USUAL = 1e-3
EARLY_RATES: Mapping[str, float] = {}
STRENGTHS: Mapping[str, str] = {}


@runner("ppo")
def run(
    arm: Mapping[str, Any], training: Mapping[str, Any], rates: Sequence[float], seeds: Sequence[int]
) -> Mapping[str, Any]:
    """Let agents of one arm live, one per rate and seed; values are lists by seed, with several rates of every rate."""
    agents = Agents(Training(**training), Arm(**arm), rates, seeds)
    life, tasks = agents.live(), training["tasks"]
    returns = torch.stack(life.mean).view(tasks, -1, len(rates), len(seeds))
    last = max(1, returns.shape[1] // 5)
    ends = returns[:, -last:].mean(1)
    entropy = torch.stack(life.entropy).view_as(returns)
    later = slice(min(1, tasks - 1), None)  # tasks after a change, if there are any
    measured = {
        "first": returns[0].mean(0),
        "return": returns[later].mean((0, 1)),
        "end": ends[later].mean(0),
        "failed": 100 * (ends[later] < FEW).double().mean(0),
        "entropy": 100 * entropy[later].mean((0, 1)),
        "dead": life.dead[-1].view_as(ends[0]),
        "warnings": life.warnings.view_as(ends[0]),
    }
    suffixes = [""] if len(rates) == 1 else [f" at {rate:g}" for rate in rates]
    return {
        **{
            f"{name}{suffix}": by_seed.tolist()
            for name, values in measured.items()
            for suffix, by_seed in zip(suffixes, values, strict=True)
        },
        **({"rate": rates[0]} if len(rates) == 1 else {}),
        "parameters": int(agents.policy.mask[0].sum() + agents.value.mask[0].sum()),
        "history": {
            f"return{suffix}": course.tolist()
            for suffix, course in zip(suffixes, returns.flatten(0, 1).mean(2).T, strict=True)
        },
    }


def settings(arm: Arm) -> dict[str, Any]:
    """What an arm adds to a configuration: what it does that the plain agent does not."""
    plain = asdict(Arm())
    return {"arm": {name: value for name, value in asdict(arm).items() if value != plain[name]}}


def label(row: str, strength: str) -> str:
    """The row of what is tried."""
    return f"{row}: {strength}" if strength else row


def arm_of(row: str) -> Arm:
    """A row's arm at its chosen strength; before one is chosen, the first."""
    return TRIED[row][STRENGTHS.get(row, next(iter(TRIED[row])))]


def plain_of(row: str) -> str:
    """Before anything happens an agent is the plain one of its architecture, whose rate it has."""
    arm = arm_of(row)
    return ANCHORED if arm.anchor else NORM if arm.norm else CRELU if arm.activation == "crelu" else RELU


def rate_of(row: str, strength: str = "") -> float:
    """The rate that was chosen on the first task."""
    plain = plain_of(row)
    of = label(plain, strength or STRENGTHS.get(plain, "")) if plain == ANCHORED else plain
    return EARLY_RATES.get(of, USUAL)


def at(rate: float) -> str:
    """The label of a column that shows one rate."""
    return f"return in the first task, rate {rate:g}"


def chosen_rate(early: Results, name: str) -> float:
    """The rate with the highest mean return in the first task."""
    return max(RATES, key=lambda rate: early[name, at(rate)].mean())


def chosen_strength(strengths: Results, row: str) -> str:
    """The strength with the highest mean return after changes."""
    return max(TRIED[row], key=lambda strength: strengths[label(row, strength), RETURN].mean())


RETURN, END, FAILED = "return", "return at the ends of tasks", "tasks that end below 50 %"
TITLE = "PPO agents whose sensors change: return on CartPole"
ALL = {label(row, s): arm for row, tried in TRIED.items() for s, arm in tried.items()}
PLAIN = [RELU, CRELU, NORM, *(label(ANCHORED, s) for s in TRIED[ANCHORED])]
COLUMNS = {
    RETURN: Column("return", best="highest", digits=0),
    END: Column("end", best="highest", digits=0),
    FAILED: Column("failed", digits=0),
    "entropy %": Column("entropy", best=None, digits=0),
    "dead %": Column("dead", best=None, digits=0),
    "warnings": Column("warnings", best=None, digits=1),
    "rate": Column("rate", best=None, digits=4),
    "parameters": Column("parameters", best=None, digits=0),
}
BASE: dict[str, Any] = {"run": run, "repeat": {}}
early = Study(
    "ppo-rates", f"{TITLE}, in the first task, by learning rate",
    rows={name: settings(ALL[name]) for name in PLAIN},
    columns={at(rate): Column(f"first at {rate:g}", best="highest", digits=0) for rate in RATES},
    config={"seeds": CHOOSING, "rates": RATES},
    scales={"cpu": Scale({"training": {"tasks": 1, "rollouts": 160}}), "smoke": Scale(SMOKE)},
    **BASE,
)  # fmt: skip
strengths = Study(
    "ppo-strengths", f"{TITLE}, by strength, at the rate of the first task",
    rows={
        label(row, s): {**settings(arm), "rates": [rate_of(row, s)]}
        for row, tried in TRIED.items() if len(tried) > 1 for s, arm in tried.items()
    },
    columns={RETURN: COLUMNS[RETURN], "rate": COLUMNS["rate"]},
    config={"seeds": CHOOSING},
    scales={"cpu": Scale(SIZES), "smoke": Scale(SMOKE)},
    **BASE,
)  # fmt: skip
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
    Claim("layer norm and a new head", "With layer norm, a new policy head at the warning adds to the return.",
          higher(NORM_WARNED, NORM, RETURN)),
]  # fmt: skip
ppo = Study(
    "ppo", TITLE,
    rows={row: {**settings(arm_of(row)), "rates": [rate_of(row)]} for row in TRIED},
    columns=COLUMNS,
    config={"seeds": SEEDS},
    scales={"cpu": Scale(SIZES), "smoke": Scale({**SMOKE, "seeds": [700, 701]})},
    claims=CLAIMS,
    **BASE,
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
        "cpu": Scale({"tasks": 3}),
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


def failures(results: Results) -> list[str]:
    """What was predicted and did not come true, first on the page."""
    return [
        str(verdict) for of in findings(results) for verdict in of.verdicts if verdict.outcome != "confirmed"
    ]


def story(results: Results) -> str:
    """What became of the agents, in a paragraph made from records."""

    def returned(row: str) -> str:
        return f"{results[row, RETURN].mean():.0f}"

    others = ", ".join(f"{row} {returned(row)}" for row in (*USELESS, NORM, NORM_WARNED, ANCHORED, PERTURBED))
    return (
        f"Unchanged, an agent returns {returned(RELU)} once its sensors have changed, a new agent {returned(NEW)}. A "
        f"new policy head alone, 130 weights, at every change: {returned(HEAD)}; at the warning, told of nothing: "
        f"{returned(WARNED)}. The others: {others}."
    )


STUDIES = [ppo, stable, early, strengths]

__all__ = ["CERTAIN", "RECENT", "STUDIES"]  # the first two are named on the page
