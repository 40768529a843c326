"""gmp Table 3: six UCI regression sets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from relucid.experiments import Claim, Column, Results, Scale, Study, by_cell, lower, runner
from relucid_reproductions.gmp.problems import (
    BEST_RATES,
    METHODS,
    OTHERS,
    PROBLEMS,
    RATES,
    ScaleInit,
    StopOn,
    as_the_authors,
    trials,
    with_r_one,
)

SETS = ("Boston", "Concrete", "Energy", "Power", "Wine", "Yacht")
PUBLISHED = {
    "SP": [(3.370, 0.145), (5.472, 0.144), (0.898, 0.274), (4.065, 0.029), (0.623, 0.008), (0.639, 0.063)],
    "WN": [(3.459, 0.156), (5.952, 0.148), (2.093, 0.789), (4.073, 0.026), (0.632, 0.008), (0.624, 0.076)],
    "BN": [(3.469, 0.153), (5.695, 0.160), (1.648, 0.302), (4.164, 0.026), (0.622, 0.011), (0.777, 0.055)],
    "GmP": [(3.057, 0.144), (5.153, 0.098), (0.474, 0.013), (4.022, 0.025), (0.613, 0.006), (0.584, 0.046)],
}


@runner("gmp/uci")
def run(
    data: str,
    method: str,
    stop_on: StopOn,
    rates: Sequence[float],
    first: int,
    splits: int,
    epochs: int | None,
    batch_size: int | None = None,
    authors: bool = False,
    init: ScaleInit = "glorot",
) -> dict[str, Any]:
    """Train one parameterization on some splits at all rates; each split chooses its own rate."""
    problem = PROBLEMS[data] if batch_size is None else replace(PROBLEMS[data], batch_size=batch_size)
    problem = as_the_authors(problem) if authors else problem
    numbers = range(first, first + splits)
    networks = trials(problem, method, [*numbers] * len(rates), stop_on, authors, init)
    course = networks.learn([rate for rate in rates for _ in numbers], epochs)
    shape = len(rates), splits
    errors, trained = networks.errors().view(shape), course.epochs.view(shape)
    chosen = course.best.view(shape).argmin(0)
    return {
        "error": errors.gather(0, chosen.unsqueeze(0)).squeeze(0).tolist(),
        "rate": [rates[place] for place in chosen],
        **{f"error at {rate:g}": row.tolist() for rate, row in zip(rates, errors, strict=True)},
        **{f"epochs at {rate:g}": row.tolist() for rate, row in zip(rates, trained, strict=True)},
    }


def far(results: Results, errors: float = 3) -> list[str]:
    """The means more than so many published standard errors from the published ones, in words."""
    cells = results.table().dropna(subset=["published_error"])
    distance = (cells["mean"] - cells["published"]).abs() / cells["published_error"]
    return [
        f"{row} on {column}, {cells.loc[(row, column), 'mean']:.3f} ({off:.1f})"
        for (row, column), off in distance[distance > errors].items()
    ]


BLOCKS = {"first": range(0, 50, 10)}  # splits come in blocks of ten; the first block is the paper's ten
ONCE = {"power": {"first": 0}}  # ten splits of the largest set take as long as fifty of all others
HELD_OUT = {"stop_on": "validation", "rates": RATES}
VALIDATED = {method: f"{method}, held out" for method in METHODS}
AS_PUBLISHED = {
    method: {"method": method, "stop_on": "test", "rates": [BEST_RATES[method]]} for method in METHODS
}
SAYS = "GmP has the lowest test error on six UCI sets."


def column(data: str, config: dict[str, Any]) -> Column:
    """The error on a set."""
    return Column("error", {"data": data.lower(), **config}, digits=3)


uci = Study(
    "gmp/uci",
    "Test error (RMSE) of a network with one hidden layer of 100 units on six UCI regression sets",
    run,
    rows={**AS_PUBLISHED, **{label: {"method": method, **HELD_OUT} for method, label in VALIDATED.items()}},
    columns={data: column(data, ONCE.get(data.lower(), {})) for data in SETS},
    scales={
        "full": Scale({"splits": 10, "epochs": None}),
        "smoke": Scale({"splits": 2, "epochs": 3}, {"first": [0]}),
    },
    repeat=BLOCKS,
    published=by_cell(PUBLISHED, SETS),
    splits=(*AS_PUBLISHED, *VALIDATED.values()),
    tries=RATES,
    claims=[
        Claim("Table 3, as published", SAYS, lower("GmP", OTHERS, SETS)),
        Claim(
            "Table 3, held out",
            f"{SAYS[:-1]} if a validation set stops training and chooses the rate.",
            lower(VALIDATED["GmP"], [VALIDATED[method] for method in OTHERS], SETS),
        ),
    ],
)


def as_published(
    name: str, title: str, where: str, says: str, sets: Sequence[str] = SETS, **changes: Any
) -> Study:
    """The rows as published on these sets, by default on the ten splits of the paper."""
    defaults = {"columns": {data: column(data, {}) for data in sets}, "repeat": {"first": [0]}}
    return uci.variant(
        name,
        f"Test error (RMSE) on {title}",
        rows=AS_PUBLISHED,
        splits=tuple(AS_PUBLISHED),
        tries=(),
        claims=[Claim(f"Table 3, {where}", says, lower("GmP", OTHERS, sets))],
        **{**defaults, **changes},
    )


LARGE_SETS = ("Power", "Wine")
STUDIES = [
    uci,
    as_published(
        "gmp/uci-batches",
        "the two larger UCI sets, trained in batches of 1024",
        "batches of 1024",
        "The same on the two larger sets, in batches of 1024 as in the authors' runs.",
        LARGE_SETS,
        config={"batch_size": 1024},
    ),
    as_published(
        "gmp/uci-power",
        "Power, on fifty splits",
        "Power, fifty splits",
        "GmP has the lowest test error on Power.",
        ("Power",),
        repeat=BLOCKS,
    ),
    as_published(
        "gmp/uci-authors",
        "six UCI regression sets, set up as in the authors' own runs",
        "the authors' setup",
        "The same with the authors' initial weights, norms and schedule, where the paper is silent.",
        config={"authors": True},
    ),
    # Not with validation data: to choose among six rates takes hours.
    with_r_one(uci, AS_PUBLISHED, uci.claims[:1]),
]
