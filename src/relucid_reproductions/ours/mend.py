"""Ours: a network that has stopped learning is repaired in the middle of its training, in one of several ways."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from relucid.convert import to_crelu
from relucid.experiments import Claim, Column, Record, Results, Scale, Study, at_most, higher, runner
from relucid.models import count_parameters
from relucid.report.figure import Figure
from relucid.train.stream import Stream
from relucid_reproductions.ours.drawing import over_tasks
from relucid_reproductions.ours.streams import (
    PROBE,
    Arm,
    Learners,
    RandomLabels,
    begin,
    course,
    dense,
    renew,
)

UNCHANGED, RESTARTED = "unchanged", "unchanged, new optimizer"
REDRAWN, INJECTED = "dead units re-initialised", "plasticity injection"
CONVERTED, WITHOUT = "converted by to_crelu", "converted, new optimizer"
NEW, NEW_CRELU = "new ReLU network", "new CReLU network, same size"
WAYS = {
    UNCHANGED: "unchanged", RESTARTED: "restarted", REDRAWN: "renewed", INJECTED: "injected", CONVERTED: "converted",
    WITHOUT: "without", NEW: "new", NEW_CRELU: "new crelu",
}  # fmt: skip
KEEP = (UNCHANGED, RESTARTED, REDRAWN, INJECTED)  # what else keeps what the network knows
RATES = (1e-3, 3e-3)
GRAY = "#888888"  # of the line at which networks are repaired, on light and dark pages
ROUNDING = 1e-4  # the largest difference of outputs, of sizes up to some tens in float32


class Injected(nn.Module):
    """Plasticity injection (Nikishin et al. 2023): the old network is frozen, a new one learns the difference.

    Outputs are old(x) + new(x) - copy(x); the copy of the new network is frozen, so that at first nothing changes. All
    layers here are linear, which the paper's head consists of: the whole network is the head.
    """

    def __init__(self, old: nn.Module, new: nn.Module) -> None:
        super().__init__()
        self.old, self.new, self.copy = old, new, deepcopy(new)
        for frozen in (self.old, self.copy):
            frozen.requires_grad_(False)

    def forward(self, x: Tensor, hidden: bool = False) -> Any:
        """The outputs (N, classes), or the values of the new network's hidden layers."""
        return self.new(x, hidden=True) if hidden else self.old(x) + self.new(x) - self.copy(x)


@runner("mend")
def run(
    way: str, rate: float, before: int, after: int, seeds: Sequence[int], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Train ReLU networks on random labels, repair them, and let them keep learning."""
    labels = RandomLabels(**data)
    learners = begin(Arm(), labels, (rate,), seeds)
    first = course(learners, labels, before)
    assert labels.inputs is not None
    assert labels.targets is not None
    outputs = learners.stream(labels.inputs).detach()
    repaired = repair(learners, way, rate, labels.inputs)
    moved = (repaired.stream(labels.inputs).detach() - outputs).abs().flatten(1).amax(1)
    kept = repaired.accuracy(labels.inputs, labels.targets)
    then = course(repaired, labels, after)
    fitted, dead = (
        [*one.mean((1, 2)).tolist(), *other.mean((1, 2)).tolist()]
        for one, other in ((first.scores, then.scores), (first.dead, then.dead))
    )
    return {
        "fitted before": first.scores[-after:].mean((0, 1)).tolist(),
        "fitted": then.scores.mean((0, 1)).tolist(),
        "kept": kept.tolist(),
        "moved": moved.tolist(),
        "dead": then.dead[-1, 0].tolist(),
        "parameters": count_parameters(repaired.stream.networks[0]),
        "history": {"fitted": fitted, "dead": dead},
    }


def repair(learners: Learners, way: str, rate: float, inputs: Tensor) -> Learners:
    """Repair all networks in one of the ways in `WAYS`; inputs (seeds, N, ...) show which units are dead."""
    stream = learners.stream
    stream.write()
    networks, optimizers = stream.networks, stream.optimizers
    if way == "renewed":
        renew(stream, learners.constant(inputs[:, :PROBE]), torch.Generator().manual_seed(learners.seeds[0]))
        return learners
    if way in ("converted", "without"):
        for network, optimizer, seen in zip(networks, optimizers, inputs, strict=True):
            to_crelu(network, seen[:2], inplace=True, optimizer=optimizer)
    elif way in ("injected", "new", "new crelu"):
        fresh = _new(Arm("crelu") if way == "new crelu" else Arm(), learners.seeds)
        networks = [*map(Injected, networks, fresh)] if way == "injected" else fresh
    if way not in ("unchanged", "converted"):
        optimizers = [Adam(_trained(network), lr=rate) for network in networks]
    phases = 2 if way in ("converted", "without", "new crelu") else 1
    repaired = replace(learners, stream=Stream(networks, optimizers), phases=phases)
    repaired.draws = learners.draws  # all ways see the same tasks
    return repaired


def _new(arm: Arm, seeds: Sequence[int]) -> list[nn.Module]:
    """New networks, whose seeds are not those that the old ones were drawn by."""
    made: list[nn.Module] = []
    for seed in seeds:
        torch.manual_seed(1_000_000 + seed)
        made.append(dense(arm))
    return made


def _trained(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


FITTED, KEPT = (
    tuple(f"{what}, rate {rate:g}" for rate in RATES) for what in ("fitted % afterwards", "last task kept %")
)
MOVED = "largest change of an output"
SMALLER = {"rate": RATES[0]}
FULL = {
    "before": 25,
    "after": 8,
    "seeds": range(300, 310),
    "data": {"digits": 600, "batch": 60, "epochs": 12},
}
SMOKE = {"before": 2, "after": 2, "seeds": range(300, 302), "data": {"digits": 120, "batch": 60, "epochs": 2}}


def fitted_before(results: Results, column: str) -> float:
    """The share of labels that networks had fitted in the last tasks before they were repaired."""
    (record,) = results.behind(CONVERTED, column)
    return fmean(record["metrics"]["fitted before"])


def tasks(results: Results) -> list[Figure]:
    """Draw the share of labels fitted, task by task, for each rate."""
    by_rate = ({row: record for row in WAYS for record in results.behind(row, column)} for column in FITTED)
    return [_of_runs(runs) for runs in by_rate if runs]


def _of_runs(runs: Mapping[str, Record]) -> Figure:
    """Draw the share of labels fitted and of dead units over the tasks, from the record of each way's run."""
    config = next(iter(runs.values()))["config"]
    courses = {row: (run["history"]["fitted"], run["history"]["dead"]) for row, run in runs.items()}
    plot = over_tasks({"": courses}, "fitted %")
    plot.add_vline(config["before"] + 0.5, line_dash="dash", line_color=GRAY)
    alt = (
        "Lines of the share of labels fitted at the end of each task, one line per way to repair the network at the "
        "dashed line, and below it the share of dead units."
    )
    return Figure(
        f"Labels fitted, repaired after task {config['before']}, rate {config['rate']:g}", alt, plot
    )


def against(new: str, row: str) -> Claim:
    """The converted network against one that has forgotten everything."""
    says = (
        f"The converted network learns the following tasks better than {new}, which has forgotten everything."
    )
    return Claim(f"mend: against {new.removesuffix(' of its size')}", says, higher(CONVERTED, row, FITTED))


STUDIES = [
    Study(
        "mend",
        "A ReLU network that has stopped learning, repaired in eight ways: the share of labels fitted afterwards",
        run,
        {row: {"way": way} for row, way in WAYS.items()},
        {
            label: Column(metric, {"rate": rate}, best="highest", digits=1)
            for metric, labels in (("fitted", FITTED), ("kept", KEPT))
            for label, rate in zip(labels, RATES, strict=True)
        }
        | {
            MOVED: Column("moved", SMALLER, best=None, digits=6),
            "dead %": Column("dead", SMALLER, best=None, digits=0),
            "parameters": Column("parameters", SMALLER, best=None, digits=0),
        },
        {"cpu": Scale(FULL), "smoke": Scale(SMOKE)},
        repeat={},
        claims=[
            Claim(
                "mend",
                "Converted by to_crelu, with its optimizer's state or without, a network learns the following tasks "
                "better than unchanged, with a new optimizer, with its dead units re-initialised, or with plasticity "
                "injected.",
                higher((CONVERTED, WITHOUT), KEEP, FITTED),
            ),
            Claim(
                "mend: outputs",
                f"The conversion changes no output by more than {ROUNDING:g}.",
                at_most((CONVERTED, WITHOUT), ROUNDING, MOVED),
                kind="construction",
            ),
            against("a new ReLU network", NEW),
            against("a new CReLU network of its size", NEW_CRELU),
            Claim(
                "mend: the optimizer's state",
                "A converted network learns the following tasks better if Adam keeps its state.",
                higher(CONVERTED, WITHOUT, FITTED),
            ),
        ],
        figures=[tasks],
    )
]
