"""structure Table 2: networks of 10 to 40 layers under five rules learn to map noise to noise."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from relucid.data import Split
from relucid.experiments import Cell, Claim, Column, Contrast, Results, Scale, Study, by_cell, lower, runner
from relucid.models import create
from relucid.report.figure import Figure
from relucid.report.plots import curves
from relucid.train import DivergedError, ensemble

RULES = {"ADMM (14)": "admm", "GD (7)": "gd", "HB (11)": "hb", "AGD (12)": "agd", "AGD2 (13)": "agd2"}
# Eq. 13 has one W for all layers. With one per layer: T_j as layer j computed it ("agd2"), or the newest W on all x_j.
OTHER_READING = {"AGD2 (13), newest W": "agd2-latest"}
DEPTHS = {f"depth {depth}": depth for depth in (10, 20, 30, 40)}
PUBLISHED = {
    "ADMM (14)": (1.07576, 1.07495, 1.07665, 1.07749),
    "GD (7)": (1.00644, 1.00679, 1.00652, 1.00653),
    "HB (11)": (1.00443, 1.00449, 1.00455, 1.00457),
    "AGD (12)": (1.00270, 1.00215, 1.00204, 1.00213),
    "AGD2 (13)": (1.00745, 1.00227, 1.00086, 0.99964),
}
DIGITS = 5  # shown of a loss
LOSSES = [loss for losses in PUBLISHED.values() for loss in losses]
ABOVE_ZERO = sum(loss > 1 for loss in LOSSES)  # 1 is the expected loss of an output of 0


@runner("structure/depth")
def run(
    rule: str, depth: int, features: int, pairs: int, epochs: int, rate: float, seed: int, bias: bool = True
) -> dict[str, Any]:
    """Train one network on pairs x, f ~ N(0, I); measure its loss, that of an output of 0 and that of least squares."""
    x, f = noise(seed, pairs, features)
    torch.manual_seed(seed)
    network = create(f"structure/fc-{rule}", num_classes=features, depth=depth)
    for layer in network.modules():
        if isinstance(layer, nn.Linear) and not bias:
            layer.register_parameter("bias", None)
    course = ensemble([network], [Split(x, f)], rates=[rate], epochs=epochs, loss=mse_loss)
    history = {"train_loss": course.losses[: int(course.epochs), 0].tolist()}
    if course.diverged:
        raise DivergedError(f"the loss was not finite in epoch {int(course.epochs)}", history)
    with torch.no_grad():
        outputs = {"mse": network(x), "mse_of_zero": 0 * f, "mse_of_lstsq": x @ torch.linalg.lstsq(x, f)[0]}
    return {**{name: mse_loss(output, f).item() for name, output in outputs.items()}, "history": history}


def noise(seed: int, pairs: int, features: int) -> tuple[Tensor, Tensor]:
    """Draw the inputs and targets of a seed, (pairs, features) each."""
    x, f = torch.randn(2, pairs, features, generator=torch.Generator().manual_seed(seed))
    return x, f


@cache
def best_constant(seed: int, pairs: int, features: int) -> float:
    """The loss of the mean of all targets, minus that of an output of 0."""
    return -float(noise(seed, pairs, features)[1].mean(0).square().mean())


def excesses(results: Results) -> pd.DataFrame:
    """The loss minus that of an output of 0, by name, depth and seed; also of least squares and of the best constant.

    All networks of a seed see the same noise; the difference removes its size, which no network can influence.
    """
    losses = []
    for record in results.runs():
        config, metrics = record["config"], record["metrics"]
        cell, zero = {"depth": config["depth"], "seed": config["seed"]}, metrics["mse_of_zero"]
        losses += [
            {**cell, "name": record["row"], "excess": metrics["mse"] - zero},
            {**cell, "name": "least squares", "excess": metrics["mse_of_lstsq"] - zero},
            {
                **cell,
                "name": "the best constant",
                "excess": best_constant(config["seed"], config["pairs"], config["features"]),
            },
        ]
    return pd.DataFrame(losses).drop_duplicates(["name", "depth", "seed"])


def ordered(results: Results, depth: int) -> dict[str, float]:
    """The mean excess of every name at a depth, lowest first."""
    losses = excesses(results).query("depth == @depth").groupby("name")["excess"].mean().sort_values()
    return {str(name): float(excess) for name, excess in losses.items() if name not in OTHER_READING}


def constant(results: Results) -> list[int]:
    """The depths at which no network has learned more than a constant."""
    means = {depth: ordered(results, depth) for depth in DEPTHS.values()}
    return [
        depth
        for depth, of in means.items()
        if min(of[row] for row in RULES) > of["the best constant"] - 10.0**-DIGITS
    ]


def figures(results: Results) -> list[Figure]:
    """Draw the loss over the depth, minus that of an output of 0, and over the epochs at the greatest depth."""
    import plotly.express as px

    losses = excesses(results).query("name != 'the best constant'")
    means = losses.groupby(["name", "depth"], sort=False)["excess"].agg(["mean", "sem"]).reset_index()
    plot = px.line(means.sort_values("depth"), x="depth", y="mean", error_y="sem", color="name")
    plot.update_xaxes(title="layers", tickvals=list(DEPTHS.values()))
    plot.update_yaxes(title="mean squared error - that of 0")
    alt = (
        "Lines of the loss after training over the number of layers, one per rule, and one for least squares."
    )
    deepest = list(DEPTHS)[-1]
    return [
        Figure("Loss over depth", alt, plot),
        *curves(
            results, "train_loss", "mean squared error", f"Training curves, {deepest}", columns=[deepest]
        ),
    ]


sigmoids = Study(
    "structure/depth",
    "Five rules that join sigmoid layers, trained to map noise to noise; "
    f"{ABOVE_ZERO} of the {len(LOSSES)} printed losses are above that of an output of 0",
    run,
    rows={name: {"rule": rule} for name, rule in {**RULES, **OTHER_READING}.items()},
    columns={label: Column("mse", {"depth": depth}, digits=DIGITS) for label, depth in DEPTHS.items()},
    scales={
        "full": Scale({"features": 100, "pairs": 10_000, "epochs": 1000}),
        "small": Scale({"features": 32, "pairs": 3200, "epochs": 1000}),
        "smoke": Scale({"features": 8, "pairs": 100, "epochs": 3}, {"seed": [0, 1]}),
    },
    config={"rate": 1e-3},
    published=by_cell(PUBLISHED, list(DEPTHS)),
    claims=[
        Claim(
            "Eq. 15, Table 2",
            "Networks from faster algorithms fit better: AGD2, AGD and HB before GD before ADMM at depths 30 and 40.",
            [
                contrast
                for worse, better in combinations(RULES, 2)
                for contrast in lower(better, worse, ("depth 30", "depth 40"))
            ],
        ),
        Claim(
            "Table 2, depth",
            "AGD2 still fits better with more layers: with 40 better than with 10.",
            [Contrast(Cell("AGD2 (13)", "depth 40"), Cell("AGD2 (13)", "depth 10"), "lower")],
            stated="2026-11-17",
        ),
        Claim(
            "Table 2, depth of GD, HB and AGD",
            "GD, HB and AGD do not always fit better with more layers: with 40 worse than with 30.",
            [Contrast(Cell(row, "depth 40"), Cell(row, "depth 30"), "higher") for row in list(RULES)[1:4]],
            stated="2026-11-19",
        ),
    ],
    figures=[figures],
)
STUDIES = [
    sigmoids,
    sigmoids.variant(
        "structure/depth-unbiased",
        "Five rules that join sigmoid layers without biases, trained to map noise to noise",
        config={**sigmoids.config, "bias": False},
        claims=[
            replace(claim, where=f"{claim.where}, without biases", stated="") for claim in sigmoids.claims
        ],
    ),
]
