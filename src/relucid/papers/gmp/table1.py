"""gmp Table 1: ResNet-50 on ImageNet under three parameterizations."""

from dataclasses import replace

from relucid.papers.gmp.images import BEST, R_IS_ONE, RUNNER, accuracies, flops, published
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Higher, Scale, Store, Study, Table


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw accuracies over the epochs of training."""
    return [accuracies(table, "Training curves", {})]


STUDY = Study(
    name="gmp/resnet50",
    title="Validation accuracy (%) of ResNet-50 on ImageNet",
    run=RUNNER,
    rows={
        "WN+MBN": {"design": "wn-mbn"},
        "BN": {"design": "bn"},
        "GmP+IMN": {"design": "gmp-imn"},
        "GmP+IMN, r = 1": {"design": "gmp-imn", **R_IS_ONE},
    },
    columns={f"top-{k}": Column(f"top{k}", best="highest", perfect=100.0) for k in (1, 5)},
    config={
        "backbone": "resnet50",
        "rate": 0.1,
        "weight_decay": 1e-4,
        "decay": "scales",
        "times": 1,
        "augment": ["flip", "color"],
    },
    scales={
        "full": Scale(
            {"data": "imagenet", "images": None, "width": 1, "batch": 256, "epochs": 90},
        ),
        "smoke": Scale(
            {"data": "digits", "images": [64, 32], "width": 1 / 16, "batch": 32, "epochs": 1, "augment": []},
            {"seed": [0]},
            seconds=5,
        ),
    },
    published=published(
        ["top-1", "top-5"],
        {
            "WN+MBN": [(72.58, 0.16), (90.77, 0.12)],
            "BN": [(73.63, 0.09), (91.11, 0.05)],
            "GmP+IMN": [(75.57, 0.12), (92.68, 0.11)],
        },
    ),
    source="gmp Table 1",
    claims=(
        Claim(
            "Table 1",
            "ResNet-50 on ImageNet: GmP+IMN is more accurate than BN and WN+MBN.",
            (Higher(BEST, than=("BN", "WN+MBN"), columns=("top-1", "top-5")),),
            code=("relucid.papers.gmp.images.run",),
            tests=(
                "models/test_published.py::"
                "test_resnet50_under_gmp_and_imn_is_bare_before_additions_and_has_no_norm_on_skips",
            ),
        ),
    ),
    figures=figures,
    flops=flops,
    protocol=(
        "ResNet-50 as He et al. (2016) print it, with the stride of a bottleneck in its first 1x1 convolution; SGD "
        "with momentum 0.9 and batches of 256; rate 0.1, cut to a tenth after 5 epochs without a better top-1 "
        "accuracy; at most 90 epochs, ended after 10 such ones; weight decay 0.0001 on weights and on GmP's scales "
        "r, by which it shrinks w = r u; initial scales are the lengths of Glorot's weights, as in the authors' "
        "runs, or 1, as in Section 4.3; the shorter side resized to 256-480, random squares of 224, flips and "
        "colours; validation on the centre square. The split that decides when to stop is the one that is reported."
    ),
)

AUTHORS = replace(
    STUDY,
    name="gmp/resnet50-authors",
    title="Validation accuracy (%) of ResNet-50 on ImageNet, set up as in the authors' own runs",
    rows={row: config for row, config in STUDY.rows.items() if "init" not in config},
    config={**STUDY.config, "authors": True},
    claims=(replace(STUDY.claims[0], where="Table 1, the authors' setup"),),
    protocol=(
        "As gmp/resnet50, with Glorot's uniform weights, images centred but not scaled, mean batch norm without a "
        "learned shift, IMN after every ReLU, also that after a sum, and the batch norm and the plateaus of the "
        "authors' framework, which watch the top-5 accuracy. Their public code "
        "(github.com/Wenlin-Chen/geometric-parameterization, imagenet2012/ at commit d1d3e90) has 34 layers, no "
        "weight decay, images resized to 368 and no last epoch, and keeps the last weights; here these are the "
        "paper's."
    ),
)
STUDIES = (STUDY, AUTHORS)
