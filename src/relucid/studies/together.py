"""Ours: CReLU, geometric weights and heavy ball in one network, and each alone. Does the gain add up?"""

import math
from typing import Any

from relucid.data import holdout
from relucid.studies.run import Result
from relucid.studies.structure.images import AUGMENT, RECIPE, build, load, parameters
from relucid.studies.structure.verdicts import Difference, difference
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import LEVEL, Table, p_value
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


def verdict(table: Table) -> str:
    """The gain of each choice, their sum, the gain of all together, and whether the two differ."""
    cells = {row: table.cells[row, ERROR] for row in table.study.rows}
    alone = {row: difference(cells[NONE], cells[row]) for row in SINGLE}
    joint = difference(cells[NONE], cells[ALL])
    listed = ", ".join(f"{row} {gain}" for row, gain in alone.items())
    total = sum(gain.mean for gain in alone.values())
    errors = {row: cell.error for row, cell in cells.items()}
    if any(error is None for error in errors.values()):
        rest, said = Difference(joint.mean - total, None, False), "one run each says nothing of chance"
    else:
        # joint - total is 2 none - all + the three: its variance is the sum of theirs, that of none four times.
        variance = sum((error or 0.0) ** 2 * (4 if row == NONE else 1) for row, error in errors.items())
        runs = min(len(cell.values) for cell in cells.values())
        chance = p_value((joint.mean - total, math.sqrt(variance), runs), (0.0, 0.0, math.inf))
        rest = Difference(joint.mean - total, math.sqrt(variance), chance < LEVEL)
        said = f"{'more than' if rest.significant else 'within what'} chance explains (t-test, 5%)"
    return (
        f"Gain over none, in percentage points of test error: {listed}; all three {joint}. The single gains add up to "
        f"{total:+.2f}; the joint gain differs from that by {rest}, {said}."
    )


STUDY = Study(
    name="together",
    title="CReLU, geometric weights and heavy ball: each alone and all together in one residual network on CIFAR-10",
    run=run,
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
