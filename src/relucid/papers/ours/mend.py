"""Ours: a network that has stopped learning is mended in the middle of its training, in one of several ways."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from relucid.convert import to_crelu
from relucid.models import count_parameters
from relucid.papers.ours.streams import PROBE, Arm, Learners, RandomLabels, begin, course, dense, renew
from relucid.report.figure import PALETTE, Figure
from relucid.studies import AtMost, Claim, Column, Higher, Result, Runner, Scale, Store, Study, Table
from relucid.train.stream import Stream

if TYPE_CHECKING:
    import plotly.graph_objects as go

UNCHANGED, RESTARTED = "unchanged", "unchanged, new optimizer"
RENEWED, INJECTED = "dead units re-initialised", "plasticity injection"
CONVERTED, WITHOUT = "converted by to_crelu", "converted, new optimizer"
NEW, NEW_CRELU = "new ReLU network", "new CReLU network, same size"
WAYS = {
    UNCHANGED: "unchanged",
    RESTARTED: "restarted",
    RENEWED: "renewed",
    INJECTED: "injected",
    CONVERTED: "converted",
    WITHOUT: "without",
    NEW: "new",
    NEW_CRELU: "new crelu",
}
KEEP = (UNCHANGED, RESTARTED, RENEWED, INJECTED)  # what else keeps what the network knows
RATES = (1e-3, 3e-3)
GREY = "#888888"  # of the line at which networks are mended, on light and dark pages
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


def run(config: Mapping[str, Any]) -> Result:
    """Train ReLU networks on random labels, mend them, and let them go on learning."""
    seeds, rate = config["seeds"], config["rate"]
    setting = RandomLabels(**config["data"])
    learners = begin(Arm(), setting, (rate,), seeds)
    before = course(learners, setting, config["before"])
    assert setting.inputs is not None
    assert setting.targets is not None
    outputs = learners.stream(setting.inputs).detach()
    mended = mend(learners, config["way"], rate, setting.inputs)
    moved = (mended.stream(setting.inputs).detach() - outputs).abs().flatten(1).amax(1)
    kept = mended.accuracy(setting.inputs, setting.targets)
    after = course(mended, setting, config["after"])
    return Result(
        {
            "fitted before": before.scores[-config["after"] :].mean((0, 1)).tolist(),
            "fitted": after.scores.mean((0, 1)).tolist(),
            "kept": kept.tolist(),
            "moved": moved.tolist(),
            "dead": after.dead[-1, 0].tolist(),
            "parameters": count_parameters(mended.stream.networks[0]),
        },
        {
            "fitted": [*before.scores.mean((1, 2)).tolist(), *after.scores.mean((1, 2)).tolist()],
            "dead": [*before.dead.mean((1, 2)).tolist(), *after.dead.mean((1, 2)).tolist()],
        },
    )


def mend(learners: Learners, way: str, rate: float, inputs: Tensor) -> Learners:
    """Mend all networks in one of the ways in `WAYS`; inputs (seeds, N, ...) show which units are dead."""
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
    mended = replace(learners, stream=Stream(networks, optimizers), phases=phases)
    mended.draws = learners.draws  # all ways see the same tasks
    return mended


def _new(arm: Arm, seeds: Sequence[int]) -> list[nn.Module]:
    """New networks, whose seeds are not those that the old ones were drawn by."""
    made: list[nn.Module] = []
    for seed in seeds:
        torch.manual_seed(1_000_000 + seed)
        made.append(dense(arm))
    return made


def _trained(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


RUNNER = Runner("mend", run)


def fitted(rate: float) -> str:
    """The label of the column that claims are about."""
    return f"fitted % afterwards, rate {rate:g}"


def kept(rate: float) -> str:
    """The label of the column of what is left right after mending."""
    return f"last task kept %, rate {rate:g}"


FITTED, KEPT = tuple(map(fitted, RATES)), tuple(map(kept, RATES))
MOVED = "largest change of an output"


def remark(table: Table) -> str:
    """State what the networks had fitted before, how much was kept, and the numbers of parameters."""
    shares = []
    for rate in RATES:
        for record in table.behind(CONVERTED, fitted(rate)):
            shares.append(f"{fmean(record['metrics']['fitted before']):.0f}% at {rate:g}")
    sizes = {row: table.cells[row, "parameters"].mean for row in (UNCHANGED, CONVERTED)}
    if not shares or None in sizes.values():
        return ""
    return (
        f"In the last tasks before mending, the networks had fitted {' and '.join(shares)}. Unchanged, they have "
        f"{sizes[UNCHANGED]:,.0f} parameters, converted {sizes[CONVERTED]:,.0f}."
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw the share of labels fitted, task by task, for each rate."""
    by_rate = ({row: record for row in WAYS for record in table.behind(row, fitted(rate))} for rate in RATES)
    return [over_tasks(found) for found in by_rate if found]


def over_tasks(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw the share of labels fitted and of dead units over the tasks, from the record of each way's run."""
    config = next(iter(found.values()))["config"]
    config = config.get("mend", config)
    courses = {row: (record["history"]["fitted"], record["history"]["dead"]) for row, record in found.items()}
    plot = above_dead_units(courses, "fitted %", PALETTE * 2)
    plot.add_vline(config["before"] + 0.5, line_dash="dash", line_color=GREY)
    alt = (
        "Lines of the share of labels fitted at the end of each task, one line per way to mend the network at the "
        "dashed line, and below it the share of dead units."
    )
    return Figure(f"Labels fitted, mended after task {config['before']}, rate {config['rate']:g}", alt, plot)


def above_dead_units(
    courses: Mapping[str, tuple[Sequence[float], Sequence[float]]], upper: str, colors: Sequence[str]
) -> "go.Figure":
    """Draw two values over the tasks, by name: the first in the upper panel, the share of dead units in the lower."""
    from plotly.subplots import make_subplots

    plot = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.65, 0.35], vertical_spacing=0.06)
    plot.update_layout(height=440)
    for (name, both), color in zip(courses.items(), colors, strict=False):
        for line, y in enumerate(both, start=1):
            drawn = {"name": name, "legendgroup": name, "showlegend": line == 1, "line_color": color}
            plot.add_scatter(x=[*range(1, len(y) + 1)], y=y, row=line, col=1, **drawn)
    plot.update_xaxes(title_text="task", row=2).update_yaxes(title_text=upper, row=1)
    return plot.update_yaxes(title_text="dead units %", row=2)


SIZES = {
    "before": 25,
    "after": 8,
    "seeds": range(300, 310),
    "data": {"digits": 600, "batch": 60, "epochs": 12},
}
SMOKE = {"before": 2, "after": 2, "seeds": range(300, 302), "data": {"digits": 120, "batch": 60, "epochs": 2}}
CODE = ("relucid.convert.to_crelu",)
STUDY = Study(
    name="mend",
    title="A ReLU network that has stopped learning, mended in eight ways: the share of labels fitted afterwards",
    run=RUNNER,
    rows={row: {"way": way} for row, way in WAYS.items()},
    columns={
        **{fitted(rate): Column("fitted", {"rate": rate}, best="highest", digits=1) for rate in RATES},
        **{kept(rate): Column("kept", {"rate": rate}, best="highest", digits=1) for rate in RATES},
        MOVED: Column("moved", {"rate": RATES[0]}, best=None, digits=6),
        "dead %": Column("dead", {"rate": RATES[0]}, best=None, digits=0),
        "parameters": Column("parameters", {"rate": RATES[0]}, best=None, digits=0),
    },
    scales={"cpu": Scale(SIZES, seconds=30), "smoke": Scale(SMOKE, seconds=2)},
    repeat={},
    protocol=(
        "Networks of three hidden layers of 64 ReLUs learn 25 tasks, random labels of the same 600 digits, for 12 "
        "epochs each in batches of 60, with Adam, whose state is kept from task to task. Then they are mended, and "
        "learn eight more tasks, the same for all. Fitted: the share of labels fitted at the end of a task, mean "
        "over these eight. Kept: the share of the 25th task's labels that is right immediately after mending. "
        "Converted: every ReLU becomes CReLU, new weights are zero, Adam keeps its state or starts anew. Where it "
        "keeps its state, the moments of new weights start at zero late in training, which makes their first steps "
        "up to three times as long. Re-initialised: units with the same output for 256 inputs get new incoming "
        "weights; their outgoing weights and Adam's moments are set to zero, once. Injection: the old network is "
        "frozen, and a new one learns, minus its frozen copy. Ten seeds; ± is the standard error. Claims, seeds, "
        "sizes and rates were fixed before any run with these seeds. Labels mean nothing here: what is shown is the "
        "ability to learn."
    ),
    baseline=UNCHANGED,
    paired=True,
    claims=(
        Claim(
            "mend",
            "Converted by to_crelu, with its optimizer's state or without, a network learns the following tasks better "
            "than unchanged, with a new optimizer, with its dead units re-initialised, or with plasticity injected.",
            (Higher((CONVERTED, WITHOUT), than=KEEP, columns=FITTED),),
            remark=remark,
            code=CODE,
        ),
        Claim(
            "mend: outputs",
            f"The conversion changes no output by more than {ROUNDING:g}.",
            (AtMost((CONVERTED, WITHOUT), MOVED, ROUNDING),),
            kind="construction",
            code=CODE,
        ),
        *(
            Claim(
                f"mend: against {new}",
                f"The converted network learns the following tasks better than {new}{same}, which has forgotten "
                "everything.",
                (Higher(CONVERTED, than=row, columns=FITTED),),
                code=CODE,
            )
            for new, same, row in (
                ("a new ReLU network", "", NEW),
                ("a new CReLU network", " of its size", NEW_CRELU),
            )
        ),
        Claim(
            "mend: the optimizer's state",
            "A converted network learns the following tasks better if Adam keeps its state.",
            (Higher(CONVERTED, than=WITHOUT, columns=FITTED),),
            code=CODE,
        ),
    ),
    figures=figures,
)
STUDIES = (STUDY,)
