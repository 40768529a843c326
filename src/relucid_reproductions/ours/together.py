"""Ours: CReLU, geometric weights and heavy ball in one network, and each alone. Does the gain add up?"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    lower,
    merge,
    runner,
    tuning,
)
from relucid.report.plots import curves
from relucid.train import Machine
from relucid_reproductions.images import evaluated, held_out
from relucid_reproductions.structure.images import AUGMENT, RECIPE, train

# A block of c channels has 18 c^2 weights, with CReLU inside 27 c^2: so many channels make as many weights.
NARROWER = math.sqrt(2 / 3)
NONE, ALL = "none: ReLU, standard weights, batch norm, residual", "all three"
SINGLE: dict[str, dict[str, Any]] = {
    "CReLU": {"design": {"activation": "crelu"}, "channels": NARROWER},
    "geometric weights, input mean norm": {"design": {"weights": "geometric", "norm": "input_mean"}},
    "heavy ball": {"design": {"propagation": "heavy_ball"}},
}
# Pairs of the three: with those above and below, all eight combinations.
PAIRS = {f"{a} + {b}": (a, b) for a, b in combinations(SINGLE, 2)}
ROWS: dict[str, dict[str, Any]] = {
    NONE: {"design": {}},
    **SINGLE,
    **{row: merge(SINGLE[a], SINGLE[b]) for row, (a, b) in PAIRS.items()},
    ALL: merge(*SINGLE.values()),
}
FIVE = {row: config for row, config in ROWS.items() if row not in PAIRS}
RATES = (0.03, 0.1, 0.3)
CHOSEN = 0.1  # of every row, by the held-out errors of together-rates
ERROR = "test error %"
MARGIN = 1.0  # point of test error


@runner("together")
def run(
    residual: Mapping[str, Any], channels: float, recipe: Mapping[str, Any], lr: float,
    held_out_only: bool = False, machine: Machine | None = None, **config: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train one network; its error on the held-out part, by which the rate is chosen, and on the test set."""
    backbone = merge(residual, {"width": residual["width"] * channels})
    fitted, data = train(**config, residual=backbone, recipe={**recipe, "lr": lr}, machine=machine)
    return held_out(fitted) | ({} if held_out_only else evaluated(fitted, data, "error"))


def shortfall() -> Quantity:
    """By how much the joint gain falls short of the sum of the single ones."""

    def short(none: pd.Series, joint: pd.Series, *single: pd.Series) -> Any:
        return sum(none - alone for alone in single) - (none - joint)

    cells = [Cell(row, ERROR) for row in (NONE, ALL, *SINGLE)]
    return Quantity("sum of single gains less joint gain", cells, short)


def interaction(pair: str) -> Quantity:
    """By how much the gain of two choices falls short of the sum of their gains, averaged over the third choice.

    This is the interaction of two factors in a 2 x 2 x 2 factorial.
    """
    a, b = PAIRS[pair]
    third = next(row for row in SINGLE if row not in (a, b))
    with_third = [next(row for row, both in PAIRS.items() if {*both} == {one, third}) for one in (a, b)]

    def short(*errors: pd.Series) -> Any:
        sides = errors[:4], errors[4:]
        return sum(neither - one - other + both for neither, one, other, both in sides) / 2

    cells = [Cell(row, ERROR) for row in (NONE, a, b, pair, third, *with_third, ALL)]
    return Quantity(f"{pair}: sum of gains less joint gain", cells, short)


def gains(results: Results) -> tuple[float, float]:
    """The joint gain, and the sum of the single ones."""
    none, joint, *single = (results[row, ERROR].mean() for row in (NONE, ALL, *SINGLE))
    return none - joint, sum(none - alone for alone in single)


def by_rate(results: Results, row: str) -> dict[str, tuple[float, float]]:
    """The mean held-out and test errors of a row at every rate that its own runs tried."""
    known = [results.records.get(planned.run.key) for planned in results.tried[row, ERROR]]
    runs = pd.DataFrame([{"lr": run["config"]["lr"], **run["metrics"]} for run in known if run])
    means = runs.groupby("lr")[["val_error", "error"]].mean()
    return {f"{rate:g}": (held_out, test) for rate, held_out, test in means.itertuples()}


def residual(depth: int, width: float) -> dict[str, Any]:
    """The size of the network."""
    return {"residual": {"depth": depth, "width": width}}


TOGETHER = Study(
    "together",
    "CReLU, geometric weights and heavy ball: each alone and all together in one residual network on CIFAR-10",
    run,
    ROWS,
    {ERROR: Column("error"), "parameters": Column("parameters", best=None, digits=0)},
    {
        "full": Scale(residual(56, 1.0)),
        "cpu": Scale(
            {"pool": 2, **residual(14, 0.5), "recipe": {"epochs": 12, "augment": ["flip"]}},
            {"seed": range(4)},
            rows={row: {"lr": CHOSEN} for row in ROWS},
        ),
        "small": Scale(
            {"images": 5000, "pool": 2, **residual(14, 0.5), "recipe": {"epochs": 10}},
            {"lr": [0.03, 0.1], "seed": range(3)},
            rows={row: {} for row in FIVE},
        ),
        "smoke": Scale(
            {"data": "digits", "images": 100, **residual(8, 0.25), "recipe": {"epochs": 1, "augment": []}},
            {"lr": [0.03, 0.1], "seed": [0, 1]},
        ),
    },
    config={
        "data": "cifar10", "family": "residual", "residual": {"name": "resnet_cifar"}, "channels": 1.0, "share": 0.1,
        "recipe": {name: value for name, value in RECIPE.items() if name != "lr"} | {"augment": AUGMENT},
    },
    choose={"lr": [0.01, 0.03, 0.1, 0.3]},
    claims=[
        Claim(
            "each choice, and all three",
            "CReLU, geometric weights and heavy ball each lower the error, and so do all three together.",
            lower((*SINGLE, ALL), NONE, ERROR),
        ),
        Claim(
            "gains add up",
            f"The joint gain of all three falls short of the sum of their gains by less than {MARGIN:g} point.",
            [Contrast(shortfall(), 0.0, "not worse", MARGIN)],
        ),
        Claim(
            "interactions",
            f"Of any two choices the joint gain falls short of the sum of their gains by less than {MARGIN:g} point.",
            [Contrast(interaction(pair), 0.0, "not worse", MARGIN) for pair in PAIRS],
        ),
    ],
    figures=[curves],
)  # fmt: skip
TRIED = tuning(TOGETHER, RATES, lambda rate: {"seed": 100, "held_out_only": True, "lr": rate}, epochs=4)
TOGETHER = TOGETHER.variant("together", tuning={"cpu": TRIED})
STUDIES = [TOGETHER, TRIED]
