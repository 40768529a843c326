"""gmp Table 1: ResNet-50 on ImageNet under three parameterizations."""

from relucid.experiments import Claim, Column, Scale, Study, by_cell, higher
from relucid_reproductions.gmp.images import BEST, R_IS_ONE, run, training_curves

COLUMNS = {f"top-{k}": Column(f"top{k}", best="highest", perfect=100.0) for k in (1, 5)}
PUBLISHED = {
    "WN+MBN": [(72.58, 0.16), (90.77, 0.12)],
    "BN": [(73.63, 0.09), (91.11, 0.05)],
    "GmP+IMN": [(75.57, 0.12), (92.68, 0.11)],
}
ROWS = {"WN+MBN": {"design": "wn-mbn"}, "BN": {"design": "bn"}, "GmP+IMN": {"design": "gmp-imn"}}
CONFIG = {
    "backbone": "resnet50",
    "rate": 0.1,
    "weight_decay": 1e-4,
    "decay": "scales",
    "times": 1,
    "augment": ["flip", "color"],
}


def claim(where: str) -> Claim:
    """What the table claims."""
    return Claim(
        where,
        "ResNet-50 on ImageNet: GmP+IMN is more accurate than BN and WN+MBN.",
        higher(BEST, ("BN", "WN+MBN"), list(COLUMNS)),
    )


resnet50 = Study(
    "gmp/resnet50",
    "Validation accuracy (%) of ResNet-50 on ImageNet",
    run,
    rows={**ROWS, "GmP+IMN, r = 1": {**ROWS[BEST], **R_IS_ONE}},
    columns=COLUMNS,
    config=CONFIG,
    scales={
        "full": Scale({"data": "imagenet", "images": None, "width": 1, "batch": 256, "epochs": 90}),
        "smoke": Scale(
            {"data": "digits", "images": [64, 32], "width": 1 / 16, "batch": 32, "epochs": 1, "augment": []},
            {"seed": [0]},
        ),
    },
    paired=False,
    published=by_cell(PUBLISHED, list(COLUMNS)),
    claims=[claim("Table 1")],
    figures=[lambda results: training_curves(results, "top-5")],
)
STUDIES = [
    resnet50,
    resnet50.variant(
        "gmp/resnet50-authors",
        f"{resnet50.title}, set up as in the authors' own runs",
        rows=ROWS,
        config={**CONFIG, "authors": True},
        claims=[claim("Table 1, the authors' setup")],
    ),
]
