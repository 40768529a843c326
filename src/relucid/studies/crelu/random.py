"""The baseline of crelu Table S1: how much of its input a layer with random filters loses."""

from typing import Any

import torch
from torch import nn

from relucid.inspect import random_layer, random_ratio, ratio_of_layer
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table
from relucid.studies.words import mean

KERNEL, REGION = 3, 5  # 3x3 filters at the 3x3 places of a pooling region see 5x5 pixels
PRINTED, TRUE = "√(1 - K/D), printed D", "√(1 - K/D), true D"
PROJECTED, POOLED, MAP = "random projection", "one pooling region", "a whole map"
SIZE = 16  # of a map


def run(config: dict[str, Any]) -> dict[str, float]:
    """Ratios by Theorem C.1, and of random projections and random filters on isotropic inputs."""
    torch.manual_seed(config["seed"])
    filters, channels, count = config["filters"], config["channels"], config["inputs"]
    dimension = channels * REGION**2
    x = torch.randn(count, channels, REGION, REGION)
    layer = nn.Conv2d(channels, filters, KERNEL, bias=False)
    dense = nn.Linear(dimension, filters, bias=False)
    whole = nn.Conv2d(channels, filters, KERNEL, padding=1, bias=False)
    maps = torch.randn(config["maps"], channels, SIZE, SIZE)
    return {
        # crelu Appendix C takes the number of filters for that of channels; CReLU has doubled it.
        "printed": random_ratio(filters * REGION**2, filters),
        "true": random_ratio(dimension, filters),
        "projected": float(ratio_of_layer(random_layer(dense), x.flatten(1)).mean()),
        "pooled": float(ratio_of_layer(random_layer(layer), x, nn.MaxPool2d(KERNEL)).mean()),
        "map": float(ratio_of_layer(random_layer(whole), maps, nn.MaxPool2d(3, 2, ceil_mode=True)).mean()),
    }


RUNNER = Runner("crelu/random", run)


def verdict(table: Table) -> str:
    """What is simulated against what is printed."""
    said = []
    for row in table.study.rows:
        exact, projected, pooled, printed, whole = (
            mean(table.cells[row, column]) for column in (TRUE, PROJECTED, POOLED, PRINTED, MAP)
        )
        said.append(
            f"{row}: random projections lose {projected:.4f}, Theorem C.1 says {exact:.4f} ({printed:.4f} with the "
            f"paper's D), but max-pooling selects, and what is selected tells more: "
            f"{pooled:.4f} are lost in one region, {whole:.4f} of a map, whose regions overlap"
        )
    theirs = 0.99
    near = all(round(mean(table.cells[row, PROJECTED]), 2) == theirs for row in table.study.rows)
    agrees = "agrees with a random projection" if near else "does not agree with a random projection"
    return f"{'. '.join(said)}. The published {theirs} {agrees}."


STUDIES = (
    Study(
        name="crelu/random",
        title="What random filters lose of their input: |x - x'| / |x|",
        run=RUNNER,
        rows={"conv2": {"filters": 48, "channels": 96}, "conv5": {"filters": 96, "channels": 192}},
        columns={
            PRINTED: Column("printed", best=None, digits=4),
            TRUE: Column("true", best=None, digits=4),
            PROJECTED: Column("projected", best=None, digits=4),
            POOLED: Column("pooled", best=None, digits=4),
            MAP: Column("map", best=None, digits=4),
        },
        scales={
            "full": Scale({"inputs": 100, "maps": 4}, seconds=5),
            "smoke": Scale({"inputs": 3, "maps": 1}, {"seed": [0]}, seconds=1),
        },
        repeat={"seed": range(10)},
        published={row: {POOLED: (0.99, 0.00005)} for row in ("conv2", "conv5")},
        source="crelu Table S1, random",
        claim="Random filters recover 1% of a layer's input: the expected ratio is √(1 - K/D).",
        verdict=verdict,
        protocol="Standard normal filters and inputs. Theorem C.1 holds for the root of the mean square.",
    ),
)
