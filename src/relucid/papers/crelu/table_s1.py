"""crelu Table S1 and Fig. 5: how much of a layer's input is lost after CReLU and max-pooling."""

from collections.abc import Sequence

import torch

from relucid.papers.crelu.measures import POOLED, STAGES
from relucid.papers.crelu.protocols import SINGLE
from relucid.papers.crelu.reconstruction import figure_of_images
from relucid.papers.crelu.table1 import HALF, ROWS, SAME_RUNS, SCALES, SCALES100, study
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Lower, Scale, Store, Study, Table

KINDS = ("learned", "random")
PUBLISHED = {
    "CIFAR-10": {"conv2": ((0.92, 0.0002), (0.99, 0.00005)), "conv5": ((0.96, 0.0003), (0.99, 0.00005))},
    "CIFAR-100": {"conv2": ((0.93, 0.0002), (0.99, 0.00005)), "conv5": ((0.96, 0.0001), (0.99, 0.00005))},
}


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw images, and their reconstructions from the features of a CReLU network (crelu Fig. 5)."""
    return reconstructions(table, store, "CReLU", "images", STAGES)


def reconstructions(table: Table, store: Store, row: str, what: str, stages: Sequence[str]) -> list[Figure]:
    """Draw images, and beside them what was reconstructed in the first run of a row, stage by stage."""
    arrays = [store.arrays(run["key"]) for run in table.behind(row)[:1]]
    if not arrays or "reconstructions" not in arrays[0]:
        return []
    kept = torch.from_numpy(arrays[0]["reconstructions"]).float()  # (images, stages, channels, height, width)
    kept = kept.expand(-1, -1, 3, -1, -1)  # grey images have one channel
    columns = kept.transpose(0, 1).transpose(1, 2).flatten(2, 3)  # stack the images of a stage
    alt = (
        f"Test {what}, one below the other, with their reconstructions beside them: {', '.join(stages[1:])}."
    )
    title = f"{what.capitalize()} reconstructed from features"
    return [Figure(title, alt, figure_of_images(list(columns), stages))]


def _claimed(what: str) -> tuple[Lower, ...]:
    return tuple(
        Lower(HALF, columns=f"{layer} learned, {what}", than_column=f"{layer} random, {what}")
        for layer in POOLED
    )


def _study(name: str, data: str, scales: dict[str, Scale]) -> Study:
    regions = {
        f"{layer} {kind}, one region": PUBLISHED[data][layer][place]
        for layer in POOLED
        for place, kind in enumerate(KINDS)
    }
    maps = [f"{layer} {kind}" for layer in POOLED for kind in KINDS]
    return study(
        name,
        scales,
        title="How much of a layer's input is lost after CReLU and max-pooling: |x - x'| / |x|",
        rows={row: ROWS[row] for row in ("CReLU", HALF)},
        columns={label: Column(label, SINGLE, digits=3, optional=True) for label in regions}
        | {f"{label}, whole map": Column(label, SINGLE, digits=3) for label in maps},
        published={HALF: regions},
        source="crelu Table S1",
        protocol=SAME_RUNS,
        paired=True,
        claims=(
            Claim(
                f"Table S1, {data}",
                "After CReLU and pooling, learned filters lose less of their input than random ones.",
                _claimed("one region"),
                erratum=(
                    "Both phases give equations: sqrt(1 - 2K/D) = 0.98 with the true D. Theorem C.1 also ignores that "
                    "max-pooling selects: with random filters one region loses 0.95 of its input, not 0.99. In "
                    "energy, 2 points of that fall are the second phase, 5.4 the selection. The printed D uses the "
                    "number of filters instead of the number of channels."
                ),
                code=(
                    "relucid.papers.crelu.reconstruction.ratio_of_layer",
                    "relucid.papers.crelu.reconstruction.random_layer",
                ),
                tests=(
                    "papers/crelu/test_reconstruction.py::test_max_selection_recovers_more_than_a_random_subspace_would",
                ),
            ),
            Claim(
                f"Table S1, {data}, a whole map",
                "The same for a whole map: its pooling regions overlap, so it loses less. It is not in the table.",
                _claimed("whole map"),
                code=("relucid.papers.crelu.reconstruction.ratio_of_layer",),
            ),
            Claim(
                f"Fig. 5, Appendix G, {data}",
                "Images reconstructed from the features of conv1 to conv4 are recognisable.",
                note="Drawn from conv1, conv2 and pool1 of a ConvPool network; nothing is compared.",
                code=("relucid.inspect.reconstruct", "relucid.papers.crelu.reconstruction.figure_of_images"),
                tests=(
                    "inspect/test_reconstruction.py::test_a_photograph_is_reconstructed_through_a_large_strided_convolution",
                ),
            ),
        ),
        figures=figures,
    )


STUDIES = (
    _study("reconstruction", "CIFAR-10", SCALES),
    _study("reconstruction-100", "CIFAR-100", SCALES100),
)
