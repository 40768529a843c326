"""Ours: a recommender whose users' tastes keep changing; which networks go on learning, and which repair helps.

Written before any run that is recorded: arms, rates and strengths to try, seeds, claims and their directions; those of
ADDED before any run of their rows, with the results of the others in view.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

import torch
from torch import Tensor

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
from relucid.report.figure import PALETTE, Figure, literal
from relucid_reproductions.ours._bandit import Agents, Arm, World
from relucid_reproductions.ours._said import failures, finished, near, settings

RELU, WIDER = "ReLU", "ReLU, 88 units"
NEW, NEW_WIDER, NEW_CRELU = (f"new network at every change: {what}" for what in (RELU, WIDER, "CReLU"))
ANCHORED, PERTURBED = "L2 towards the start", "shrink and perturb at every change"
NORM, NORM_DECAY, NORM_CRELU = "layer norm", "layer norm, L2", "layer norm, CReLU"
REDO, RECYCLED, PRELU = "ReDo", "continual backprop", "PReLU"
CONVERTED, REVIVED = "converted at the warning", "revived and converted at the warning"
CRELU, NARROW = "CReLU", "CReLU, 40 units"
TANH, LEAKY, NORM_CRELU_DECAY = "tanh", "leaky ReLU", "layer norm, CReLU, L2"
SLOPES, GROWN = "PReLU with slopes of 0 at the warning", "grown to 88 units at the warning"
INJECTED = "plasticity injection at the warning"
# Rows and claims that were stated when the results of the others were known.
ADDED, STATED = (TANH, LEAKY, NORM_CRELU_DECAY, SLOPES, GROWN, INJECTED), "2026-11-20"

# By row, what is tried of it: labels of strengths, and arms. L2-init's strength s adds s |w - w0|^2 to the loss.
TRIED: Mapping[str, Mapping[str, Arm]] = {
    RELU: {"": Arm()},
    WIDER: {"": Arm(units=88)},
    NEW: {"": Arm(renew=True)},
    NEW_WIDER: {"": Arm(units=88, renew=True)},
    NEW_CRELU: {"": Arm("crelu", renew=True)},
    ANCHORED: {f"{s:g}": Arm(anchor=s) for s in (1e-4, 5e-4, 2e-3)},
    PERTURBED: {
        f"{share:g}, optimizer {'new' if forget else 'kept'}": Arm(perturb=share, forget=forget)
        for share in (0.5, 0.8)
        for forget in (False, True)
    },
    NORM: {"": Arm(norm=True)},
    NORM_DECAY: {f"{s:g}": Arm(norm=True, decay=s) for s in (1e-4, 3e-4, 1e-3, 3e-3)},
    NORM_CRELU: {"": Arm("crelu", norm=True)},
    REDO: {f"{tau:g}": Arm(redo=tau) for tau in (0.025, 0.1)},
    RECYCLED: {f"{share:g}": Arm(recycle=share) for share in (1e-4, 1e-3)},
    PRELU: {"": Arm("prelu")},
    **{
        row: {f"optimizer {word}": Arm(repair=repair, forget=word == "new") for word in ("kept", "new")}
        for row, repair in ((CONVERTED, "convert"), (REVIVED, "revive and convert"))
    },
    CRELU: {"": Arm("crelu")},
    NARROW: {"": Arm("crelu", units=40)},
    TANH: {"": Arm("tanh")},
    LEAKY: {"": Arm("leaky_relu")},
    NORM_CRELU_DECAY: {f"{s:g}": Arm("crelu", norm=True, decay=s) for s in (1e-4, 3e-4, 1e-3)},
    **{
        row: {f"optimizer {word}": Arm(repair=repair, forget=word == "new") for word in ("kept", "new")}
        for row, repair in ((SLOPES, "slopes"), (GROWN, "grow"))
    },
    INJECTED: {"": Arm(repair="inject")},
}
RATES = 1e-3, 3e-3, 1e-2  # tried on the first two phases
SMALL = 3e-4  # too, when layer norm had chosen the smallest of the others
WHOLE = 1e-3, 3e-3  # tried on the whole stream
LAST = 4  # phases that count
CHOOSING, SEEDS = range(100, 103), range(200, 210)
SIZES: dict[str, Any] = {
    "world": {
        "phases": 10,
        "steps": 600,
        "users": 600,
        "batch": 60,
        "memory": 6000,
        "updates": 2,
        "explore": 0.1,
    }
}
SMOKE: dict[str, Any] = {
    "world": {"phases": 3, "steps": 6, "users": 40, "batch": 8, "memory": 32, "updates": 2, "explore": 0.1}
}


T = TypeVar("T")


# Chosen from records by `chosen_rate`, `chosen_strength` and `hindsight_rate`, with which a test compares them. Rates
# are by label, and USUAL where none is named; strengths and rates with hindsight are by row.
USUAL = 3e-3
EARLY_RATES: Mapping[str, float] = {
    NORM: 1e-3,
    **{f"{NORM_DECAY}: {s}": 1e-3 for s in TRIED[NORM_DECAY]},
    NORM_CRELU: 1e-3,
    **{f"{NORM_CRELU_DECAY}: {s}": 1e-3 for s in TRIED[NORM_CRELU_DECAY]},
    f"{ANCHORED}: 0.002": 1e-3,
}
STRENGTHS: Mapping[str, str] = {
    ANCHORED: "0.0005",
    PERTURBED: "0.5, optimizer new",
    NORM_DECAY: "0.001",
    REDO: "0.1",
    RECYCLED: "0.001",
    CONVERTED: "optimizer new",
    REVIVED: "optimizer new",
    SLOPES: "optimizer new",
    GROWN: "optimizer kept",
    NORM_CRELU_DECAY: "0.001",
}
HINDSIGHT_RATES: Mapping[str, float] = {
    **{row: USUAL for row in TRIED if row not in ADDED},
    **dict.fromkeys((RELU, WIDER, NORM_DECAY), 1e-3),
}


@runner("recommender")
def run(
    arm: Mapping[str, Any], world: Mapping[str, Any], rates: Sequence[float], seeds: Sequence[int]
) -> Mapping[str, Any]:
    """Let agents of one arm live, one per rate and seed; values are lists by seed, with several rates of every rate."""
    life = Agents(World(**world), Arm(**arm), rates, seeds).live()
    measured = {
        "reward": mean(life.late[-LAST:]),
        "first": mean(life.late[:2]),
        "young": mean(life.late[1:5]),
        "stream": mean(life.reward),
        "worst": life.worst[-1],
        "repaired": life.repaired,
        "moved": life.moved,
    }
    courses = {"reward": life.late, "dead": life.dead, "worst": life.worst}
    suffixes = [""] if len(rates) == 1 else [f" at {rate:g}" for rate in rates]
    shape = len(rates), len(seeds)
    return {
        **{
            f"{name}{suffix}": by_seed.tolist()
            for name, values in measured.items()
            for suffix, by_seed in zip(suffixes, values.view(shape), strict=True)
        },
        **({"rate": rates[0]} if len(rates) == 1 else {}),
        "parameters": life.parameters,
        "history": {
            f"{name}{suffix}": course.tolist()
            for name, phases in courses.items()
            for suffix, course in zip(suffixes, torch.stack(phases).view(-1, *shape).mean(2).T, strict=True)
        },
    }


def mean(phases: Sequence[Tensor]) -> Tensor:
    """The mean over phases, by agent."""
    return torch.stack([*phases]).mean(0)


def label(row: str, strength: str) -> str:
    """The row of what is tried."""
    return f"{row}: {strength}" if strength else row


def chosen_rate(early: Results, row: str) -> float:
    """The rate of what is tried that earned most in the last fifth of the first two phases.

    Until its warning a network that is to be repaired is the plain one, and so is its rate.
    """
    name = RELU if row.startswith(WARNED) else row
    return best({rate: early[name, at(rate, "first")].mean() for rate in (SMALL, *RATES)})


def chosen_strength(strengths: Results, row: str) -> str:
    """The strength that, each at its rate, earned most in the last four phases."""
    if len(TRIED[row]) == 1:
        return next(iter(TRIED[row]))
    return best({s: strengths[label(row, s), REWARD].mean() for s in TRIED[row]})


def hindsight_rate(whole: Results, row: str) -> float:
    """The rate at which a row, at its strength, earned most in the last four phases."""
    return best({rate: whole[row, at(rate, "reward")].mean() for rate in WHOLE})


def best(means: Mapping[T, float]) -> T:
    """What has the highest mean."""
    return max(means, key=means.__getitem__)


def at(rate: float, metric: str) -> str:
    """The label of a column that shows one rate."""
    return f"{'first two' if metric == 'first' else 'last four'} phases %, rate {rate:g}"


def at_rates(metric: str, rates: Sequence[float]) -> dict[str, Column]:
    """A column per rate of runs at several rates."""
    return {at(rate, metric): Column(f"{metric} at {rate:g}", best="highest", digits=1) for rate in rates}


def arm_of(row: str) -> Arm:
    """A row's arm at its chosen strength; before one is chosen, the first."""
    return TRIED[row][STRENGTHS.get(row, next(iter(TRIED[row])))]


UNTOLD = (RELU, WIDER, ANCHORED, NORM, NORM_DECAY, REDO, RECYCLED, PRELU)  # one-sided, told of nothing
TOLD = (NEW, NEW_WIDER, NEW_CRELU, PERTURBED)
REPAIRED = (CONVERTED, REVIVED)
WARNED = (*REPAIRED, SLOPES, GROWN, INJECTED)  # plain networks until the warning
OTHERS = (*UNTOLD[2:], PERTURBED, TANH, LEAKY, SLOPES, GROWN, INJECTED)  # remedies without CReLU
GRADED = (ANCHORED, NORM_DECAY, REDO, RECYCLED, NORM_CRELU_DECAY)  # whose strengths are numbers
TITLE = "A recommender whose users' tastes change: share of recommendations that a user likes"
ALL = {label(row, s): arm for row, tried in TRIED.items() for s, arm in tried.items()}
REWARD = "reward %"
CHOOSES: dict[str, Any] = {"run": run, "repeat": {}}
FEW = Scale({**SMOKE, "seeds": [100]})
early = Study(
    "recommender-rates", f"{TITLE}, in the first two phases, by learning rate",
    rows={name: settings("arm", arm) for name, arm in ALL.items() if not name.startswith(WARNED)},
    columns={
        at(SMALL, "first"): Column("first", {"rates": [SMALL]}, best="highest", digits=1),
        **at_rates("first", RATES),
    },
    config={"seeds": CHOOSING, "rates": RATES},
    scales={"cpu": Scale({"world": {**SIZES["world"], "phases": 2}}), "smoke": FEW},
    **CHOOSES,
)  # fmt: skip
strengths = Study(
    "recommender-strengths", f"{TITLE}, by strength, at the rate of the first two phases",
    rows={
        label(row, s): {**settings("arm", arm), "rates": [EARLY_RATES.get(label(row, s), USUAL)]}
        for row, tried in TRIED.items() if len(tried) > 1 for s, arm in tried.items()
    },
    columns={REWARD: Column("reward", best="highest", digits=1), "rate": Column("rate", best=None, digits=4)},
    config={"seeds": CHOOSING},
    scales={"cpu": Scale(SIZES), "smoke": FEW},
    **CHOOSES,
)  # fmt: skip
whole = Study(
    "recommender-whole", f"{TITLE}, on the whole stream, by learning rate",
    rows={row: settings("arm", arm_of(row)) for row in HINDSIGHT_RATES},
    columns=at_rates("reward", WHOLE),
    config={"seeds": CHOOSING[:2], "rates": WHOLE},
    scales={"cpu": Scale(SIZES), "smoke": FEW},
    **CHOOSES,
)  # fmt: skip

COLUMNS = {
    REWARD: Column("reward", best="highest", digits=1),
    "first two phases %": Column("first", best="highest", digits=1),
    "all steps %": Column("stream", best="highest", digits=1),
    "worst layer dead %": Column("worst", best=None, digits=0),
    "repaired after phase": Column("repaired", best=None, digits=1),
    "rate": Column("rate", best=None, digits=4),
    "parameters": Column("parameters", best=None, digits=0),
}


def rows(rates: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Rows at the strengths that were chosen, at these rates."""
    return {row: {**settings("arm", arm_of(row)), "rates": [rate]} for row, rate in rates.items()}


RATES_FIRST = {
    row: EARLY_RATES.get(label(row, STRENGTHS.get(row, next(iter(TRIED[row])))), USUAL) for row in TRIED
}


def claims(where: str) -> list[Claim]:
    """What is predicted where tastes change at once. Directions follow pilots on seeds 0 to 4 and 50 to 52."""
    return [
        Claim(f"gate, {where}", "The old ReLU network earns less than a new one of its size at every change.",
              lower(RELU, NEW, REWARD)),
        *(
            Claim(f"{row}, {where}",
                  f"A ReLU network {row} earns more than one that stays as it is or has as many parameters, "
                  "than one with L2 towards the start, layer norm, both of layer norm and L2, ReDo, continual backprop "
                  "or PReLU, than one that is shrunk and perturbed at every change, and than a new ReLU or CReLU "
                  "network at every change.",
                  higher(row, (*UNTOLD, *TOLD), REWARD))
            for row in REPAIRED
        ),
        Claim(f"reviving, {where}", "Converted, a network earns more if its dead units are revived as well.",
              higher(REVIVED, CONVERTED, REWARD)),
        Claim(f"repair and CReLU, {where}",
              "Revived and converted, a network earns at most 10 points less than CReLU from the start.",
              [Contrast(less_by(REVIVED, CRELU), 10.0, "lower")]),
        Claim(f"CReLU, {where}", "CReLU from the start earns more than any of these.",
              higher(CRELU, (*UNTOLD, *TOLD), REWARD)),
        Claim(f"fewer parameters, {where}",
              "CReLU with 40 units, which has fewer parameters, earns more than ReLU and than layer norm with L2.",
              higher(NARROW, (RELU, NORM_DECAY), REWARD)),
        Claim(f"layer norm and CReLU, {where}", "With layer norm, CReLU earns more than ReLU with L2.",
              higher(NORM_CRELU, NORM_DECAY, REWARD)),
    ]  # fmt: skip


def added_claims() -> list[Claim]:
    """What is predicted of the added rows. Directions follow pilots of PReLU, more units and layer norm with CReLU."""
    rivals = (TANH, LEAKY, SLOPES, GROWN, INJECTED)
    stated = {
        "converted and five others": (
            "A ReLU network converted at the warning earns more than one with tanh or leaky ReLU from the start, and, "
            "at the warning, than one whose ReLU becomes PReLU with slopes of 0, one that is grown to as many "
            "parameters, and one with plasticity injection.",
            higher(CONVERTED, rivals, REWARD),
        ),
        "CReLU and five others": ("CReLU from the start earns more than these.", higher(CRELU, rivals, REWARD)),
        "other repairs that keep outputs": (
            "PReLU with slopes of 0, or plasticity injection, at the warning earns more than ReLU left alone, and than "
            "a network grown to as many parameters.",
            higher((SLOPES, INJECTED), (RELU, GROWN), REWARD),
        ),
        "layer norm, CReLU and L2": (
            "With layer norm, CReLU and L2, a network earns more than without L2, and less than with CReLU alone.",
            [*higher(NORM_CRELU_DECAY, NORM_CRELU, REWARD), *lower(NORM_CRELU_DECAY, CRELU, REWARD)],
        ),
    }  # fmt: skip
    return [Claim(where, says, contrasts, stated=STATED) for where, (says, contrasts) in stated.items()]


def less_by(row: str, than: str) -> Quantity:
    """By how many points a row earns less than another."""
    return Quantity(
        f"{than} minus {row}", [Cell(than, REWARD), Cell(row, REWARD)], lambda theirs, ours: theirs - ours
    )


def rivals(results: Results) -> str:
    """The rows without CReLU, or new at every change, that earn about as much as the repaired one, or more."""
    return near(results, REVIVED, REWARD, (*UNTOLD, *TOLD, *ADDED))


def of(results: Results, row: str) -> str:
    """What a row earned, as text."""
    return f"{results[row, REWARD].mean():.1f}%"


def story(results: Results) -> str:
    """What became of the recommender, in sentences made from records."""

    def reward(row: str, metric: str = "") -> str:
        return f"{results[row, REWARD, metric].mean():.0f}%"

    remedies = [row for row in OTHERS if (row, REWARD) in results.cells]
    rival = best({row: results[row, REWARD].mean() for row in remedies})
    repaired = results[REVIVED, REWARD, "repaired"]
    warned = repaired[repaired > 0]
    return (
        f"With ReLU the share of recommendations that a user likes falls from {reward(RELU, 'first')} in the first two "
        f"phases to {reward(RELU)} in the last four (chance is 10%); with as many parameters as the converted network "
        f"has, to {reward(WIDER)}. A new ReLU network at every change has {reward(NEW)}, {rival}, the best of "
        f"{len(remedies)} other remedies, {reward(rival)}. Revived and converted to CReLU in place, when the warning "
        f"came ({len(warned)} of {len(repaired)} agents, after phase {warned.mean():.1f} on average), an agent has "
        f"{reward(REVIVED)}; converted alone {reward(CONVERTED)}; with CReLU from the start {reward(CRELU)}. Over all "
        f"steps, those before the warning included, it has earned {reward(REVIVED, 'stream')}, {rival} "
        f"{reward(rival, 'stream')} and CReLU {reward(CRELU, 'stream')}."
    )


def over_phases(results: Results) -> list[Figure]:
    """Draw the reward over the phases: ReLU, new networks, the best remedy, the repaired one and CReLU."""
    means = {row: results[row, REWARD].mean() for row in OTHERS if len(results.behind(row, REWARD))}
    rival = [best(means)] if means else []
    return drawn(results, (RELU, NEW, *rival, REVIVED, CRELU), REWARD, REVIVED)


def conversions(results: Results, row: str, column: str) -> list[int]:
    """The phases after which agents were converted."""
    return sorted({round(phase) for phase in results[row, column, "repaired"] if phase})


def drawn(results: Results, rows: Sequence[str], column: str, converted: str) -> list[Figure]:
    """Draw the reward of rows over the phases, and mark when one of them was converted."""
    import plotly.graph_objects as go

    known = [row for row in rows if results.behind(row, column)]
    if converted not in known:
        return []
    plot = go.Figure(layout={"xaxis_title": "phase", "yaxis_title": "liked %", "height": 460})
    plot.update_yaxes(rangemode="tozero")
    for row, color in zip(known, PALETTE, strict=False):
        curve = results[row, column, "reward", True].iloc[0]
        line = {"color": color, "width": 5 if row == converted else 2}
        plot.add_scatter(x=[*range(1, len(curve) + 1)], y=curve, name=literal(row), mode="lines", line=line)
    after = conversions(results, converted, column)
    if after:
        said = {
            "annotation_text": "<b>to_crelu(model, …)</b><br>no output changes",
            "annotation_position": "bottom left",
        }
        plot.add_vline(
            x=fmean(after) + 0.5, line_dash="dash", line_color=PALETTE[known.index(converted)], **said
        )
    ends = ", ".join(f"{row} {results[row, column].mean():.0f}%" for row in known)
    moment = f" It was converted after phase {' or '.join(map(str, after))}." if after else ""
    alt = f"Lines of the share of recommendations that users like, phase by phase; in the last four: {ends}.{moment}"
    return [Figure("Recommendations that users like, in the last fifth of every phase", alt, plot)]


def at_edges() -> list[str]:
    """What was chosen although more, or less, of it was not tried."""
    rates = [f"{row}: rate {rate:g}" for row, rate in RATES_FIRST.items() if rate in (SMALL, RATES[-1])]
    ends = {row: (min(TRIED[row], key=float), max(TRIED[row], key=float)) for row in GRADED}
    return [*rates, *(f"{row}: {STRENGTHS[row]}" for row in GRADED if STRENGTHS.get(row) in ends[row])]


BASE: dict[str, Any] = {
    "run": run,
    "figures": [over_phases],
    "columns": COLUMNS,
    "config": {"seeds": SEEDS},
    "scales": {"cpu": Scale(SIZES), "smoke": Scale({**SMOKE, "seeds": [200, 201]})},
    "repeat": {},
}
recommender = Study(
    "recommender", TITLE, rows=rows(RATES_FIRST),
    claims=[*claims("rates of the first two phases"), *added_claims()], **BASE,
)  # fmt: skip
hindsight = Study(
    "recommender-hindsight", f"{TITLE}; rates chosen on the whole stream", rows=rows(HINDSIGHT_RATES),
    claims=claims("rates of the whole stream"), **BASE,
)  # fmt: skip

YOUNG, GRADUAL = "blocks 2 to 5 %", "gradual drift"
DRIFTING = (RELU, WIDER, ANCHORED, NORM_DECAY, REDO, PRELU)
drift = Study(
    "recommender-drift",
    f"{TITLE}, one user's per step",
    rows=rows({row: RATES_FIRST[row] for row in (*DRIFTING, *REPAIRED, CRELU)}),
    claims=[
        Claim(f"gate, {GRADUAL}", "ReLU earns less in the last four blocks than in blocks 2 to 5.",
              [Contrast(Cell(RELU, REWARD), Cell(RELU, YOUNG), "lower")]),
        *(
            Claim(f"{row}, {GRADUAL}", f"A ReLU network {row} earns more than one that stays as it is or is as large.",
                  higher(row, (RELU, WIDER), REWARD))
            for row in REPAIRED
        ),
        Claim(f"repair and rivals, {GRADUAL}",
              "Revived and converted, a network earns more than with L2 towards the start, with layer norm and L2, "
              "with ReDo and with PReLU.",
              higher(REVIVED, DRIFTING[2:], REWARD)),
        Claim(f"CReLU, {GRADUAL}", "CReLU from the start earns more than these.", higher(CRELU, DRIFTING, REWARD)),
    ],
    **BASE | {
        "columns": {**COLUMNS, YOUNG: Column("young", best="highest", digits=1)},
        "config": {"seeds": SEEDS, "world": {"drift": True}},
        "scales": {"cpu": Scale({"world": {**SIZES["world"], "phases": 12}}), "smoke": BASE["scales"]["smoke"]},
    },
)  # fmt: skip

STUDIES = [recommender, hindsight, drift, early, strengths, whole]

__all__ = ["STUDIES", "failures", "finished"]  # the latter for the page
