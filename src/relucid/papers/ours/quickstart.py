"""The quickstart: a small network for handwritten digits, examined, converted and trained on, in minutes."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
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
from relucid.report.figure import Figure
from relucid.report.study import curves
from relucid.studies.expect import Claim, Lower
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.store import Store
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


def remark(table: Table) -> str:
    """What the conversions kept, and what the examination found before them."""
    moved = max(_mean(table, row, "moved 10⁻⁶") for row in table.study.rows)
    error, dead, paired = (
        fmean(run["metrics"][name] for run in table.finished())
        for name in ("error_before", "dead_before", "paired_before")
    )
    return (
        f"Conversions moved no output by more than {moved:.1f} millionths of the largest one. The ReLU network erred "
        f"on {error:.1f} % of the test digits before them, {dead:.1f} % of its units were dead and {paired:.1f} % of "
        "its filters had an opposite partner."
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """How often the units were on before conversion, and how training went on after it."""
    # The networks of a seed are the same before conversion: one run of each will do.
    keys = {run["config"]["seed"]: run["key"] for run in table.runs if run["state"] == "finished"}
    return [activity([store.arrays(key) for key in keys.values()]), *curves(table, store)]


def activity(found: list[dict[str, np.ndarray]]) -> Figure:
    """The share of inputs on which each unit is on, layer by layer, the units of all seeds together."""
    layers, active = (np.concatenate([arrays[name] for arrays in found]) for name in ("layer", "active"))
    import plotly.graph_objects as go

    plot = go.Figure(
        go.Box(x=layers, y=100 * active, boxpoints="all", pointpos=0, marker_size=4),
        {"xaxis_title": "layer", "yaxis_title": "% of inputs", "yaxis_range": [-5, 105], "height": 340},
    )
    alt = (
        f"A box a layer. Of {len(active)} units {(active == 0).sum()} are never on and {(active == 1).sum()} always; "
        f"half of them are on for at least {100 * np.median(active):.0f} % of the inputs."
    )
    return Figure("How often the units are on before conversion", alt, plot)


def _mean(table: Table, row: str, column: str) -> float:
    value = table.cells[row, column].mean
    assert value is not None  # of a complete table
    return value


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
        paired=True,
        claims=(
            Claim(
                "quickstart",
                "A network can be converted without changing what it computes, and trained on from there is better.",
                (
                    Lower(
                        ("CReLU", "geometric", "heavy ball", "all three"),
                        than=UNCHANGED,
                        columns="test error %",
                    ),
                ),
                remark=remark,
                code=("relucid.convert.to_crelu",),
            ),
        ),
        figures=figures,
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
