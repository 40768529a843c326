"""structure Table 2: networks of 10 to 40 layers under five rules fit noise to noise."""

import math
from collections import Counter, defaultdict
from functools import cache
from itertools import combinations
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from relucid.data import Split
from relucid.models import create
from relucid.studies.run import Result
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import LEVEL, Cell, Table, p_value
from relucid.train import DivergedError, ensemble

RULES = {"ADMM (14)": "admm", "GD (7)": "gd", "HB (11)": "hb", "AGD (12)": "agd", "AGD2 (13)": "agd2"}
MSE = {
    10: (1.07576, 1.00644, 1.00443, 1.00270, 1.00745),
    20: (1.07495, 1.00679, 1.00449, 1.00215, 1.00227),
    30: (1.07665, 1.00652, 1.00455, 1.00204, 1.00086),
    40: (1.07749, 1.00653, 1.00457, 1.00213, 0.99964),
}
DIGITS = 5  # of a loss that are shown


def run(config: dict[str, Any]) -> Result:
    """Train one network on pairs x, f ~ N(0, I); its loss, that of an output of 0, and that of least squares."""
    x, f = noise(config["seed"], config["pairs"], config["features"])
    torch.manual_seed(config["seed"])
    network = create(f"structure/fc-{config['rule']}", num_classes=config["features"], depth=config["depth"])
    course = ensemble(
        [network], [Split(x, f)], rates=[config["rate"]], epochs=config["epochs"], loss=mse_loss
    )
    history = {"train_loss": course.losses[: int(course.epochs), 0].tolist()}
    if course.diverged:
        raise DivergedError(f"the loss was not finite in epoch {int(course.epochs)}", history)
    with torch.no_grad():
        outputs = {"mse": network(x), "mse_of_zero": 0 * f, "mse_of_lstsq": x @ torch.linalg.lstsq(x, f)[0]}
    return Result({name: mse_loss(output, f).item() for name, output in outputs.items()}, history)


def noise(seed: int, pairs: int, features: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a seed, (pairs, features) each."""
    x, f = torch.randn(2, pairs, features, generator=torch.Generator().manual_seed(seed))
    return x, f


@cache
def best_constant(seed: int, pairs: int, features: int) -> float:
    """The loss of the mean of all targets, less that of an output of 0."""
    return -float(noise(seed, pairs, features)[1].mean(0).square().mean())


def excess(table: Table) -> dict[tuple[str, int], dict[int, float]]:
    """By rule and depth, and by seed: the loss less that of an output of 0.

    Least squares is rule "lstsq", the best output that does not depend on the input is rule "constant".

    All networks of a seed see the same noise, and its size is none of their doing.
    """
    found: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for each in table.runs:
        config, metrics = each["config"], each["metrics"]
        if metrics:
            depth, seed, zero = config["depth"], config["seed"], metrics["mse_of_zero"]
            found[config["rule"], depth][seed] = metrics["mse"] - zero
            found["lstsq", depth][seed] = metrics["mse_of_lstsq"] - zero
            found["constant", depth][seed] = best_constant(seed, config["pairs"], config["features"])
    return found


def verdict(table: Table) -> str:
    """The order of the rules at the two greatest depths, and how much it has of the paper's."""
    return " ".join(_order(excess(table), depth) for depth in (30, 40))


def _order(found: dict[tuple[str, int], dict[int, float]], depth: int) -> str:
    means = {name: _cell(*found[rule, depth].values()) for name, rule in RULES.items()}
    listed = ", ".join(
        f"{name} {_signed(cell)}" for name, cell in sorted(means.items(), key=lambda item: item[1].mean or 0)
    )
    lstsq, constant = (mean(found[rule, depth].values()) for rule in ("lstsq", "constant"))
    dull = [name for name, cell in means.items() if _same(cell.mean, constant)]
    less = all(name in dull or (cell.mean or 0) > constant for name, cell in means.items())
    rest = ", by the others not even that" if less and len(dull) < len(means) else ""
    learned = f" No more than that constant was learned by {', '.join(dull)}{rest}." if dull else ""
    return (
        f"At depth {depth} the loss is above that of an output of 0 by, best first: {listed}; the best constant: "
        f"{constant:+.{DIGITS}f}, least squares: {lstsq:+.{DIGITS}f}.{learned} {_pairs(found, depth)}"
    )


def _pairs(found: dict[tuple[str, int], dict[int, float]], depth: int) -> str:
    """How many pairs of rules are in the paper's order; beyond chance, where there are seeds to tell."""
    pairs: Counter[str] = Counter()
    test = "paired t-test, 5%"
    for (one, here), (other, there) in combinations(zip(RULES.values(), MSE[depth], strict=True), 2):
        ours, theirs = found[one, depth], found[other, depth]
        sign = math.copysign(1, here - there)
        gain = _cell(*(sign * (ours[seed] - theirs[seed]) for seed in ours.keys() & theirs.keys()))
        if gain.figure is None:
            test = f"one seed: equal in {DIGITS} digits"
            undecided = _same(gain.mean, 0.0)
        else:
            undecided = p_value(gain.figure, (0.0, 0.0, math.inf)) >= LEVEL
        pairs["undecided" if undecided else "same" if (gain.mean or 0) > 0 else "opposite"] += 1
    return (
        f"Of {pairs.total()} pairs of rules {pairs['same']} are in the paper's order, {pairs['opposite']} in the "
        f"opposite one, {pairs['undecided']} undecided ({test})."
    )


def _same(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 10.0**-DIGITS


def _cell(*values: float) -> Cell:
    return Cell(values, len(values), {})


def _signed(cell: Cell) -> str:
    return f"{cell.mean:+.{DIGITS}f}" + ("" if cell.error is None else f" ± {cell.error:.{DIGITS}f}")


STUDY = Study(
    name="structure/depth",
    title="Five rules that join sigmoid layers, trained to map noise to noise",
    run=run,
    rows={name: {"rule": rule} for name, rule in RULES.items()},
    columns={f"depth {depth}": Column("mse", {"depth": depth}, digits=DIGITS) for depth in MSE},
    scales={
        "full": Scale({"features": 100, "pairs": 10_000, "epochs": 1000}, seconds=400),
        "small": Scale({"features": 32, "pairs": 3200, "epochs": 1000}, seconds=35),
        "smoke": Scale({"features": 8, "pairs": 100, "epochs": 3}, {"seed": [0, 1]}, seconds=0.1),
    },
    config={"rate": 1e-3},
    published={
        name: {f"depth {depth}": values[place] for depth, values in MSE.items()}
        for place, name in enumerate(RULES)
    },
    source="structure Table 2",
    protocol=(
        "The loss on the training data after 1000 epochs, as in the paper: x and f are independent noise, so there "
        "is nothing to generalize. Sigmoid layers with biases, beta = 0.3 for HB. The paper does not name the "
        "optimizer: this is Adam at 0.001 on the full batch. Full scale: 10,000 pairs of 100 features; small: 3,200 "
        "pairs of 32 features, again a hundred pairs a feature. The networks of a seed see the same data."
    ),
    claim=(
        "The faster the algorithm, the better the network: the loss falls in the order ADMM, GD, HB, AGD, AGD2 at "
        "depth 30 and 40, and only AGD2 goes on to gain from depth."
    ),
    verdict=verdict,
    figures="relucid.report.structure:depth",
)
