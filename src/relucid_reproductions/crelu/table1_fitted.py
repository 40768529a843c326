"""crelu Table 1 in the paper's regime: networks that are fitted to their images, on two cores."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from relucid.experiments import Cell, Claim, Contrast, Quantity, Scale, Study, lower, tuning
from relucid_reproductions.crelu.protocols import TRIES_RATE
from relucid_reproductions.crelu.table1 import BASELINE, CONVPOOL, CPU, FULL, HALF, ROWS, SMOKE, TEST, TRAIN

BOTH = (BASELINE, HALF)
# About as many parameters per image as in the paper, and as long as it takes to fit them.
FITTED_IMAGES, FOLDS, FITS = 2500, 5, 5.0
WHOLE_IMAGES, LEAST = 2560, 8
FITTED_RATES = (0.005, 0.01, 0.03, 0.1)
FITTED_AT = dict.fromkeys(BOTH, 0.03)  # chosen in crelu/convpool-fitted-rates
REFITTED_RATES = (0.005, 0.01, 0.02, 0.03, 0.1)
REFITTED_AT = {BASELINE: 0.03, HALF: 0.02}  # chosen in crelu/convpool-refitted-rates
LONGER = CPU | {"folds": FOLDS, "epochs": 320, "steps": [200, 250, 300]}


def if_fitted(row: str, fitted: Sequence[str] = (BASELINE,)) -> Quantity:
    """The test error of a row, seed by seed; nothing unless the mean training errors of `fitted` are below 5%."""
    who = "the baseline is" if fitted == (BASELINE,) else "both are"
    cells = [Cell(row, TEST), *(Cell(other, TRAIN) for other in fitted)]

    def fitting(test: pd.Series, *train: pd.Series) -> pd.Series:
        return test if max(errors.mean() for errors in train) < FITS else test[:0]

    return Quantity(f"{row}, test error if {who} fitted", cells, fitting, of=Cell(row, TEST))


def where_both_fit(row: str, least: int = 0) -> Quantity:
    """The test error of a row for the seeds with which both networks have a training error below 5%.

    Args:
        row: the row.
        least: nothing if there are fewer such seeds: they would be too few of all to speak for them.
    """

    def fitting(test: pd.Series, *train: pd.Series) -> pd.Series:
        both = test[pd.concat(train, axis=1).reindex(test.index).max(axis=1, skipna=False) < FITS]
        return both if len(both) >= least else both[:0]

    cells = [Cell(row, TEST), *(Cell(other, TRAIN) for other in BOTH)]
    return Quantity(f"{row}, test error where both fit", cells, fitting, of=Cell(row, TEST))


def fitted(
    name: str,
    chosen: Mapping[str, float],
    claims: Sequence[Claim],
    images: int = FITTED_IMAGES,
    **fields: Any,
) -> Study:
    """A study of the baseline and CReLU (half) at these rates, each trained until it should fit its few images."""
    rates = {row: {"lr": rate} for row, rate in chosen.items()}
    defaults = {
        "title": "ReLU and CReLU in ConvPool-CNN-C on CIFAR-10, fitted to few images",
        "rows": {row: ROWS[row] for row in BOTH},
        "columns": {name: CONVPOOL.columns[name] for name in (TRAIN, TEST)},
        "scales": {
            "cpu": Scale(LONGER | {"train": images}, {"seed": range(10)}, rates),
            "smoke": Scale(SMOKE, {"seed": [0]}),
        },
        "config": {"lr": 0.05},
        "choose": {},
        "paper": FULL | {"data": "cifar10"},
        "tuning": {},
    }
    return CONVPOOL.variant(f"crelu/{name}", **defaults | fields, claims=claims)


def rates(study: Study, tried: Sequence[float], folds: Sequence[int] = ()) -> Study:
    """The study that tries rates for it, without a fold of its images or some one after the other."""
    setting = TRIES_RATE | {"fold": FOLDS - 1, "seed": 100}
    examples = FITTED_IMAGES // FOLDS
    return tuning(study, tried, lambda rate: setting | {"lr": rate}, examples=examples, folds=folds)


def tuned(study: Study, by: Study) -> Study:
    """The study, whose rates another one has chosen."""
    return study.variant(study.name, tuning={"cpu": by})


FITTED = fitted(
    "convpool-fitted",
    FITTED_AT,
    [
        Claim(
            "Table 1, CIFAR-10, fitted",
            "CReLU with half the filters has a lower error than ReLU where ReLU is fitted to its images.",
            [Contrast(if_fitted(HALF), if_fitted(BASELINE), "lower")],
        )
    ],
)
REFITTED = fitted(
    "convpool-refitted",
    REFITTED_AT,
    [
        Claim(
            "Table 1, CIFAR-10, both fitted",
            "CReLU with half the filters has a lower error than ReLU where both are fitted, at rates tried three "
            "times.",
            [Contrast(if_fitted(HALF, BOTH), if_fitted(BASELINE, BOTH), "lower")],
        ),
        Claim(
            "Table 1, CIFAR-10, pairs that fit",
            "CReLU with half the filters has a lower error than ReLU with the seeds with which both fit their images.",
            [Contrast(where_both_fit(HALF), where_both_fit(BASELINE), "lower")],
        ),
    ],
)
WHOLE = fitted(
    "convpool-whole",
    REFITTED_AT,
    [
        Claim(
            "Table 1, CIFAR-10, whole batches",
            "CReLU with half the filters has a lower error than ReLU with the seeds with which both fit, in whole "
            "batches.",
            [Contrast(where_both_fit(HALF, LEAST), where_both_fit(BASELINE, LEAST), "lower")],
        )
    ],
    WHOLE_IMAGES,
)
FITTED_TRIED, REFITTED_TRIED = rates(FITTED, FITTED_RATES), rates(REFITTED, REFITTED_RATES, (4, 3, 2))
FITTED = tuned(FITTED, FITTED_TRIED)
REFITTED, WHOLE = (tuned(study, REFITTED_TRIED) for study in (REFITTED, WHOLE))

FEW, MANY = WHOLE_IMAGES, 4 * WHOLE_IMAGES


def of(row: str, images: int) -> str:
    """The label of a row that is trained on so many images."""
    return f"{row}, {images:,} images"


def lag() -> Quantity:
    """How much higher the error of CReLU is than that of ReLU with many images than with few, seed by seed."""
    rows = [of(row, images) for images in (MANY, FEW) for row in (HALF, BASELINE)]
    label = f"{HALF} minus {BASELINE}, {MANY:,} less {FEW:,} images"
    return Quantity(label, [Cell(row, TEST) for row in rows], lambda a, b, c, d: (a - b - c + d).dropna())


def longer(row: str, images: int) -> dict[str, Any]:
    """What a row of the scale cpu adds: its rate, and as many steps whatever the number of its images."""
    times = images // FEW
    cuts = [cut // times for cut in LONGER["steps"]]
    return {"lr": REFITTED_AT[row], "train": images, "epochs": LONGER["epochs"] // times, "steps": cuts}


SIZED = {of(row, images): (row, images) for images in (FEW, MANY) for row in BOTH}
IMAGES = WHOLE.variant(
    "crelu/convpool-images",
    "ReLU and CReLU in ConvPool-CNN-C on CIFAR-10: few images often, or more images as often in all",
    rows={label: ROWS[row] for label, (row, _) in SIZED.items()},
    scales={
        "cpu": Scale(
            LONGER | {"train": FEW},
            {"seed": range(5)},
            {label: longer(*sized) for label, sized in SIZED.items()},
        ),
        "smoke": WHOLE.scales["smoke"],
    },
    published={
        (label, column): WHOLE.published[row, column]
        for label, (row, _) in SIZED.items()
        for column in WHOLE.columns
    },
    claims=[
        Claim(
            "Table 1, CIFAR-10, with more images",
            "With four times the images in as many steps, CReLU with half the filters does worse against ReLU.",
            [Contrast(lag(), 0.0, "higher")],
        ),
        Claim(
            f"Table 1, CIFAR-10, {MANY:,} images",
            f"CReLU with half the filters has a lower error than ReLU with {MANY:,} images seen 80 times.",
            lower(of(HALF, MANY), of(BASELINE, MANY), TEST),
        ),
    ],
)
STUDIES = [FITTED, FITTED_TRIED, REFITTED, REFITTED_TRIED, WHOLE, IMAGES]
