"""Ours: CReLU, geometric weights and heavy ball in one network, and each alone. Does the gain add up?"""

import math
from typing import Any

from relucid.data import holdout
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.structure.images import AUGMENT, RECIPE, build, load, parameters
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import LEVEL, Cell, Table, p_value
from relucid.studies.words import Difference, difference
from relucid.train import Machine, Recipe, fit

CRELU, GEOMETRIC, HEAVY_BALL = (
    {"activation": "crelu"},
    {"weights": "geometric", "norm": "input_mean"},
    {"propagation": "heavy_ball"},
)
# A block of c channels has 18 c^2 weights, with CReLU inside 27 c^2: so many channels make as many weights.
NARROWER = math.sqrt(2 / 3)
NONE, ALL = "none: ReLU, standard weights, batch norm, residual", "all three"
SINGLE: dict[str, dict[str, Any]] = {
    "CReLU": {"design": CRELU, "channels": NARROWER},
    "geometric weights, input mean norm": {"design": GEOMETRIC},
    "heavy ball": {"design": HEAVY_BALL},
}
ERROR = "test error %"


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network; its error on the held-out part, by which the rate is chosen, and on the test set."""
    data = load(config)
    backbone = config["residual"]
    backbone = backbone | {"width": backbone["width"] * config["channels"]}
    network = build({**config, "residual": backbone}, data)
    rest, held = holdout(data.train, config["share"], config["seed"])
    recipe = Recipe(**config["recipe"], lr=config["lr"])
    fitted = fit(network, rest, recipe, held, seed=config["seed"], machine=machine)
    metrics = {
        "error": fitted.evaluate(data.test)["error"],
        "val_error": fitted.history["val_error"][-1],
        "parameters": parameters(network),
    }
    return Result(metrics, fitted.history)


RUNNER = Runner("together", run)


def verdict(table: Table) -> str:
    """The gain of each choice, their sum, the gain of all together, and whether the two differ."""
    cells = {row: table.cells[row, ERROR] for row in table.study.rows}
    alone = {row: difference(cells[NONE], cells[row]) for row in SINGLE}
    joint = difference(cells[NONE], cells[ALL])
    total = sum(gain.mean for gain in alone.values())
    rest = _interaction(cells, joint.mean - total)
    if rest.chance is None:
        said = "which one run each cannot tell from noise"
    else:
        said = (
            "no more than noise: nothing speaks against their adding up"
            if rest.chance >= LEVEL
            else "more than noise: they do not add up"
        )
    listed = "; ".join(f"{row} {gain}" for row, gain in alone.items())
    return (
        f"Gain over none, in percentage points of test error: {listed}; all three {joint}. The single gains add up to "
        f"{total:+.2f}; the joint gain differs from that by {rest}, {said}."
    )


def _interaction(cells: dict[str, Cell], mean: float) -> Difference:
    """The joint gain less the sum of the single ones, by a t-test with the degrees of freedom of one cell."""
    figures = {row: cell.figure for row, cell in cells.items()}
    # It is 2 none - all + the three: its variance is the sum of theirs, that of none four times.
    parts = [(2 if row == NONE else 1, figure) for row, figure in figures.items() if figure is not None]
    if len(parts) < len(figures):
        return Difference(mean, None, None)
    error = math.sqrt(sum((times * each[1]) ** 2 for times, each in parts))
    count = min(each[2] for _, each in parts)
    return Difference(mean, error, p_value((mean, error, count), (0.0, 0.0, math.inf)))


STUDY = Study(
    name="together",
    title="CReLU, geometric weights and heavy ball: each alone and all together in one residual network on CIFAR-10",
    run=RUNNER,
    rows={
        NONE: {"design": {}},
        **SINGLE,
        ALL: {"design": {**CRELU, **GEOMETRIC, **HEAVY_BALL}, "channels": NARROWER},
    },
    columns={
        ERROR: Column("error"),
        "parameters": Column("parameters", best=None, digits=0),
    },
    scales={
        "full": Scale({"residual": {"depth": 56, "width": 1.0}}, seconds=80_000),
        "small": Scale(
            {
                "images": 5000,
                "pool": 2,
                "residual": {"depth": 14, "width": 0.5},
                "recipe": {"epochs": 10},
            },
            {"lr": [0.03, 0.1], "seed": range(3)},
            seconds=30,
        ),
        "smoke": Scale(
            {
                "data": "digits",
                "images": 100,
                "residual": {"depth": 8, "width": 0.25},
                "recipe": {"epochs": 1, "augment": []},
            },
            {"lr": [0.03, 0.1], "seed": [0, 1]},
            seconds=1,
        ),
    },
    config={
        "data": "cifar10",
        "family": "residual",
        "residual": {"name": "resnet_cifar"},
        "channels": 1.0,
        "share": 0.1,
        "recipe": {name: value for name, value in RECIPE.items() if name != "lr"} | {"augment": AUGMENT},
    },
    choose={"lr": [0.01, 0.03, 0.1, 0.3]},
    protocol=(
        "One backbone, one budget: the same images and epochs, and channels chosen so that the number of parameters is "
        "about the same. Learning rate chosen for each row on a tenth of the training images, held out; the test set "
        "plays no part in it. Full scale: ResNet-56 on CIFAR-10 for 300 epochs. Small scale: ResNet-14 of half the "
        "width, 10 epochs, the first 5,000 images averaged over 2x2 pixels, learning rates 0.03 and 0.1."
    ),
    claim="The three papers change different things; if they are independent, their gains add up (our question).",
    verdict=verdict,
    baseline=NONE,
    figures="relucid.report.structure:training",
)
STUDIES = (STUDY,)
