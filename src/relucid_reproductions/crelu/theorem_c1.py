"""The baseline of crelu Table S1: how much of its input a layer with random filters loses."""

import torch
from torch import nn

from relucid.experiments import Claim, Column, Results, Scale, Study, near, runner
from relucid_reproductions.crelu.measures import KERNEL, REGION
from relucid_reproductions.crelu.reconstruction import random_layer, random_ratio, ratio_of_layer

PRINTED, TRUE, BOTH = "√(1 - K/D), printed D", "√(1 - K/D), true D", "√(1 - 2K/D), true D"
PROJECTED, POOLED, MAP = "random projection", "one pooling region", "a whole map"
METRICS = {
    PRINTED: "printed",
    TRUE: "true",
    BOTH: "both",
    PROJECTED: "projected",
    POOLED: "pooled",
    MAP: "map",
}
SIZE = 16  # height and width of a map
LAYERS = {"conv2": (48, 96), "conv5": (96, 192)}  # filters, input channels
MARGIN = 0.0005  # of a ratio: half of the last digit but one


@runner("crelu/random")
def run(filters: int, channels: int, inputs: int, maps: int, seed: int) -> dict[str, float]:
    """Compute the ratios of Theorem C.1, and measure those of random projections and filters on isotropic inputs."""
    torch.manual_seed(seed)
    dimension = channels * REGION**2
    x = torch.randn(inputs, channels, REGION, REGION)
    layer = nn.Conv2d(channels, filters, KERNEL, bias=False)
    dense = nn.Linear(dimension, filters, bias=False)
    whole = nn.Conv2d(channels, filters, KERNEL, padding=1, bias=False)
    wide = torch.randn(maps, channels, SIZE, SIZE)
    return {
        # crelu Appendix C uses the number of filters instead of channels; CReLU has doubled the latter.
        "printed": random_ratio(filters * REGION**2, filters),
        "true": random_ratio(dimension, filters),
        "both": random_ratio(dimension, 2 * filters),  # Algorithm 2 has an equation for each phase
        "projected": float(ratio_of_layer(random_layer(dense), x.flatten(1)).mean()),
        "pooled": float(ratio_of_layer(random_layer(layer), x, nn.MaxPool2d(KERNEL)).mean()),
        "map": float(ratio_of_layer(random_layer(whole), wide, nn.MaxPool2d(3, 2, ceil_mode=True)).mean()),
    }


def both(row: str, phases: int = 2) -> float:
    """The ratio of Theorem C.1 with the true D, for the equations of both phases: recorded runs may lack it."""
    filters, channels = LAYERS[row]
    return random_ratio(channels * REGION**2, phases * filters)


def recovered(results: Results, row: str) -> tuple[float, float]:
    """What the equations of the second phase and max-pooling's selection recover, in % of the energy."""
    pooled = results[row, POOLED].mean() ** 2
    return 100 * (both(row, 1) ** 2 - both(row) ** 2), 100 * (both(row) ** 2 - pooled)


STUDIES = [
    Study(
        "crelu/random",
        "How much of their input random filters lose: |x - x'| / |x|",
        run,
        {row: {"filters": filters, "channels": channels} for row, (filters, channels) in LAYERS.items()},
        {label: Column(metric, best=None, digits=4) for label, metric in METRICS.items()},
        {
            "full": Scale({"inputs": 100, "maps": 4}),
            "smoke": Scale({"inputs": 3, "maps": 1}, {"seed": [0]}),
        },
        repeat={"seed": range(10)},
        paired=False,
        published={(row, POOLED): (0.99, 0.00005) for row in LAYERS},
        claims=[
            Claim(
                "Theorem C.1",
                "A projection on a random subspace of K of D dimensions loses √(1 - K/D) of a vector's length.",
                [
                    contrast
                    for row, (filters, channels) in LAYERS.items()
                    for contrast in near(row, random_ratio(channels * REGION**2, filters), PROJECTED, MARGIN)
                ],
                kind="mathematics",
            )
        ],
    )
]
