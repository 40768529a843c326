"""Ours: networks that have stopped learning are repaired, on two streams of tasks; what each repair brings back.

Written before any run that is recorded: ways, strengths, rates, seeds, claims and their directions.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    at_most,
    higher,
    lower,
    runner,
)
from relucid_reproductions.ours._bandit import all_digits
from relucid_reproductions.ours._said import failures, finished, near, settings
from relucid_reproductions.ours._stack import Architecture, Stack

NEWCOMERS = 500_000  # added to the seeds of networks that come later
CLASSES = 10
CONVERSION = Architecture("crelu")


@dataclass(frozen=True)
class Way:
    """How networks are repaired.

    Args:
        at: what is done once: "" for nothing, "revive", "convert", "revive and convert", "inject", "grow" or "new".
        forget: whether the optimizer starts anew.
        activation: of a new network.
        units: of a new or grown network, per hidden layer.
        redo: at the repair and after every task, units active at most this share of their layer's mean are redrawn.
        perturb: at the repair and after every task, the share of a new network in the weights.
        anchor: from now on, the strength of L2 towards the network's first weights.
    """

    at: str = ""
    forget: bool = False
    activation: str = "relu"
    units: int = 64
    redo: float = 0.0
    perturb: float = 0.0
    anchor: float = 0.0


class Learners:
    """Networks of one seed each that learn task after task; all ways with a seed see the same tasks.

    Args:
        stream: "labels", the same digits with new random labels; or "pixels", digits with their pixels permuted, each
            seen once.
        way: how they will be repaired.
        rate: of Adam.
        seeds: one per network.
        digits: how many are learned; of permuted pixels, the others are held out.
        batch: digits per step.
        epochs: per task.
    """

    def __init__(
        self, stream: str, way: Way, rate: float, seeds: Sequence[int], digits: int, batch: int, epochs: int
    ) -> None:
        self.stream, self.way, self.rate, self.seeds = stream, way, rate, seeds
        self.digits, self.batch, self.epochs = digits, batch, epochs
        self.draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.rows = torch.arange(len(seeds)).unsqueeze(1)
        self.stack = self._stack(Architecture(), later=CONVERSION if "convert" in way.at else None)
        #: of an injected network, the old one and the copy of the new one
        self.frozen: tuple[Stack, ...] = ()
        data = all_digits()
        order = self._drawn(lambda g: torch.randperm(len(data), generator=g))
        self.inputs, self.targets = data.inputs[order], data.targets[order]
        if stream == "labels":
            self.inputs = self.inputs[:, :digits]
        self.shown = self.inputs

    def _stack(self, architecture: Architecture, first: int = 0, later: Architecture | None = None) -> Stack:
        seeds = [first + seed for seed in self.seeds]
        return Stack(architecture, seeds, [self.rate] * len(seeds), later=later)

    def _drawn(self, draw: Any) -> Tensor:
        return torch.stack([draw(generator) for generator in self.draws])

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs (M, B, classes)."""
        if not self.frozen:
            return self.stack(x)
        with torch.no_grad():
            old, copy = (frozen(x) for frozen in self.frozen)
        return self.stack(x) + old - copy

    def begin_task(self) -> None:
        """Draw the next task."""
        if self.stream == "labels":
            self.targets = self._drawn(lambda g: torch.randint(CLASSES, (self.digits,), generator=g))
            self.shown = self.inputs
        else:
            pixels = self._drawn(lambda g: torch.randperm(self.inputs.shape[2], generator=g))
            self.shown = self.inputs.gather(2, pixels.unsqueeze(1).expand_as(self.inputs))

    def batches(self) -> Iterator[Tensor]:
        """The digits of every step of a task, (M, B)."""
        for _ in range(self.epochs):
            order = self._drawn(lambda g: torch.randperm(self.digits, generator=g))
            yield from order.split(self.batch, 1)

    def learn(self) -> None:
        """Learn a task."""
        self.begin_task()
        for chosen in self.batches():
            outputs = self(self.shown[self.rows, chosen])
            losses = cross_entropy(outputs.transpose(1, 2), self.targets[self.rows, chosen], reduction="none")
            self.stack.step(losses.mean(1))

    @torch.no_grad()
    def score(self) -> Tensor:
        """The percentage of labels fitted, or of digits held out that are classified correctly, (M,)."""
        tested = slice(None) if self.stream == "labels" else slice(self.digits, None)
        right = self(self.shown[:, tested]).argmax(2) == self.targets[:, tested]
        return 100 * right.double().mean(1)

    @torch.no_grad()
    def worst(self) -> Tensor:
        """The percentage of dead units of the worst layer, (M,)."""
        return self.stack.dead_share(self.shown[:, : self.digits]).amax(1)

    @torch.no_grad()
    def repair(self) -> None:
        """Repair all networks."""
        way, shown = self.way, self.shown[:, : self.digits]
        if way.at == "grow":
            self.stack = grown(self.stack, self._stack(Architecture(units=way.units), NEWCOMERS))
        if way.at in ("new", "inject"):
            old, self.stack = self.stack, self._stack(Architecture(way.activation, way.units), NEWCOMERS)
            self.frozen = (old, deepcopy(self.stack)) if way.at == "inject" else ()
        self.stack.anchor = way.anchor
        for place in range(len(self.seeds)):
            if "revive" in way.at:
                self.stack.revive(place, shown)
            if "convert" in way.at:
                self.stack.open(place)
            if way.forget:
                self.stack.forget(place)
        self.maintain()

    @torch.no_grad()
    def maintain(self) -> None:
        """Do what is done after every task."""
        if self.way.redo:
            self.stack.redo(self.shown[:, : self.digits], self.way.redo)
        for place in range(len(self.seeds)) if self.way.perturb else ():
            self.stack.perturb(place, self.way.perturb)
            if self.way.forget:
                self.stack.forget(place)


@torch.no_grad()
def grown(old: Stack, wider: Stack) -> Stack:
    """Put networks into wider ones, whose other units have outgoing weights of 0: outputs and all moments stay."""
    units, more = old.architecture.units, wider.architecture.units
    for mine, theirs in ((wider.flat, old.flat), (wider.first, old.first), (wider.second, old.second)):
        for k, (rows, columns) in enumerate(old.shapes):
            wider.view(mine, k)[:, :rows, :columns] = old.view(theirs, k)
    wider.taken.copy_(old.taken)
    for layer in range(old.architecture.layers):
        for place in range(len(old.flat)):
            wider.draw(place, layer, torch.arange(units, more))
    return wider


@runner("repair")
def run(
    stream: str,
    way: Mapping[str, Any],
    rate: float,
    seeds: Sequence[int],
    before: int,
    after: int,
    **data: int,
) -> Mapping[str, Any]:
    """Let ReLU networks learn some tasks, repair them, and let them learn others; values are lists by seed."""
    learners = Learners(stream, Way(**way), rate, seeds, **data)
    scores, dead = [], []

    def learn(tasks: int) -> None:
        for task in range(tasks):
            learners.learn()
            scores.append(learners.score())
            dead.append(learners.worst())
            if len(scores) > before and task + 1 < tasks:
                learners.maintain()

    learn(before)
    with torch.no_grad():
        outputs = learners(learners.shown)
        learners.repair()
        moved = (learners(learners.shown) - outputs).abs().flatten(1).amax(1)
    kept = learners.score()
    learn(after)
    return {
        "fitted": torch.stack(scores[before:]).mean(0).tolist(),
        "first": scores[0].tolist(),
        "before": torch.stack(scores[max(0, before - 5) : before]).mean(0).tolist(),
        "kept": kept.tolist(),
        "moved": moved.tolist(),
        "worst": dead[before - 1].tolist(),
        "parameters": int(learners.stack.mask[0].sum()),
        "history": {
            "fitted": torch.stack(scores).mean(1).tolist(),
            "worst": torch.stack(dead).mean(1).tolist(),
        },
    }


UNCHANGED, FORGOTTEN, REVIVED, INJECTED = "unchanged", "new optimizer", "revived", "plasticity injection"
GROWN, REDO = "grown to 88 ReLU units", "ReDo, every task"
ANCHORED = {s: f"L2 towards the start, {s:g}" for s in (5e-4, 5e-3)}
PERTURBED = {
    (share, forget): f"shrink and perturb by {share:g}, every task, optimizer {'new' if forget else 'kept'}"
    for share in (0.5, 0.8)
    for forget in (False, True)
}
CONVERTED, BOTH = "converted", "revived and converted"
CONVERTED_NEW, BOTH_NEW = (f"{row}, new optimizer" for row in (CONVERTED, BOTH))
NEW, NEW_WIDER, NEW_CRELU = (f"new network: {what}" for what in ("ReLU", "ReLU, 88 units", "CReLU"))
WAYS: Mapping[str, Way] = {
    UNCHANGED: Way(),
    FORGOTTEN: Way(forget=True),
    REVIVED: Way("revive"),
    REDO: Way(redo=0.1),
    **{row: Way(perturb=share, forget=forget) for (share, forget), row in PERTURBED.items()},
    **{row: Way(anchor=s) for s, row in ANCHORED.items()},
    INJECTED: Way("inject"),
    GROWN: Way("grow", units=88),
    CONVERTED: Way("convert"),
    CONVERTED_NEW: Way("convert", forget=True),
    BOTH: Way("revive and convert"),
    BOTH_NEW: Way("revive and convert", forget=True),
    NEW: Way("new"),
    NEW_WIDER: Way("new", units=88),
    NEW_CRELU: Way("new", activation="crelu"),
}
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = range(400, 410)
STREAMS = {"labels": "random labels", "pixels": "permuted pixels"}
SIZES: Mapping[str, dict[str, Any]] = {
    "labels": {"before": 25, "after": 8, "digits": 600, "batch": 60, "epochs": 12},
    "pixels": {"before": 40, "after": 8, "digits": 1500, "batch": 16, "epochs": 1},
}
SMOKE = {"before": 2, "after": 2, "digits": 60, "epochs": 1}


def at(rate: float) -> str:
    """The label of the column that shows how tasks are learned after the repair."""
    return f"afterwards %, rate {rate:g}"


def columns() -> dict[str, Column]:
    """How tasks are learned afterwards at every rate, and at the large ones what there was to repair."""
    shown = {at(rate): Column("fitted", {"rate": rate}, best="highest", digits=1) for rate in RATES}
    for rate in RATES[1:]:
        shown[f"last task kept %, rate {rate:g}"] = Column("kept", {"rate": rate}, best="highest", digits=1)
    at_large = {"rate": RATES[-1]}
    moved = Column("moved", {"rate": RATES[1]}, best=None, digits=6)
    return {
        **shown,
        "largest change of an output": moved,
        "parameters": Column("parameters", at_large, best=None, digits=0),
    }


def claims(stream: str) -> list[Claim]:
    """What is predicted. Directions follow pilots on seeds 0 to 4."""
    where = STREAMS[stream]
    lossy = [at(rate) for rate in RATES[1:]] if stream == "labels" else [at(RATES[-1])]
    strong = ANCHORED[5e-3]
    keeping = (UNCHANGED, FORGOTTEN, REVIVED, ANCHORED[5e-4], INJECTED, GROWN)
    others = (*keeping, REDO, *PERTURBED.values()) + ((strong,) if stream == "labels" else ())
    news = [
        Contrast(Quantity(f"{NEW_CRELU} minus {BOTH}, {column}", [Cell(NEW_CRELU, column), Cell(BOTH, column)],
                          lambda new, old: new - old), 10.0, "lower")
        for column in lossy
    ]  # fmt: skip
    stated = [
        Claim(f"gate, {where}", "Unchanged, the old network learns the next tasks worse than a new one of its size.",
              lower(UNCHANGED, NEW, lossy)),
        *(
            Claim(f"{row}, {where}",
                  f"{row.capitalize()}, a network learns the following tasks better than with any other repair that "
                  f"keeps what it knows{'' if stream == 'labels' else ' but L2 of the larger strength'}, and better "
                  "than with units redrawn, or shrunk and perturbed, after every task.",
                  higher(row, others, lossy))
            for row in (CONVERTED, BOTH)
        ),
        Claim(f"old and new CReLU, {where}",
              "Revived and converted, a network learns the following tasks worse than a new CReLU network of its "
              "size by less than 10 points.", news),
        Claim(f"outputs, {where}", "Neither conversion nor revival changes an output by more than 0.001.",
              at_most((CONVERTED, BOTH, REVIVED), 1e-3, "largest change of an output"),
              kind="construction"),
    ]  # fmt: skip
    if stream == "labels":
        stated.append(Claim(f"old and new ReLU, {where}",
                            "Revived and converted, a network learns the following tasks better than a new ReLU "
                            "network of its first size, or with as many parameters as it has now.",
                            higher(BOTH, (NEW, NEW_WIDER), lossy)))  # fmt: skip
    return stated


def study(stream: str) -> Study:
    """All ways on one stream."""
    return Study(
        f"repair-{stream}",
        f"ReLU networks that have learned {SIZES[stream]['before']} tasks of {STREAMS[stream]}, repaired: how they "
        "learn the eight that follow",
        run,
        rows={row: settings("way", way) for row, way in WAYS.items()},
        columns=columns(),
        config={"stream": stream, "seeds": SEEDS},
        scales={
            "cpu": Scale(SIZES[stream]),
            "smoke": Scale({**SIZES[stream], **SMOKE, "seeds": [400, 401]}, columns=[at(RATES[-1])]),
        },
        repeat={},
        claims=claims(stream),
    )  # fmt: skip


def found_before(results: Results) -> list[str]:
    """What the networks learned of their first task and of the last five before the repair, and the worst layer."""
    sentences = []
    for rate in RATES:
        first, before, worst = (
            results[UNCHANGED, at(rate), metric].mean() for metric in ("first", "before", "worst")
        )
        sentences.append(
            f"at {rate:g} {first:.0f}%, then {before:.0f}%, {worst:.0f}% of the worst layer's units dead"
        )
    return sentences


def fitted(results: Results, row: str) -> str:
    """What a repair brought at the middle rate, as text."""
    return f"{results[row, at(RATES[1])].mean():.0f}%"


def rivals(results: Results, rate: float) -> str:
    """What else was done to the old network, or instead of it, that is about as good as to convert it, or better."""
    return near(results, CONVERTED, at(rate), [way for way in WAYS if not WAYS[way].at.endswith("convert")])


STUDIES = [study(stream) for stream in STREAMS]

__all__ = ["STUDIES", "failures", "finished"]  # the latter for the page
