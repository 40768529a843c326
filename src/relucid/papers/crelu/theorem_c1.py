"""The baseline of crelu Table S1: how much of its input a layer with random filters loses."""

from typing import Any

import torch
from torch import nn

from relucid.papers.crelu.measures import KERNEL, REGION
from relucid.papers.crelu.reconstruction import random_layer, random_ratio, ratio_of_layer
from relucid.studies import Claim, Column, Near, Runner, Scale, Study, Table

PRINTED, TRUE, BOTH = "√(1 - K/D), printed D", "√(1 - K/D), true D", "√(1 - 2K/D), true D"
PROJECTED, POOLED, MAP = "random projection", "one pooling region", "a whole map"
SIZE = 16  # height and width of a map
LAYERS = {"conv2": (48, 96), "conv5": (96, 192)}  # filters, input channels
DIGITS = 4
MARGIN = 0.0005  # of a ratio: half of the last digit but one


def run(config: dict[str, Any]) -> dict[str, float]:
    """Compute the ratios of Theorem C.1, and measure those of random projections and filters on isotropic inputs."""
    torch.manual_seed(config["seed"])
    filters, channels, count = config["filters"], config["channels"], config["inputs"]
    dimension = channels * REGION**2
    x = torch.randn(count, channels, REGION, REGION)
    layer = nn.Conv2d(channels, filters, KERNEL, bias=False)
    dense = nn.Linear(dimension, filters, bias=False)
    whole = nn.Conv2d(channels, filters, KERNEL, padding=1, bias=False)
    maps = torch.randn(config["maps"], channels, SIZE, SIZE)
    return {
        # crelu Appendix C uses the number of filters instead of channels; CReLU has doubled the latter.
        "printed": random_ratio(filters * REGION**2, filters),
        "true": random_ratio(dimension, filters),
        "both": random_ratio(dimension, 2 * filters),  # Algorithm 2 has an equation for each phase
        "projected": float(ratio_of_layer(random_layer(dense), x.flatten(1)).mean()),
        "pooled": float(ratio_of_layer(random_layer(layer), x, nn.MaxPool2d(KERNEL)).mean()),
        "map": float(ratio_of_layer(random_layer(whole), maps, nn.MaxPool2d(3, 2, ceil_mode=True)).mean()),
    }


RUNNER = Runner("crelu/random", run)


def remark(table: Table) -> str:
    """Compare the simulated ratios with the printed ones."""
    sentences = []
    for row, (filters, channels) in LAYERS.items():
        pooled, printed, whole = (table.cells[row, column].mean or 0.0 for column in (POOLED, PRINTED, MAP))
        one, both = (random_ratio(channels * REGION**2, phases * filters) for phases in (1, 2))
        second, selected = (100 * (more**2 - less**2) for more, less in ((one, both), (both, pooled)))
        sentences.append(
            f"{row}: the paper's D gives {printed:.4f}; with the true D it is {one:.4f} for the equations of one phase "
            f"and {both:.4f} for those of both, but max-pooling selects the largest responses, which carry "
            f"more information: one region loses {pooled:.4f}, and a whole map, with overlapping regions, "
            f"{whole:.4f}. In energy, the second phase recovers {second:.1f} points, the selection {selected:.1f}"
        )
    return f"{'. '.join(sentences)}."


STUDIES = (
    Study(
        name="crelu/random",
        title="How much of their input random filters lose: |x - x'| / |x|",
        run=RUNNER,
        rows={row: {"filters": filters, "channels": channels} for row, (filters, channels) in LAYERS.items()},
        columns={
            PRINTED: Column("printed", best=None, digits=DIGITS),
            TRUE: Column("true", best=None, digits=DIGITS),
            BOTH: Column("both", best=None, digits=DIGITS, optional=True),
            PROJECTED: Column("projected", best=None, digits=DIGITS),
            POOLED: Column("pooled", best=None, digits=DIGITS),
            MAP: Column("map", best=None, digits=DIGITS),
        },
        scales={
            "full": Scale({"inputs": 100, "maps": 4}, seconds=5),
            "smoke": Scale({"inputs": 3, "maps": 1}, {"seed": [0]}, seconds=1),
        },
        repeat={"seed": range(10)},
        published={row: {POOLED: (0.99, 0.00005)} for row in ("conv2", "conv5")},
        source="crelu Table S1, random",
        protocol="Standard normal filters and inputs. Theorem C.1 holds for the root mean square.",
        claims=(
            Claim(
                "Theorem C.1",
                "A projection on a random subspace of K of D dimensions loses √(1 - K/D) of a vector's length.",
                tuple(
                    Near(row, PROJECTED, random_ratio(channels * REGION**2, filters), MARGIN)
                    for row, (filters, channels) in LAYERS.items()
                ),
                kind="mathematics",
                remark=remark,
                erratum="It holds for the root mean square; the mean is smaller (Jensen), here only slightly.",
                code=("relucid.papers.crelu.reconstruction.random_ratio",),
                tests=(
                    "papers/crelu/test_reconstruction.py::test_a_random_subspace_keeps_its_share_of_the_square",
                ),
            ),
        ),
    ),
)
