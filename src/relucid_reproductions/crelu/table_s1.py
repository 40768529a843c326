"""crelu Table S1 and Fig. 5: how much of a layer's input is lost after CReLU and max-pooling."""

import torch

from relucid.experiments import Cell, Claim, Column, Contrast, Results, Study, arrays_of, by_cell
from relucid.report.figure import Figure
from relucid_reproductions.crelu import table4
from relucid_reproductions.crelu.measures import POOLED, STAGES
from relucid_reproductions.crelu.protocols import SINGLE
from relucid_reproductions.crelu.reconstruction import figure_of_images
from relucid_reproductions.crelu.table1 import CRELU, HALF, ROWS, measuring

# Learned and random filters of conv2, then of conv5.
PUBLISHED = {
    "CIFAR-10": [(0.92, 0.0002), (0.99, 0.00005), (0.96, 0.0003), (0.99, 0.00005)],
    "CIFAR-100": [(0.93, 0.0002), (0.99, 0.00005), (0.96, 0.0001), (0.99, 0.00005)],
}
MEASURED = [f"{layer} {kind}" for layer in POOLED for kind in ("learned", "random")]
REGION, MAP = "one region", "whole map"


def images(results: Results) -> list[Figure]:
    """Draw images and their reconstructions in the first run of a CReLU network (crelu Fig. 5)."""
    row, *_ = results.study.rows
    column, *_ = results.study.columns
    arrays = [arrays_of(record) for record in results.behind(row, column)[:1]]
    if not arrays or "reconstructions" not in arrays[0]:
        return []
    kept = torch.from_numpy(arrays[0]["reconstructions"]).float()  # (images, stages, channels, height, width)
    kept = kept.expand(-1, -1, 3, -1, -1)  # gray images have one channel
    columns = kept.transpose(0, 1).transpose(1, 2).flatten(2, 3)  # stack the images of a stage
    stages = STAGES if row == CRELU else ("image", *(f"from {layer}" for layer in table4.RECONSTRUCTED))
    alt = (
        f"Test images, one below the other, with their reconstructions beside them: {', '.join(stages[1:])}."
    )
    return [Figure("Images reconstructed from features", alt, figure_of_images(list(columns), stages))]


def loses_less(what: str) -> list[Contrast]:
    """Learned filters lose less than random ones."""
    return [
        Contrast(Cell(HALF, f"{layer} learned, {what}"), Cell(HALF, f"{layer} random, {what}"), "lower")
        for layer in POOLED
    ]


def study(name: str, data: str) -> Study:
    """The study of reconstruction on a data set."""
    regions = [f"{label}, {REGION}" for label in MEASURED]
    return measuring(
        name,
        "How much of a layer's input is lost after CReLU and max-pooling: |x - x'| / |x|",
        {label: Column(label, SINGLE, digits=3) for label in regions}
        | {f"{label}, {MAP}": Column(label, SINGLE, digits=3) for label in MEASURED},
        rows={row: ROWS[row] for row in (CRELU, HALF)},
        published=by_cell({HALF: PUBLISHED[data]}, regions),
        paired=True,
        claims=[
            Claim(
                f"Table S1, {data}",
                "After CReLU and pooling, learned filters lose less of their input than random ones.",
                loses_less(REGION),
            ),
            Claim(
                f"Table S1, {data}, a whole map",
                "The same for a whole map: its pooling regions overlap, so it loses less. It is not in the table.",
                loses_less(MAP),
            ),
            Claim(
                f"Fig. 5, Appendix G, {data}",
                "Images reconstructed from the features of conv1 to conv4 are recognizable.",
            ),
        ],
        figures=[images],
    )


STUDIES = [
    study("crelu/reconstruction", "CIFAR-10"),
    study("crelu/reconstruction-100", "CIFAR-100"),
    table4.measuring(
        "reconstruction",
        "How much of a photograph is lost when it is reconstructed from conv1 to conv4: |x - x'| / |x|",
        rows={table4.FOUR: table4.ROWS[table4.FOUR]},
        columns={layer: Column(f"{layer} lost", digits=3) for layer in table4.RECONSTRUCTED},
        claims=[
            Claim(
                "Fig. 5, Appendix G, ImageNet",
                "Photographs reconstructed from the features of conv1 to conv4 are recognizable.",
            )
        ],
        figures=[images],
    ),
]
