"""Every derived quantity of the present studies in the new form (each belongs into the file of its table)."""

import math
from itertools import product
from statistics import fmean

import numpy as np
import pandas as pd

from relucid.experiments import Cell, Quantity, bootstrap, compare_shares

BASELINE, HALF, TRAIN, TEST, FITS = "Baseline", "CReLU (half)", "Single, train %", "Single, test %", 5.0


# crelu Table 1
def gap(row):
    return Quantity(
        f"{row}, test error minus training error",
        [Cell(row, TEST), Cell(row, TRAIN)],
        lambda test, train: test - train,
    )


def if_fitted(row, fitted=(BASELINE,)):
    who = "the baseline is" if fitted == (BASELINE,) else "both are"
    cells = [Cell(row, TEST), *(Cell(other, TRAIN) for other in fitted)]
    return Quantity(
        f"{row}, test error if {who} fitted",
        cells,
        lambda test, *train: test[[max(e.mean() for e in train) < FITS] * len(test)],
        of=Cell(row, TEST),
    )


def where_both_fit(row, least=0):
    def fitting(test, *train):
        both = test[pd.concat(train, axis=1).reindex(test.index).max(axis=1, skipna=False) < FITS]
        return both if len(both) >= least else both[:0]

    return Quantity(
        f"{row}, test error where both fit",
        [Cell(row, TEST), Cell(BASELINE, TRAIN), Cell(HALF, TRAIN)],
        fitting,
        of=Cell(row, TEST),
    )


def lag(few, many):
    rows = [f"{row}, {images:,} images" for images in (many, few) for row in (HALF, BASELINE)]
    return Quantity(
        f"{HALF} minus {BASELINE}, {many:,} less {few:,} images",
        [Cell(row, TEST) for row in rows],
        lambda a, b, c, d: (a - b - c + d).dropna(),
    )


# crelu Table 6, Fig. 2
def phases(row, layer):
    cells = [Cell(row, "conv1", f"{layer} {kind}") for kind in ("pair", "non-pair")]
    return Quantity(
        f"{row}, {layer}: same minus different units", cells, lambda same, different: same - different
    )


def cosine(layer):
    return Quantity(
        f"{BASELINE}, mean cosine in {layer}", [Cell(BASELINE, "conv1", f"{layer} mu")], lambda mu: mu
    )


# gmp Table 2, Fig. 4
BEST, AT_4B, EARLY = "GmP+IMN", "top-5, batch 4B", 25


def faster(row):
    def ahead(ours, theirs):
        both = ours.index.intersection(theirs.index, sort=False)
        return pd.Series(
            {name: fmean(b - a for a, b in zip(ours[name], theirs[name], strict=False)) for name in both},
            dtype=float,
        )

    return Quantity(
        f"{BEST} minus {row}, mean top-5 accuracy over equal epochs",
        [Cell(each, AT_4B, "val_error5", history=True) for each in (BEST, row)],
        ahead,
    )


def lead(row, column):
    return Quantity(
        f"{BEST} minus {row}, {column}",
        [Cell(BEST, column), Cell(row, column)],
        lambda ours, theirs: ours - theirs,
    )


def late(row):
    return Quantity(
        f"{row}, top-5 accuracy gained after epoch {EARLY}",
        [Cell(row, AT_4B, "val_error5", history=True)],
        lambda courses: pd.Series(
            {name: c[EARLY - 1] - min(c[EARLY:]) for name, c in courses.items() if len(c) > EARLY},
            dtype=float,
        ),
    )


# gmp Section 4.3
def cost(method, column):
    return Quantity(
        f"{method}, cost of bad scale, {column}",
        [Cell(f"{method}, {init}", column) for init in ("unscaled", "Glorot")],
        lambda bad, good: bad - good,
    )


# gmp Abstract: the range of good learning rates
RATES, TOLERANCE = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), 1.1


def width(errors):
    """The ratio of the largest to the smallest rate in the unbroken range of good rates around the best one."""
    errors = list(errors)
    low = high = errors.index(min(errors))
    good = [error <= TOLERANCE * min(errors) for error in errors]
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(good) - 1 and good[high + 1]:
        high += 1
    return RATES[high] / RATES[low]


def wider(other, problems):
    def compared(*errors):
        ours, theirs = _split(errors, len(problems))

        def ranges(sets, places):
            return np.mean(
                [
                    [
                        math.log(width(e))
                        for e in each[:, places[:, : each.shape[1]] % each.shape[1]].mean(2).T.tolist()
                    ]
                    for each in sets
                ],
                axis=0,
            )

        return bootstrap(
            lambda places: ranges(ours, places) - ranges(theirs, places), max(each.shape[1] for each in ours)
        )

    cells = [
        Cell(f"{problem} {method}", f"rate {rate:g}")
        for method in ("GmP", other)
        for problem in problems
        for rate in RATES
    ]
    return Quantity(f"log of the range of good rates, GmP less {other}", cells, compared)


def _split(errors, problems):
    arrays = [np.array([*errors[first : first + len(RATES)]]) for first in range(0, len(errors), len(RATES))]
    return arrays[:problems], arrays[problems:]


# structure Section 5.1
KAPPAS = (10, 100, 1000)


def slope(row):
    cells = [Cell(row, f"kappa = {kappa}", metric) for metric in ("layers", "reached") for kappa in KAPPAS]

    def power(few, _, many, *reached):
        return np.log(many / few)[[all((each > 0).all() for each in reached)] * len(few)] / math.log(
            KAPPAS[-1] / KAPPAS[0]
        )

    return Quantity(f"{row}: power of kappa", cells, power)


# structure Table 4, momentum
def reaching_the_end(ours, control):
    return Quantity(
        f"{ours} minus {control.rpartition(',')[0]}, share of runs that do not diverge",
        [Cell(row, "CIFAR-10", "finished") for row in (ours, control)],
        compare_shares,
    )


# ours: calibration, together, plasticity
def announced(rows, columns):
    return Quantity(
        "ends in better, % minus 5",
        [Cell(*each) for each in product(rows, columns)],
        lambda *shares: compare_shares(pd.concat(shares), 5.0),
    )


ERROR, NONE, ALL = "test error %", "none: ReLU, standard weights, batch norm, residual", "all three"


def shortfall(single):
    return Quantity(
        "sum of single gains less joint gain",
        [Cell(row, ERROR) for row in (NONE, ALL, *single)],
        lambda none, joint, *each: sum(none - one for one in each) - (none - joint),
    )


def interaction(pair, pairs, single):
    a, b = pairs[pair]
    third = next(row for row in single if row not in (a, b))
    beside = [next(row for row, both in pairs.items() if {*both} == {each, third}) for each in (a, b)]
    rows = (NONE, a, b, pair, third, *beside, ALL)
    return Quantity(
        f"{pair}: sum of gains less joint gain",
        [Cell(row, ERROR) for row in rows],
        lambda *e: ((e[0] - e[1] - e[2] + e[3]) + (e[4] - e[5] - e[6] + e[7])) / 2,
    )


def lost(column, what, rate=0.01):
    return Quantity(
        f"{what}: first fifth less last fifth, ReLU at {rate:g}",
        [Cell("ReLU", column, f"{part} at {rate:g}") for part in ("first", "last")],
        lambda first, last: first - last,
    )
