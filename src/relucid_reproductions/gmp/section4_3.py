"""gmp Section 4.3: does initialization depend on the width of a layer?"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrize import is_parametrized

from relucid.data import Split, digits, holdout, moments
from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    not_worse,
    runner,
)
from relucid.models import create
from relucid.nn import GeometricLinear
from relucid.report.figure import Figure
from relucid.train import Plateau
from relucid_reproductions.gmp.drawing import COLORS
from relucid_reproductions.gmp.problems import METHODS, OTHERS, Problem, Trials

# Weights of length 1 (gmp's r = 1), of Glorot's length, and independent standard normal weights: badly scaled.
INITS = {"r = 1": "one", "Glorot": "glorot", "unscaled": "unscaled"}
WIDTHS, DEPTHS = (16, 64, 256, 1024, 4096), (2, 3, 4, 5)
DEEP_WIDTH = 128
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
MARGIN = 1.0  # point of test error


@runner("gmp/width")
def run(
    method: str, init: str, width: int, depth: int, splits: int, epochs: int, images: int | None
) -> dict[str, Any]:
    """Train networks of one shape on digits at all rates; for each split, held-out digits choose the rate."""
    parts = [_parts(split, images) for split in range(splits)]
    networks = []
    for _ in RATES:
        for split in range(splits):
            torch.manual_seed(split)
            networks.append(network(method, init, width, depth))
    trials = Trials(PROBLEM, networks, *(list(kind) * len(RATES) for kind in zip(*parts, strict=True)))
    course = trials.learn([rate for rate in RATES for _ in range(splits)], epochs)
    shape = len(RATES), splits
    chosen = course.best.view(shape).argmin(0, keepdim=True)
    error = trials.errors().view(shape).gather(0, chosen)[0]
    return {
        "error": error.tolist(),
        "trained": (100.0 * (error < 50)).tolist(),
        "rate": [RATES[place] for place in chosen[0]],
    }


def network(method: str, init: str, width: int, depth: int) -> nn.Module:
    """Build a network for digits; `init` determines the length of the hidden units' initial weights."""
    net = create(
        f"gmp/mlp1-{method.lower()}", num_classes=10, in_channels=64, hidden=(width,) * depth, init="glorot"
    )
    if init != "glorot":
        for number in range(1, depth + 1):
            layer = net.get_submodule(f"fc{number}")
            inputs = 64 if number == 1 else width
            _rescale(layer, 1.0 if init == "one" else math.sqrt(inputs))
    return net


@torch.no_grad()
def _rescale(layer: nn.Module, length: float) -> None:
    """Give every unit of a layer weights of this length, under any parameterization."""
    if isinstance(layer, GeometricLinear):
        assert layer.scale is not None
        layer.scale.fill_(length)
        return
    assert isinstance(layer, nn.Linear)
    scaled = layer.weight * (length / layer.weight.norm(dim=1, keepdim=True))
    if is_parametrized(layer):
        layer.weight = scaled  # set through the parametrization
    else:
        layer.weight.copy_(scaled)


def error_rate(outputs: Tensor, targets: Tensor) -> Tensor:
    """The percentage of wrong classes."""
    return 100 * (outputs.argmax(1) != targets).double().mean()


PROBLEM = Problem(digits, cross_entropy, error_rate, 200, Plateau(20, 40))


def _parts(split: int, images: int | None) -> tuple[Split, Split, Split]:
    """The splits to train on, to choose the rate and the end of training by, and to test on."""
    data = digits(split)
    rest, held = holdout(data.train, 0.2, split)
    normal = moments(rest)

    def prepared(part: Split) -> Split:
        return Split(normal.normalize(part.inputs[:images]).flatten(1), part.targets[:images])

    return prepared(rest), prepared(held), prepared(data.test)


BY_WIDTH = {f"width {width}": Column("error", {"width": width, "depth": 1}) for width in WIDTHS}
BY_DEPTH = {f"depth {depth}": Column("error", {"width": DEEP_WIDTH, "depth": depth}) for depth in DEPTHS}
SHAPES = {**BY_WIDTH, **BY_DEPTH}
ROWS = {
    f"{method}, {label}": {"method": method, "init": init}
    for method in METHODS
    for label, init in INITS.items()
}


def cost(method: str, column: str) -> Quantity:
    """How much worse a method is with badly scaled weights than with Glorot's, split by split."""
    cells = [Cell(f"{method}, {init}", column) for init in ("unscaled", "Glorot")]
    return Quantity(f"{method}, cost of bad scale, {column}", cells, lambda bad, good: bad - good)


def trained(results: Results) -> list[float]:
    """Of every network, 100 if it trained and 0 if not."""
    return [value for row, column in results.cells for value in results[row, column, "trained"]]


def most(results: Results, method: str) -> float:
    """The most that r = 1 costs a method, in points."""
    means = results.table()["mean"]
    cost = means.loc[f"{method}, r = 1"] - means.loc[f"{method}, Glorot"]
    return float(cost.max())


def figures(results: Results) -> list[Figure]:
    """Draw the test error over the width and over the depth, one line per method and initialization."""
    import plotly.express as px

    cells = results.table().reset_index()
    cells[["method", "initial weights"]] = cells["row"].str.split(", ", expand=True)
    cells[["shape", "size"]] = cells["column"].str.split(" ", expand=True)
    plot = px.line(
        cells.astype({"size": int}), x="size", y="mean", error_y="error", color="method", color_discrete_map=COLORS,
        line_dash="initial weights", facet_col="shape", log_x=True, log_y=True,
    )  # fmt: skip
    plot.update_xaxes(matches=None, title="").update_yaxes(title="test error %", col=1)
    alt = (
        "Lines of the test error over the width of a hidden layer, and over the number of hidden layers, one per "
        "parameterization and initialization."
    )
    return [Figure("Test error over the width and the depth", alt, plot)]


initialization = Study(
    "gmp/width",
    "Test error on handwritten digits under three initializations, over the width and the depth",
    run,
    rows=ROWS,
    columns=SHAPES,
    scales={
        "full": Scale({"splits": 8, "epochs": 200, "images": None}),
        "smoke": Scale({"splits": 2, "epochs": 2, "images": 50}),
    },
    repeat={},
    splits=tuple(ROWS),
    tries=RATES,
    claims=[
        Claim(
            "Section 4.3, r = 1",
            f"GmP with r = 1 is at most {MARGIN:g} point worse than with Glorot's scales, at any width and depth.",
            not_worse("GmP, r = 1", "GmP, Glorot", list(SHAPES), MARGIN),
        ),
        Claim(
            "Section 4.3, badly scaled",
            "Badly scaled initial weights cost GmP less than other parameterizations, at every width and depth.",
            [
                Contrast(cost("GmP", shape), cost(other, shape), "lower")
                for other in OTHERS
                for shape in SHAPES
            ],
            stated="2026-11-17",
        ),
    ],
    figures=[figures],
)
STUDIES = [initialization]
