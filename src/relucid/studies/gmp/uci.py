"""gmp Table 3: six UCI regression sets, as published and with a validation set."""

from dataclasses import replace
from typing import Any

from relucid.studies.gmp.problems import BEST_RATES, METHODS, PROBLEMS, RATES, gain, trials
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table

BLOCKS = {"first": range(0, 50, 10)}  # splits come in tens: the paper's ten are the first block
SETS = ("boston", "concrete", "energy", "power", "wine", "yacht")
ONCE = {"power": {"first": 0}}  # ten splits of the largest set take as long as fifty of all others
AS_PUBLISHED = {
    method: {"method": method, "stop_on": "test", "rates": [BEST_RATES[method]]} for method in METHODS
}
HELD_OUT_LABEL = ", held out"
HELD_OUT = {"stop_on": "validation", "rates": RATES}

FIGURES = {
    "SP": [(3.370, 0.145), (5.472, 0.144), (0.898, 0.274), (4.065, 0.029), (0.623, 0.008), (0.639, 0.063)],
    "WN": [(3.459, 0.156), (5.952, 0.148), (2.093, 0.789), (4.073, 0.026), (0.632, 0.008), (0.624, 0.076)],
    "BN": [(3.469, 0.153), (5.695, 0.160), (1.648, 0.302), (4.164, 0.026), (0.622, 0.011), (0.777, 0.055)],
    "GmP": [(3.057, 0.144), (5.153, 0.098), (0.474, 0.013), (4.022, 0.025), (0.613, 0.006), (0.584, 0.046)],
}
PUBLISHED = {row: dict(zip(map(str.title, SETS), figures, strict=True)) for row, figures in FIGURES.items()}


def run(config: dict[str, Any]) -> Result:
    """Train one parameterization on all splits at all rates; the rate is chosen for each split by itself."""
    problem, rates = PROBLEMS[config["data"]], config["rates"]
    splits = range(config["first"], config["first"] + config["splits"])
    if "batch_size" in config:
        problem = replace(problem, batch_size=config["batch_size"])
    each_rate = [rate for rate in rates for _ in splits]
    found = trials(problem, config["method"], [*splits] * len(rates), config["stop_on"])
    course = found.learn(each_rate, config["epochs"])
    shape = len(rates), len(splits)
    errors, epochs = found.errors().view(shape), course.epochs.view(shape)
    chosen = course.best.view(shape).argmin(0)
    return Result(
        {
            "error": errors.gather(0, chosen.unsqueeze(0)).squeeze(0).tolist(),
            "rate": [rates[place] for place in chosen],
            **{f"error at {rate:g}": row.tolist() for rate, row in zip(rates, errors, strict=True)},
            **{f"epochs at {rate:g}": row.tolist() for rate, row in zip(rates, epochs, strict=True)},
        }
    )


RUNNER = Runner("gmp/uci", run)


def verdict(table: Table) -> str:
    """Whether GmP is best under either protocol, and how far the means are from the published ones."""
    return f"{batches_verdict(table)} With validation data, {_best(table, HELD_OUT_LABEL)}."


def batches_verdict(table: Table) -> str:
    """Whether GmP is best as published, and how far the means are from the published ones."""
    far = [
        f"{row} on {name} {mean:.3f} instead of {published:.3f} ({abs(mean - published) / error:.1f})"
        for (row, name), cell in table.cells.items()
        for mean, (published, error) in [(cell.mean, cell.published)]
        if mean is not None and published is not None and error and abs(mean - published) > 3 * error
    ]
    count = len(METHODS) * len(table.study.columns)
    return (
        f"As published, {_best(table, '')}; {count - len(far)} of {count} means are within three published standard "
        f"errors{', not so (how many away): ' if far else ''}{', '.join(far)}."
    )


def _best(table: Table, protocol: str) -> str:
    """On how many sets GmP has the lowest mean, and on how many by more than two standard errors."""
    lowest = clearly = 0
    for name in table.study.columns:
        ours = table.cells["GmP" + protocol, name]
        gains = [gain(ours, table.cells[method + protocol, name]) for method in METHODS if method != "GmP"]
        lowest += all(mean > 0 for mean, _ in gains)
        clearly += all(mean > 2 * error for mean, error in gains)
    return (
        f"GmP has the lowest mean error on {lowest} of {len(table.study.columns)} sets, on {clearly} of them by more "
        "than two standard errors of the difference"
    )


UCI = Study(
    name="gmp/uci",
    title="Test error (RMSE) of a network with one hidden layer of 100 units on six UCI regression sets",
    run=RUNNER,
    rows={
        **AS_PUBLISHED,
        **{method + HELD_OUT_LABEL: {"method": method, **HELD_OUT} for method in METHODS},
    },
    columns={name.title(): Column("error", {"data": name, **ONCE.get(name, {})}, digits=3) for name in SETS},
    scales={
        "full": Scale({"splits": 10, "epochs": None}, seconds=90),
        "smoke": Scale({"splits": 2, "epochs": 3}, {"first": [0]}, seconds=1),
    },
    repeat=BLOCKS,
    published=PUBLISHED,
    source="gmp Table 3",
    claim="GmP has the lowest test error on all six sets, significantly so on most (gmp 5.3).",
    verdict=verdict,
    figures="relucid.report.gmp:uci",
    protocol=(
        "50 random 80/20 splits (of Power 10; the paper: 10), the same for all methods; standardised features, MAE "
        "loss, Adam, full batch, "
        "at most 5000 epochs, Glorot's initial weights (and their lengths as GmP's initial scales), in "
        "float32 (the authors': float64). The first four rows do as the authors did: the rate of gmp C.3 (0.1 "
        "for GmP, 0.01 for the others); the rate is cut to a tenth after 50 epochs without a better test "
        "error, training ends after 100, and the weights with the best test error count. Those held out never "
        "look at the test part before the end: a fifth of the training part decides all that, and chooses "
        "the rate, from 0.001 to 0.3, for each split. ± is the standard error. gmp/uci-batches has the larger sets "
        "in batches of 1024, as in the authors' runs."
    ),
)

LARGE_SETS = ("Power", "Wine")

BATCHES = Study(
    name="gmp/uci-batches",
    title="Test error (RMSE) on the two larger UCI sets, trained in batches of 1024",
    run=RUNNER,
    rows=AS_PUBLISHED,
    columns={name: UCI.columns[name] for name in LARGE_SETS},
    config={"batch_size": 1024},
    scales=UCI.scales,
    repeat={"first": [0]},
    published={row: {name: figures[name] for name in LARGE_SETS} for row, figures in PUBLISHED.items()},
    source="gmp Table 3",
    claim=UCI.claim,
    verdict=batches_verdict,
    protocol=(
        "As in the first rows of gmp/uci, but in batches of 1024 as in the authors' runs, where gmp C.3 says "
        "full batch: the other sets are smaller than a batch."
    ),
)
