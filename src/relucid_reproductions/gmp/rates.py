"""How robust the parameterizations are to the learning rate, gmp's central claim: every rate on every problem."""

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Comparison,
    Contrast,
    Quantity,
    Results,
    Study,
    bootstrap,
    lower,
)
from relucid.report.figure import Figure
from relucid_reproductions.gmp.drawing import COLORS
from relucid_reproductions.gmp.problems import BEST_RATES, METHODS, OTHERS, PROBLEMS, RATES
from relucid_reproductions.gmp.table3 import BLOCKS, HELD_OUT, ONCE, SAYS, SETS, run, uci

TOLERANCE = 1.1  # a rate is good if its error is at most this many times that of the best rate
LABELS = {name: name.title() for name in PROBLEMS}
AT = {rate: f"rate {rate:g}" for rate in RATES}


def width(errors: Sequence[float]) -> float:
    """The ratio of the largest to the smallest rate in the unbroken range of good rates around the best one.

    >>> round(width([9.0, 1.05, 1.0, 1.0, 5.0, 1.0]), 3)  # errors at 0.001, 0.003, 0.01, 0.03, 0.1, 0.3
    10.0
    """
    return float(widths(np.array(errors)[:, None])[0])


def widths(errors: np.ndarray) -> np.ndarray:
    """The same of many errors at once: (rates, n) to (n,)."""
    low = errors.argmin(0)
    high, each, last = low.copy(), np.arange(errors.shape[1]), len(errors) - 1
    good = errors <= TOLERANCE * errors.min(0)
    for _ in range(last):
        low = np.where((low > 0) & good[np.maximum(low - 1, 0), each], low - 1, low)
        high = np.where((high < last) & good[np.minimum(high + 1, last), each], high + 1, high)
    rates = np.array(RATES)
    ratios: np.ndarray = rates[high] / rates[low]
    return ratios


def log_widths(errors: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The logarithm of the range of good rates, (draws,), from errors (rates, splits) at places (draws, n)."""
    splits = errors.shape[1]
    places = places[:, :splits] % splits  # a problem with fewer splits gets as many draws as it has splits
    ranges: np.ndarray = np.log(widths(errors[:, places].mean(2)))
    return ranges


def wider(other: str) -> Quantity:
    """How much wider GmP's range of good rates is than another method's, in logs, averaged over all problems.

    The bootstrap resamples the splits of every problem, the same splits for both methods.
    """

    def compared(*cells: Any) -> Comparison | None:
        if min(map(len, cells)) < 2:
            return None
        errors = [np.array(cells[place : place + len(RATES)]) for place in range(0, len(cells), len(RATES))]
        ours, theirs = errors[: len(LABELS)], errors[len(LABELS) :]

        def ranges(problems: list[np.ndarray], places: np.ndarray) -> np.ndarray:
            widths: np.ndarray = np.stack([log_widths(problem, places) for problem in problems]).mean(0)
            return widths

        most = max(problem.shape[1] for problem in errors)
        return bootstrap(lambda places: ranges(ours, places) - ranges(theirs, places), most)

    cells = [
        Cell(f"{label} {method}", column)
        for method in ("GmP", other)
        for label in LABELS.values()
        for column in AT.values()
    ]
    return Quantity(f"log of the range of good rates, GmP less {other}", cells, compared)


def means(results: Results, method: str) -> list[list[float]]:
    """The mean errors of a method at all rates, on every problem."""
    return [
        [results[f"{label} {method}", column].mean() for column in AT.values()] for label in LABELS.values()
    ]


def span(results: Results, method: str) -> float:
    """The geometric mean over all problems of a method's range of good rates."""
    return geometric_mean(map(width, means(results, method)))


def best(results: Results, method: str) -> float:
    """The geometric mean over all problems of a method's best rate."""
    return geometric_mean(RATES[errors.index(min(errors))] for errors in means(results, method))


def figures(results: Results) -> list[Figure]:
    """Draw errors over the learning rate, one panel per problem."""
    import plotly.express as px

    cells = results.table().reset_index()
    cells[["problem", "method"]] = cells["row"].str.rsplit(" ", n=1, expand=True)
    cells["rate"] = cells["column"].str.removeprefix("rate ").astype(float)
    plot = px.line(
        cells, x="rate", y="mean", error_y="error", color="method", color_discrete_map=COLORS,
        facet_col="problem", facet_col_wrap=4, log_x=True, log_y=True,
    )  # fmt: skip
    plot.update_xaxes(tickvals=[0.001, 0.01, 0.1]).update_yaxes(matches=None, title="")
    alt = (
        "One panel per problem: lines of the test error over the learning rate, both logarithmic, one line per "
        "parameterization. The wider the valley, the more robust."
    )
    return [Figure("Test error over the learning rate", alt, plot)]


def against(label: str, rates: Mapping[str, float]) -> list[Contrast]:
    """GmP at its rate of gmp C.3 against every other method, each at one of these rates."""
    ours = Cell(f"{label} GmP", AT[BEST_RATES["GmP"]])
    return [Contrast(ours, Cell(f"{label} {other}", AT[rates[other]]), "lower") for other in OTHERS]


def generalization(where: str, label: str) -> list[Claim]:
    """The claim that GmP has the lowest error on a problem, at the paper's rates and at its own for all."""
    return [
        Claim(
            f"{where}, generalisation",
            f"On {label}, GmP generalises best, at a ten times larger rate than the others.",
            against(label, BEST_RATES),
            stated="2026-11-17",
        ),
        Claim(
            f"{where}, generalisation at equal rates",
            f"On {label}, GmP generalises best if the others are trained at its rate, too.",
            against(label, dict.fromkeys(OTHERS, BEST_RATES["GmP"])),
            stated="2026-11-17",
        ),
    ]


# gmp Fig. 2 has no validation data: the training loss decides when to stop.
STOP_ON = {"levy": {"stop_on": "train"}}
by_rate = Study(
    "gmp/rates",
    "Test error at every learning rate of the grid: RMSE, on Banana the percentage of wrong classes",
    run,
    rows={
        f"{label} {method}": {
            **HELD_OUT, "data": name, "method": method, **STOP_ON.get(name, {}), **ONCE.get(name, {}),
        }
        for name, label in LABELS.items()
        for method in METHODS
    },
    columns={column: Column(f"error at {rate:g}", digits=3) for rate, column in AT.items()},
    scales=uci.scales,
    repeat=BLOCKS,
    splits=[f"{label} {method}" for name, label in LABELS.items() if name != "levy" for method in METHODS],
    claims=[
        Claim(
            "Abstract, range of learning rates",
            "GmP needs a less careful choice of the learning rate: the range of good rates is wider.",
            [Contrast(wider(other), 0.0, "higher") for other in OTHERS],
        ),
        Claim(
            "Abstract, large learning rates",
            "GmP has the lowest error at large learning rates, 0.1 and 0.3, on eight sets.",
            [
                contrast
                for label in LABELS.values()
                for contrast in lower(f"{label} GmP", [f"{label} {other}" for other in OTHERS], (AT[0.1], AT[0.3]))
            ],
        ),
        Claim(
            "Table 3, held out, at the paper's rates",
            f"{SAYS[:-1]} if a validation set stops training and nothing else changes.",
            [contrast for label in SETS for contrast in against(label, BEST_RATES)],
            stated="2026-11-17",
        ),
        *generalization("Fig. 2", "Levy"),
        *generalization("Fig. 3", "Banana"),
    ],
    figures=[figures],
)  # fmt: skip
STUDIES = [by_rate]
