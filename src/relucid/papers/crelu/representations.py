"""What the ImageNet networks of crelu Table 4 have learned: Fig. 2 to 5 and Appendix G, from the same runs.

Fig. 3, Fig. 5 and Appendix G are about the best network, with CReLU in conv1 to conv4; Fig. 4c has CReLU in conv1 to
conv7 (crelu 4.2, 4.3).
"""

import math
from collections.abc import Mapping

from relucid.papers.crelu import fig2, fig4, table_s1
from relucid.papers.crelu.table4 import BASELINE, MEASURED, ROWS, SAME
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Higher, Lower, Store, Study, Table

BEST, PHASED = "CReLU (conv1-4)", "CReLU (conv1-7)"
SOURCES = tuple(f"conv{number}" for number in range(1, 5))
STAGES = ("image", *(f"from {layer}" for layer in SOURCES))


def histograms(table: Table, store: Store) -> list[Figure]:
    """Draw histograms of mu against random filters, for both networks (crelu Fig. 3)."""
    return fig2.of_rows(table, store, (BASELINE, BEST))


def maxima(table: Table) -> str:
    """Name the layers after which crelu 4.2 would place CReLU: conv1, conv4 and conv7 in the paper."""
    means = {layer: table.cells[BASELINE, layer].mean for layer in MEASURED}
    found = local_maxima({layer: mean for layer, mean in means.items() if mean is not None})
    return f"Local maxima of the ReLU network's scores: {', '.join(found) or 'none'}."


def local_maxima(scores: Mapping[str, float]) -> list[str]:
    """The names whose score is higher than those right before and after, of which the first and the last have one.

    >>> local_maxima({"conv1": 3.0, "conv2": 2.0, "conv3": 2.5, "conv4": 4.0, "conv5": 1.0})
    ['conv1', 'conv4']
    """
    values = [-math.inf, *scores.values(), -math.inf]
    around = zip(values, values[1:], values[2:], strict=False)
    return [name for name, (left, own, right) in zip(scores, around, strict=True) if left < own > right]


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw photographs, and their reconstructions from the features of conv1 to conv4."""
    return table_s1.reconstructions(table, store, BEST, "photographs", STAGES)


STUDIES = (
    Study(
        name="crelu/pairing-imagenet",
        title="Mean cosine of a filter with its most opposite one, minus that of random filters, on ImageNet",
        rows={row: ROWS[row] for row in (BASELINE, BEST)},
        columns={layer: Column(f"{layer} excess", best=None) for layer in MEASURED},
        source="crelu Fig. 2, 3",
        claims=(
            Claim(
                "Fig. 3, ImageNet",
                "With CReLU there are fewer pairs left to learn: the filters of conv1 are less opposite than with "
                "ReLU.",
                (Lower(BASELINE, than=BEST, columns="conv1"),),
                code=("relucid.inspect.pairing",),
            ),
        ),
        figures=histograms,
        **SAME,
    ),
    Study(
        name="crelu/invariance-imagenet",
        title="How often a unit still fires when the photograph is changed, divided by how often it fires, on ImageNet",
        rows={row: ROWS[row] for row in (BASELINE, PHASED)},
        columns={layer: Column(f"{layer} invariance", best="highest", optional=True) for layer in MEASURED},
        source="crelu Fig. 4c",
        claims=(
            Claim(
                "Fig. 4, ImageNet",
                "CReLU networks have higher invariance scores than ReLU networks in all layers.",
                (Higher(PHASED, than=BASELINE, columns=MEASURED),),
                remark=maxima,
                code=("relucid.inspect.invariance", "relucid.papers.crelu.representations.local_maxima"),
            ),
            Claim(
                "Fig. 4, ImageNet, peaks",
                "The scores of the ReLU network have local maxima at conv1, conv4 and conv7.",
                tuple(
                    Higher(BASELINE, columns=peak, than_column=beside)
                    for peak, beside in (
                        ("conv1", "conv2"),
                        ("conv4", "conv3"),
                        ("conv4", "conv5"),
                        ("conv7", "conv6"),
                    )
                ),
                stated="2026-11-17",
                code=("relucid.inspect.invariance",),
            ),
        ),
        figures=fig4.figures,
        **SAME,
    ),
    Study(
        name="crelu/reconstruction-imagenet",
        title="How much of a photograph is lost when it is reconstructed from conv1 to conv4: |x - x'| / |x|",
        rows={BEST: ROWS[BEST]},
        columns={layer: Column(f"{layer} lost", digits=3) for layer in SOURCES},
        source="crelu Fig. 5, Appendix G",
        claims=(
            Claim(
                "Fig. 5, Appendix G, ImageNet",
                "Photographs reconstructed from the features of conv1 to conv4 are recognisable.",
                note="Drawn as a figure; nothing is compared.",
                code=("relucid.inspect.reconstruct",),
            ),
        ),
        figures=figures,
        **SAME,
    ),
)
