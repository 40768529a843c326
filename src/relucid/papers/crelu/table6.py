"""crelu Table 6: the next layer weights the two phases of a unit differently."""

from relucid.papers.crelu.measures import LAYERS
from relucid.papers.crelu.protocols import SINGLE
from relucid.papers.crelu.table1 import HALF, ROWS, SAME_RUNS, SCALES, study
from relucid.papers.crelu.table4 import ROWS as IMAGENET_ROWS
from relucid.papers.crelu.table4 import SAME as IMAGENET
from relucid.studies import Claim, Column, Derived, Higher, Lower, Quantity, Study, Table
from relucid.studies.expect import Samples

PHASED = ("CReLU", HALF)
NON_PAIR = "non-pair, mean of layers"
TITLE = "Absolute correlation of the weights that read the two phases of the same and of different units"
SAYS = "The weights that read the two phases of a unit are more alike than those of different units."
BELOW = (
    "The weights that read the two phases of a unit are correlated below 1: the next layer tells them apart."
)
CODE = ("relucid.inspect.phase_correlation",)
# Same unit and different units, conv1 to conv7; the table's standard deviations are over units.
PUBLISHED = (
    (0.372, 0.165),
    (0.180, 0.157),
    (0.462, 0.120),
    (0.175, 0.119),
    (0.206, 0.105),
    (0.256, 0.086),
    (0.131, 0.080),
)
IMAGENET_ROW = "CReLU (conv1-7)"
PHASES = [f"{layer} {kind}" for layer in LAYERS for kind in ("pair", "non-pair")]


def excess(row: str, layer: str) -> Quantity:
    """The correlation within units minus that between units, seed by seed."""

    def sample(table: Table) -> Samples:
        return {
            f"seed {run['config']['seed']}": run["metrics"][f"{layer} pair"]
            - run["metrics"][f"{layer} non-pair"]
            for run in table.behind(row)
        }

    return Quantity(f"{row}, {layer}: same minus different units", sample, (row,))


STUDIES = (
    study(
        "phase",
        SCALES,
        title=TITLE,
        rows={row: ROWS[row] for row in PHASED},
        columns={layer: Column(f"{layer} pair", SINGLE, best=None, digits=3) for layer in LAYERS}
        | {NON_PAIR: Column("mean non-pair", SINGLE, best=None, digits=3)},
        source="crelu Table 6",
        protocol=f"{SAME_RUNS} Table 6 itself is about the ImageNet network conv1-7: see crelu/phase-imagenet.",
        claims=(
            Claim(
                "Table 6",
                SAYS,
                tuple(Derived(excess(row, layer), "higher") for row in PHASED for layer in LAYERS),
                erratum=(
                    "Absolute values are averaged: signed cosines of weights of different units would average about 0, "
                    "not 0.080 to 0.165."
                ),
                note="On the ConvPool networks of Table 1.",
                code=CODE,
                tests=("inspect/test_phase.py::test_phase_correlation_equals_the_cosines_one_by_one",),
            ),
            Claim(
                "Table 6, below 1",
                BELOW,
                (Lower(PHASED, than=1.0, columns=LAYERS),),
                kind="construction",
                note="Almost any weights would pass.",
                code=CODE,
            ),
        ),
    ),
    Study(
        name="crelu/phase-imagenet",
        title=TITLE,
        rows={IMAGENET_ROW: IMAGENET_ROWS[IMAGENET_ROW]},
        columns={label: Column(label, best=None, digits=3) for label in PHASES},
        published={
            IMAGENET_ROW: dict(zip(PHASES, (value for layer in PUBLISHED for value in layer), strict=True))
        },
        source="crelu Table 6",
        claims=(
            Claim(
                "Table 6, ImageNet",
                SAYS,
                tuple(
                    Higher(IMAGENET_ROW, columns=f"{layer} pair", than_column=f"{layer} non-pair")
                    for layer in LAYERS
                ),
                code=CODE,
            ),
        ),
        **IMAGENET,
    ),
)
