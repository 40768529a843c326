"""How robust the parameterizations are to the learning rate, gmp's central claim: the whole grid, on every problem."""

from statistics import geometric_mean

from relucid.studies.gmp.problems import METHODS, PROBLEMS, RATES
from relucid.studies.gmp.uci import BLOCKS, HELD_OUT, ONCE, RUNNER
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table

TOLERANCE = 1.1  # a rate is good if its error is at most so many times that of the best rate


def width(errors: list[float]) -> float:
    """How many times larger the largest good rate is than the smallest, of those next to the best rate.

    >>> round(width([9.0, 1.05, 1.0, 1.0, 5.0, 1.0]), 3)  # errors at 0.001, 0.003, 0.01, 0.03, 0.1, 0.3
    10.0
    """
    low = high = errors.index(min(errors))
    good = [error <= TOLERANCE * min(errors) for error in errors]
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(good) - 1 and good[high + 1]:
        high += 1
    return RATES[high] / RATES[low]


def verdict(table: Table) -> str:
    """Whether the good rates of GmP span a wider range than the others', and whether they are larger."""
    problems = dict.fromkeys(row.rpartition(" ")[0] for row in table.study.rows)
    errors = {
        method: [
            [table.cells[f"{name} {method}", column].mean or 0.0 for column in table.study.columns]
            for name in problems
        ]
        for method in METHODS
    }
    widths = {method: geometric_mean(map(width, found)) for method, found in errors.items()}
    best = {method: geometric_mean(RATES[e.index(min(e))] for e in found) for method, found in errors.items()}
    widest = max(widths, key=lambda method: widths[method])
    return (
        f"The rates whose error is within {100 * (TOLERANCE - 1):.0f}% of the best one's span a factor of "
        + ", ".join(f"{widths[method]:.1f} under {method}" for method in METHODS)
        + f" (geometric means over {len(problems)} problems): the range is widest under {widest}. "
        + "The best rates are "
        + ", ".join(f"{best[method]:.3f} for {method}" for method in METHODS)
        + "."
    )


LABELS = {name: name.title() for name in PROBLEMS}
# gmp Fig. 2 has no validation data: the training loss decides.
STOP_ON = {"levy": "train"}

RATES_STUDY = Study(
    name="gmp/rates",
    title="Test error at every learning rate of the grid: RMSE, on Banana the percentage of wrong classes",
    run=RUNNER,
    rows={
        f"{label} {method}": {
            **HELD_OUT,
            "data": name,
            "method": method,
            "stop_on": STOP_ON.get(name, "validation"),
            **ONCE.get(name, {}),
        }
        for name, label in LABELS.items()
        for method in METHODS
    },
    columns={f"rate {rate:g}": Column(f"error at {rate:g}", digits=3) for rate in RATES},
    scales={
        "full": Scale({"splits": 10, "epochs": None}, seconds=150),
        "smoke": Scale({"splits": 2, "epochs": 3}, {"first": [0]}, seconds=1),
    },
    repeat=BLOCKS,
    claim="GmP works with less carefully chosen and with larger learning rates (gmp Abstract, 3.4).",
    verdict=verdict,
    figures="relucid.report.gmp:rates",
    protocol=(
        "Ours: the paper shows its best rates only. The UCI sets are trained as in gmp/uci with validation "
        "data, and are the same runs; Levy and Banana as in gmp/levy and gmp/banana, but Banana stops on a "
        "fifth of its training part instead of on the test part. 50 splits (Levy: 50 draws of points; Power: 10 "
        "splits); ± is the standard error. A range of good rates ends where the grid does: its true width may be "
        "larger."
    ),
)
