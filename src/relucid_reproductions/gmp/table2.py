"""gmp Table 2 and Fig. 4: VGG-6 under six parameterizations at growing batch sizes."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Scale,
    Study,
    by_cell,
    higher,
    tuning,
)
from relucid_reproductions.gmp.images import BEST, R_IS_ONE, run, training_curves

ROWS: dict[str, dict[str, Any]] = {
    "SP": {"design": "sp"},
    "WN": {"design": "wn"},
    "WN+MBN": {"design": "wn-mbn"},
    "BN": {"design": "bn"},
    "GmP": {"design": "gmp", "rate": 0.1},
    "GmP+IMN": {"design": "gmp-imn", "rate": 0.1},
}
OTHERS = tuple(row for row in ROWS if row != BEST)
ONE = {f"{row}, r = 1": {**ROWS[row], **R_IS_ONE} for row in ("GmP", BEST)}
EARLY, MARGIN = 25, 1.0  # epochs, and points of top-5 accuracy
COLUMNS = {
    f"top-{k}, batch {label}": Column(f"top{k}", {"times": times}, best="highest", perfect=100.0)
    for k in (1, 5)
    for times, label in [(1, "B"), (2, "2B"), (4, "4B")]
}
TOP1, TOP5 = list(COLUMNS)[:3], list(COLUMNS)[3:]
AT_4B = (TOP1[2], TOP5[2])
PUBLISHED = {
    "SP": [(38.31, 0.13), (36.99, 0.11), (35.02, 0.03), (62.48, 0.14), (60.71, 0.18), (58.14, 0.39)],
    "WN": [(39.13, 0.10), (37.92, 0.12), (36.17, 0.03), (63.28, 0.02), (61.93, 0.09), (60.16, 0.18)],
    "WN+MBN": [(42.22, 0.01), (40.96, 0.02), (39.33, 0.07), (66.04, 0.07), (65.08, 0.03), (63.32, 0.08)],
    "BN": [(42.79, 0.03), (41.90, 0.19), (41.39, 0.02), (67.17, 0.08), (66.50, 0.25), (65.89, 0.06)],
    "GmP": [(40.76, 0.09), (41.65, 0.09), (41.29, 0.08), (65.08, 0.08), (65.76, 0.05), (65.49, 0.06)],
    "GmP+IMN": [(43.14, 0.05), (43.62, 0.08), (42.70, 0.15), (67.36, 0.05), (67.76, 0.09), (66.98, 0.18)],
}
WRN = 43.08  # top-1 accuracy with batch norm and batches of 500, by Chrabaszcz et al.; gmp 5.2 cites it
FULL = Scale({"data": "imagenet32", "images": None, "width": 1, "batch": 256, "epochs": 90})
# A rate for every row and batch size, by the held-out errors of gmp/vgg6-rates.
CHOSEN = {"SP": {"1": 0.03, "4": 0.03}, "BN": {"1": 0.1, "4": 0.1}, BEST: {"1": 0.1, "4": 0.3}}
CPU = Scale(
    {
        "data": "cifar10",
        "images": None,
        "pool": 2,
        "width": 1 / 8,
        "batch": 128,
        "epochs": 12,
        "steps": [2 / 3, 5 / 6],
    },
    {"seed": range(4)},
    rows={row: {"rate": rates} for row, rates in CHOSEN.items()},
    columns=[label for label in COLUMNS if not label.endswith("2B")],
)
SMALL = Scale({"data": "cifar10", "images": [5000, 2500], "width": 1 / 16, "batch": 32, "epochs": 5})
SMOKE = Scale(
    {"data": "digits", "images": [128, 64], "width": 1 / 32, "batch": 16, "epochs": 1, "augment": []},
    {"seed": [0]},
)


def faster(row: str) -> Quantity:
    """By how much GmP+IMN is ahead in top-5 accuracy at the largest batch, averaged over equal epochs, by seed."""

    def ahead(ours: pd.Series, theirs: pd.Series) -> pd.Series:
        leads = {
            seed: fmean(b - a for a, b in zip(ours[seed], theirs[seed], strict=False))
            for seed in ours.index.intersection(theirs.index, sort=False)
        }
        return pd.Series(leads, dtype=float)

    cells = [Cell(name, AT_4B[1], "val_error5", history=True) for name in (BEST, row)]
    return Quantity(f"{BEST} minus {row}, mean top-5 accuracy over equal epochs", cells, ahead)


def lead(row: str, column: str) -> Quantity:
    """By how much GmP+IMN is more accurate than another row, by seed."""
    cells = [Cell(BEST, column), Cell(row, column)]
    return Quantity(f"{BEST} minus {row}, {column}", cells, lambda ours, theirs: ours - theirs)


def late(row: str) -> Quantity:
    """How much more top-5 accuracy a row gains at the largest batch after epoch 25, by seed."""

    def gained(courses: pd.Series) -> pd.Series:
        gains = {seed: of[EARLY - 1] - min(of[EARLY:]) for seed, of in courses.items() if len(of) > EARLY}
        return pd.Series(gains, dtype=float)

    cells = [Cell(row, AT_4B[1], "val_error5", history=True)]
    return Quantity(f"{row}, top-5 accuracy gained after epoch {EARLY}", cells, gained)


def converged(row: str) -> Quantity:
    """The first epoch at the largest batch whose top-5 accuracy is within the margin of the best, by seed."""

    def first(courses: pd.Series) -> pd.Series:
        epochs = {seed: sum(np.minimum.accumulate(of) > min(of) + MARGIN) + 1 for seed, of in courses.items()}
        return pd.Series(epochs, dtype=float)

    return Quantity(f"{row}, epochs to convergence", [Cell(row, AT_4B[1], "val_error5", history=True)], first)


MOST_ACCURATE = Claim(
    "Table 2",
    "VGG-6 on ImageNet32: GmP+IMN is the most accurate at all batch sizes.",
    higher(BEST, OTHERS, TOP1),
)
FASTEST = Claim(
    "Fig. 4",
    "GmP+IMN converges the fastest at the largest batch.",
    [Contrast(faster(row), 0.0, "higher") for row in OTHERS],
)
vgg6 = Study(
    "gmp/vgg6",
    "Validation accuracy (%) of VGG-6 under six parameterizations at batch sizes B, 2B and 4B",
    run,
    rows=ROWS | ONE,
    columns=COLUMNS,
    config={"backbone": "vgg6", "rate": 0.01, "weight_decay": 0.0, "augment": ["flip"]},
    scales={"full": FULL, "cpu": CPU, "small": SMALL, "smoke": SMOKE},
    published=by_cell(PUBLISHED, list(COLUMNS)),
    claims=[
        MOST_ACCURATE,
        FASTEST,
        Claim(
            "Table 2, batch sizes",
            "The lead of GmP+IMN is larger at the largest batch size than at the smallest.",
            [Contrast(lead(row, TOP1[2]), lead(row, TOP1[0]), "higher", paired=True) for row in OTHERS],
            stated="2026-11-17",
        ),
        Claim(
            "Table 2, top-5",
            "GmP+IMN has the highest top-5 accuracy at all batch sizes.",
            higher(BEST, OTHERS, TOP5),
            stated="2026-11-17",
        ),
        Claim(
            "Fig. 4, within 25 epochs",
            f"GmP+IMN has converged after {EARLY} epochs at the largest batch: it gains less than {MARGIN:g} point "
            "after them.",
            [Contrast(late(BEST), 0.0, "not worse", margin=MARGIN)],
            stated="2026-11-17",
            scales=("full",),  # at the others training is shorter than that
        ),
        Claim(
            "Fig. 4, earlier than BN",
            "GmP+IMN converges earlier than BN, the second best, at the largest batch (in Fig. 4 ten epochs).",
            [Contrast(converged(BEST), converged("BN"), "lower")],
            stated="2026-11-19",
            scales=("full",),  # at the others the schedule decides when
        ),
        Claim(
            "Section 5.2, WRN 28-2",
            "VGG-6 with GmP+IMN is more accurate on ImageNet32 than Wide ResNet 28-2 is reported to be.",
            higher(BEST, WRN, TOP1[1]),
            stated="2026-11-19",
            scales=("full",),  # of ImageNet32
        ),
    ],
    figures=[lambda results: training_curves(results, AT_4B[1])],
)
vgg6_rates = tuning(
    vgg6,
    (0.01, 0.03, 0.1, 0.3, 1.0),
    lambda rate: {"seed": 100, "held_out_only": True, "rate": rate},
    settings={"batch B": {"times": 1}, "batch 4B": {"times": 4}},
    epochs=6,
)
vgg6 = replace(vgg6, tuning={"cpu": vgg6_rates})
against_bn = vgg6.variant(
    "gmp/vgg6-bn",
    "Validation accuracy (%) of VGG-6 with batch norm and with GmP+IMN at batch size 4B, on new seeds",
    rows={row: ROWS[row] for row in ("BN", BEST)},
    columns={label: COLUMNS[label] for label in AT_4B},
    scales={
        "cpu": replace(
            CPU,
            repeat={"seed": range(4, 16)},
            rows={row: {"rate": CHOSEN[row]} for row in ("BN", BEST)},
            columns=None,
        ),
        "smoke": SMOKE,
    },
    paper=FULL.config,
    claims=[
        Claim(
            "Table 2, against BN at 4B",
            "GmP+IMN is more accurate than batch norm at the largest batch size.",
            higher(BEST, "BN", AT_4B[0]),
        ),
        Claim(
            "Fig. 4, against BN",
            "GmP+IMN converges faster than batch norm at the largest batch size.",
            [Contrast(faster("BN"), 0.0, "higher")],
        ),
    ],
)


def setup(name: str, whose: str, title: str, full: Scale = FULL, **config: Any) -> Study:
    """The rows without r = 1 in another setup; below full scale nothing else would be the paper's."""
    return vgg6.variant(
        name,
        f"Validation accuracy (%) of VGG-6 at growing batch sizes, {title}",
        rows=ROWS,
        config={**vgg6.config, **config},
        scales={"full": full, "smoke": SMOKE},
        tuning={},
        claims=[replace(claim, where=f"{claim.where}, {whose} setup") for claim in (MOST_ACCURATE, FASTEST)],
    )


STUDIES = [
    vgg6,
    against_bn,
    setup(
        "gmp/vgg6-authors",
        "the authors'",
        "set up as in the authors' own runs",
        Scale({**FULL.config, "epochs": 500}),
        authors=True,
    ),
    setup(
        "gmp/vgg6-source",
        "the source's",
        "decay and images as in ImageNet32's source",
        weight_decay=5e-4,
        decay="scales",
        normalize="mean_image",
    ),
    vgg6_rates,
]
