"""The quickstart: a small network for handwritten digits, examined, converted and trained on, in minutes."""

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relucid.convert import Conversion, to_crelu, to_geometric, to_heavy_ball
from relucid.data import digits
from relucid.inspect import Examination, examine
from relucid.inspect.examination import Layer
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table
from relucid.train import Machine, Recipe, fit

CONVERSIONS: dict[str, Callable[..., Conversion]] = {
    "heavy_ball": to_heavy_ball,
    "crelu": to_crelu,
    "geometric": to_geometric,
}
UNCHANGED = "ReLU"


class Digits(nn.Module):
    """A small residual network in plain PyTorch, (N, 1, 8, 8) -> (N, 10): it stands for one of the reader's own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
            for _ in range(3)
        )
        self.last = nn.Linear(channels * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the ten digits."""
        x = self.first(x).relu()
        for block in self.blocks:
            x = (x + block(x)).relu()
        scores: Tensor = self.last(functional.adaptive_max_pool2d(x, 2).flatten(1))
        return scores


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train a ReLU network, examine it, convert it, and train it on; it is tested before and after that."""
    seed, data = config["seed"], digits(config["seed"])
    train, test = data.test, data.train  # a fifth to train on: with more, errors are too few to be compared
    torch.manual_seed(seed)
    network = Digits(config["channels"])
    recipe = Recipe(epochs=config["before"], lr=0.05, batch_size=64, clip=1.0)
    base = fit(network, train, recipe, seed=seed, machine=machine.within("before"))
    images = base.moments.normalize(train.inputs)
    found = examine(network, images[:1], [images])

    converted: nn.Module = network
    for name in config["convert"]:
        converted = CONVERSIONS[name](converted, images[:16]).model
    before, tested = base.predict(test), base.evaluate(test)
    after = replace(base, network=converted).predict(test)

    started = process_time()
    recipe = replace(recipe, epochs=config["after"], steps=(0.5, 0.75))
    fitted = fit(converted, train, recipe, seed=seed + 1, machine=machine.within("after"))
    metrics = {
        "error_before": tested["error"],
        "error": fitted.evaluate(test)["error"],
        "parameters": sum(parameter.numel() for parameter in converted.parameters()),
        "seconds": process_time() - started,
        "difference": 1e6 * float((after - before).abs().max() / before.abs().max()),
        **{f"{name}_before": share for name, share in _shares(found).items()},
        **_shares(examine(converted.cpu(), images[:1], [images])),
    }
    return Result(metrics, fitted.history, _activity(found))


RUNNER = Runner("quickstart", run)


def _shares(found: Examination) -> dict[str, float]:
    """Percentages of units that are dead, and of filters that have an opposite partner."""
    dead = torch.cat([_dead(layer) for layer in found.layers])
    pairings = {name: each for layer in found.layers for name, each in layer.pairing.items()}
    paired = torch.cat([each.paired for each in pairings.values()])
    return {"dead": 100 * float(dead.double().mean()), "paired": 100 * float(paired.double().mean())}


def _dead(layer: Layer) -> Tensor:
    """Which units are never on; one that keeps both phases is dead only if it is always 0."""
    activity = layer.activity
    assert activity is not None  # it was examined on data
    both = layer.rectified.kind in ("crelu", "avr")
    return activity.dead & (activity.inactive == 0) if both else activity.dead


def _activity(found: Examination) -> dict[str, np.ndarray]:
    """Of every unit: its layer, and the share of inputs on which it is on."""
    active = {layer.name: layer.activity.active.numpy() for layer in found.layers if layer.activity}
    names = [name for name, shares in active.items() for _ in shares]
    return {"layer": np.array(names), "active": np.concatenate(list(active.values()))}


def verdict(table: Table) -> str:
    """What the conversions kept, what the examination found, and which networks ended better or worse."""
    moved = max(_mean(table, row, "moved 10⁻⁶") for row in table.study.rows)
    error, dead, paired = (
        mean(run["metrics"][name] for run in table.runs if run["state"] == "finished")
        for name in ("error_before", "dead_before", "paired_before")
    )
    words = {True: "better", False: "worse"}
    cells = {row: table.cells[row, "test error %"] for row in table.study.rows}
    told = [
        f"{row} ended {words[cell.better]} ({cell.mean:.2f} %)"
        for row, cell in cells.items()
        if cell.better is not None
    ]
    rest = [row for row, cell in cells.items() if cell.better is None and row != UNCHANGED]
    chance = (
        "cannot be told from one seed" if cells[UNCHANGED].error is None else "is within what chance explains"
    )
    if rest:
        told.append(f"the difference that {_list(rest)} made {chance}")
    return (
        f"Conversions moved no output by more than {moved:.1f} millionths of the largest one. The ReLU network erred "
        f"on {error:.1f} % of the test digits before them, {dead:.1f} % of its units were dead and {paired:.1f} % of "
        f"its filters had an opposite partner. Trained on unchanged it errs on {cells[UNCHANGED].mean:.2f} %; of the "
        f"converted ones, {'; '.join(told)}."
    )


def _mean(table: Table, row: str, column: str) -> float:
    value = table.cells[row, column].mean
    assert value is not None  # of a complete table
    return value


def _list(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


STUDIES = (
    Study(
        name="quickstart",
        title="A trained ReLU network, converted in three ways and trained on: handwritten digits",
        run=RUNNER,
        rows={
            UNCHANGED: {"convert": []},
            "CReLU": {"convert": ["crelu"]},
            "geometric": {"convert": ["geometric"]},
            "heavy ball": {"convert": ["heavy_ball"]},
            "all three": {"convert": ["heavy_ball", "crelu", "geometric"]},
        },
        columns={
            "test error %": Column("error"),
            "parameters": Column("parameters", best=None, digits=0),
            "CPU seconds": Column("seconds", best=None, digits=1),
            "moved 10⁻⁶": Column("difference", best=None, digits=1),
            "dead %": Column("dead", best=None, digits=1),
            "paired %": Column("paired", best=None, digits=1),
        },
        scales={
            "small": Scale({"before": 6, "after": 30, "channels": 16}, seconds=8),
            "smoke": Scale({"before": 1, "after": 2, "channels": 4}, {"seed": [0]}, seconds=2),
        },
        baseline=UNCHANGED,
        claim="A trained network can be converted without changing what it computes, and trained on from there.",
        verdict=verdict,
        figures="relucid.report.quickstart:figures",
        protocol=(
            "A residual network of seven convolutions is trained for 6 epochs, converted, and trained on for 30, by "
            "the same recipe in all rows. A seed decides the split into 360 training and 1437 test digits, the "
            "initial weights and the order of examples: until they are converted, the networks of a seed are one and "
            "the same. Moved: the largest difference of an output by conversion, as a share of the largest output. "
            "Dead units and filters paired with an opposite one are those of the network trained on; CPU seconds are "
            "those of training on. The recipe was settled in a few trials with seeds 0 and 1, test errors in sight; "
            "gradients are clipped in all rows because without that, at this rate, CReLU diverged in one."
        ),
    ),
)
