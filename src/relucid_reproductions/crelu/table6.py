"""crelu Table 6: the next layer weights the two phases of a unit differently."""

from relucid.experiments import Cell, Claim, Column, Contrast, Quantity, by_cell, lower
from relucid_reproductions.crelu import table4
from relucid_reproductions.crelu.measures import LAYERS
from relucid_reproductions.crelu.protocols import SINGLE
from relucid_reproductions.crelu.table1 import CRELU, HALF, ROWS, measuring

PHASED, NON_PAIR = (CRELU, HALF), "non-pair, mean of layers"
TITLE = "Absolute correlation of the weights that read the two phases of the same and of different units"
SAYS = "The weights that read the two phases of a unit are more alike than those of different units."
KINDS = [f"{layer} {kind}" for layer in LAYERS for kind in ("pair", "non-pair")]
# Same unit and different units, conv1 to conv7; the table's standard deviations are over units.
PUBLISHED = [0.372, 0.165, 0.180, 0.157, 0.462, 0.120, 0.175, 0.119, 0.206, 0.105, 0.256, 0.086, 0.131, 0.080]


def excess(row: str, layer: str) -> Quantity:
    """The correlation within units minus that between units."""
    cells = [Cell(row, layer, f"{layer} {kind}") for kind in ("pair", "non-pair")]
    label = f"{row}, {layer}: same minus different units"
    return Quantity(label, cells, lambda same, different: same - different)


STUDIES = [
    measuring(
        "crelu/phase",
        TITLE,
        {layer: Column(f"{layer} pair", SINGLE, best=None, digits=3) for layer in LAYERS}
        | {NON_PAIR: Column("mean non-pair", SINGLE, best=None, digits=3)},
        rows={row: ROWS[row] for row in PHASED},
        claims=[
            Claim(
                "Table 6",
                SAYS,
                [Contrast(excess(row, layer), 0.0, "higher") for row in PHASED for layer in LAYERS],
            ),
            Claim(
                "Table 6, below 1",
                "The weights that read the two phases of a unit are correlated below 1: the next layer tells them "
                "apart.",
                lower(PHASED, 1.0, LAYERS),
                kind="construction",
            ),
        ],
    ),
    table4.measuring(
        "phase",
        TITLE,
        rows={table4.SEVEN: table4.ROWS[table4.SEVEN]},
        columns={label: Column(label, best=None, digits=3) for label in KINDS},
        published=by_cell({table4.SEVEN: PUBLISHED}, KINDS),
        claims=[
            Claim(
                "Table 6, ImageNet",
                SAYS,
                [
                    Contrast(Cell(table4.SEVEN, same), Cell(table4.SEVEN, different), "higher")
                    for same, different in zip(KINDS[::2], KINDS[1::2], strict=True)
                ],
            )
        ],
    ),
]
