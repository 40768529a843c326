"""crelu Table 5: how many parameters the networks have."""

from itertools import chain

from relucid.experiments import Claim, Column, Scale, Study, equal, runner
from relucid.models import create, describe

MILLIONS = "millions of weights"
# In millions, crelu Tables 1 and 5.
PARAMETERS = {
    "ConvPool, baseline": ("crelu/convpool-baseline", 10, 1.4),
    "ConvPool, double": ("crelu/convpool-double", 10, 5.6),
    "ConvPool, AVR": ("crelu/convpool-avr", 10, 1.4),
    "ConvPool, CReLU": ("crelu/convpool-crelu", 10, 2.8),
    "ConvPool, CReLU (half)": ("crelu/convpool-half", 10, 0.7),
    "All-CNN-B": ("crelu/all_cnn_b-baseline", 1000, 9.4),
    "All-CNN-B, CReLU (all)": ("crelu/all_cnn_b-crelu-all", 1000, 4.7),
    "All-CNN-B, CReLU (conv1,4,7)": ("crelu/all_cnn_b-crelu-1,4,7", 1000, 8.6),
    "All-CNN-B, CReLU (conv1-4)": ("crelu/all_cnn_b-crelu-1-4", 1000, 10.1),
}
# As Table S3 prints it: 48 filters in conv3 instead of 96.
PRINTED = {"ConvPool, CReLU (half), as printed": ("crelu/convpool-half-printed", 10)}
CIRCULAR = "All-CNN-B, CReLU (all)"  # our reading of Table S12 was chosen by this count


@runner("crelu/parameters")
def count(model: str, classes: int) -> dict[str, float]:
    """Count the weights of the convolutions, without biases as the papers do, and the multiply-adds per image."""
    net = create(model, num_classes=classes)
    weights = sum(parameter.numel() for parameter in net.parameters() if parameter.dim() > 1)
    return {"weights": weights, "millions": weights / 1e6, "multiply_adds": describe(net).multiply_adds / 1e6}


def counted(backbone: str, where: str, says: str) -> Claim:
    """The claim that a backbone's networks have the published numbers of weights."""
    rows = {row: millions for row, (*_, millions) in PARAMETERS.items() if row.startswith(backbone)}
    counts = (equal(row, millions, MILLIONS) for row, millions in rows.items() if row != CIRCULAR)
    return Claim(where, says, [*chain.from_iterable(counts)], kind="mathematics")


COUNTS = Study(
    "crelu/parameters",
    "Parameters of the networks of crelu",
    count,
    {row: {"model": model, "classes": classes} for row, (model, classes, _) in PARAMETERS.items()},
    {
        MILLIONS: Column("millions", best=None, digits=1),
        "weights": Column("weights", best=None, digits=0),
        "millions of multiply-adds": Column("multiply_adds", best=None, digits=0),
    },
    {"full": Scale(), "smoke": Scale()},
    repeat={},
    paired=False,
    published={(row, MILLIONS): millions for row, (*_, millions) in PARAMETERS.items()},
    claims=[
        counted(
            "ConvPool",
            "Table 1, parameters",
            "The networks of Table 1 have 1.4M, 5.6M, 1.4M, 2.8M and 0.7M parameters.",
        ),
        counted(
            "All-CNN-B",
            "Table 5",
            "All-CNN-B has 9.4M parameters, CReLU (conv1,4,7) 8.6M and CReLU (conv1-4) 10.1M.",
        ),
    ],
)
COUNTS_PRINTED = COUNTS.variant(
    "crelu/parameters-printed",
    "Parameters of the network of crelu that we build otherwise than printed",
    rows={row: {"model": model, "classes": classes} for row, (model, classes) in PRINTED.items()},
    published={(row, MILLIONS): 0.7 for row in PRINTED},
    claims=[
        Claim(
            "Table S3, CReLU (half)",
            "With 48 filters in conv3, as printed, CReLU (half) has the 0.7M parameters of Table 1.",
            [contrast for row in PRINTED for contrast in equal(row, 0.7, MILLIONS)],
            kind="mathematics",
            stated="2026-11-19",
        )
    ],
)
STUDIES = [COUNTS, COUNTS_PRINTED]
