"""crelu Table 5: how many parameters the networks have."""

from typing import Any

from relucid.models import create, describe
from relucid.studies import Claim, Column, Equal, Runner, Scale, Study

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


CIRCULAR = "All-CNN-B, CReLU (all)"


def count(config: dict[str, Any]) -> dict[str, float]:
    """Count the weights of the convolutions, without biases as the papers do, and the multiply-adds per image."""
    net = create(config["model"], num_classes=config["classes"])
    weights = sum(parameter.numel() for parameter in net.parameters() if parameter.dim() > 1)
    return {
        "weights": weights,
        "millions": weights / 1e6,
        "multiply_adds": describe(net).multiply_adds / 1e6,
    }


def _counted(backbone: str) -> tuple[Equal, ...]:
    """The published counts of a backbone's networks, except the one that our reading of Table S12 was chosen by."""
    return tuple(
        Equal(row, MILLIONS, millions)
        for row, (_, _, millions) in PARAMETERS.items()
        if row.startswith(backbone) and row != CIRCULAR
    )


STUDIES = (
    Study(
        name="crelu/parameters",
        title="Parameters of the networks of crelu",
        run=Runner("crelu/parameters", count),
        rows={row: {"model": model, "classes": classes} for row, (model, classes, _) in PARAMETERS.items()},
        columns={
            MILLIONS: Column("millions", best=None, digits=1),
            "weights": Column("weights", best=None, digits=0),
            "millions of multiply-adds": Column("multiply_adds", best=None, digits=0),
        },
        scales={"full": Scale(seconds=1), "smoke": Scale(seconds=1)},
        repeat={},
        published={row: {MILLIONS: millions} for row, (_, _, millions) in PARAMETERS.items()},
        source="crelu Tables 1 and 5",
        protocol=(
            "Weights of the convolutions in Tables S2, S3 and S8 to S13, without biases. Table 1's 1.4M is that of the "
            "nine-layer ConvPool-CNN-C that the paper builds on, and the others are multiples of it; Tables S2 and S3 "
            "print eight layers."
        ),
        claims=(
            Claim(
                "Table 1, parameters",
                "The networks of Table 1 have 1.4M, 5.6M, 1.4M, 2.8M and 0.7M parameters.",
                _counted("ConvPool"),
                kind="mathematics",
                erratum="The networks of Tables S2 and S3 have 1.3M, 5.1M, 1.3M, 2.6M and 0.6M.",
                code=("relucid.papers.crelu.table5.count",),
            ),
            Claim(
                "Table 5",
                "All-CNN-B has 9.4M parameters, CReLU (conv1,4,7) 8.6M and CReLU (conv1-4) 10.1M.",
                _counted("All-CNN-B"),
                kind="mathematics",
                erratum="The text's 4.6M is a slip for 4.7M.",
                note="CReLU (all) is not counted: the reading of Table S12 was chosen because it gives the 4.7M.",
                code=("relucid.papers.crelu.table5.count",),
                tests=(
                    "models/test_published.py::test_layers_and_weights_of_convpool_and_all_cnn_are_those_of_the_tables",
                ),
            ),
        ),
    ),
)
