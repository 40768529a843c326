"""structure Section 5.1: faster algorithms need fewer layers."""

import math
from itertools import product
from typing import Any

import torch

from relucid.nn.rules import ADMM, HeavyBall, Nesterov, Nesterov2, Plain, Rule
from relucid.papers.structure.convergence import layers_to_reach, strongly_convex
from relucid.report.figure import PALETTE, Figure
from relucid.studies import Claim, Column, Derived, Quantity, Runner, Scale, Store, Study, Table
from relucid.studies.expect import Samples


def rules(kappa: float) -> dict[str, Rule]:
    """The algorithms and their coefficients, for L / mu = kappa and steps of 1 / L."""
    root = math.sqrt(1 / kappa)
    return {
        "gd": Plain(),
        "admm": ADMM(),
        "hb-0.3": HeavyBall(0.3),
        "hb-best": HeavyBall((1 - root) ** 2),
        "hb-1": HeavyBall(1.0),
        "agd-theta": Nesterov(),
        "agd-constant": Nesterov((1 - root) / (1 + root)),
        "agd2-theta": Nesterov2(),
        "agd2-constant": Nesterov2((1 - root) / (1 + root)),
    }


def count(config: dict[str, Any]) -> dict[str, float]:
    """Count the layers until x is within 1e-6 of its first distance from the minimizer, at most `limit`."""
    kappa, seed, size, limit = config["kappa"], config["seed"], config["features"], config["limit"]
    objective, minimizer = strongly_convex(kappa, size, seed)
    begin = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    layers = layers_to_reach(rules(kappa)[config["rule"]], objective, begin, minimizer, limit=limit)
    return {"layers": limit if layers < 0 else layers, "reached": layers >= 0}


def slope(row: str) -> Quantity:
    """The power of kappa by which the layers grow from the smallest kappa to the largest, seed by seed."""

    def sample(table: Table) -> Samples:
        few, many = (table.cells[row, f"kappa = {kappa}"].samples for kappa in (min(KAPPAS), max(KAPPAS)))
        reached = {run["config"]["rule"] for run in table.finished() if run["metrics"]["reached"] == 0}
        if few.keys() != many.keys() or table.study.rows[row]["rule"] in reached:
            return {}
        span = math.log(max(KAPPAS) / min(KAPPAS))
        return {seed: math.log(many[seed] / few[seed]) / span for seed in few}

    return Quantity(f"{row}: power of kappa", sample)


def remark(table: Table) -> str:
    """Say which algorithm needs the fewest layers, how ADMM compares with GD, and which never converged."""
    last = f"kappa = {max(KAPPAS)}"
    layers = {row: table.cells[row, last].mean or math.nan for row in ROWS}
    missed = {run["config"]["rule"] for run in table.finished() if run["metrics"]["reached"] == 0}
    arrived = [row for row, rule in ROWS.items() if rule not in missed]
    best = min(arrived, key=lambda row: layers[row])
    late = ", ".join(row for row in ROWS if row not in arrived)
    return (
        f"At {last}, {best} needs the fewest layers, {layers['GD (7)'] / layers[best]:.1f} times fewer than GD; "
        f"ADMM needs {layers['ADMM (14)'] / layers['GD (7)']:.1f} times as many as GD."
        + (f" Not converged: {late}." if late else "")
    )


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw the number of layers to reach the minimizer, over kappa; algorithms that never reach it are left out."""
    import plotly.graph_objects as go

    study = table.study
    kappas = [column.config["kappa"] for column in study.columns.values()]
    missed = {each["config"]["rule"] for each in table.runs if each["metrics"].get("reached") == 0}
    looks = product(("solid", "dot"), PALETTE)
    plot = go.Figure()
    for row, config in study.rows.items():
        if config["rule"] not in missed:
            dash, colour = next(looks)
            layers = [table.cells[row, column].mean for column in study.columns]
            plot.add_scatter(x=kappas, y=layers, name=row, line={"color": colour, "dash": dash})
    plot.update_xaxes(type="log", title="kappa = L / mu", tickvals=kappas)
    plot.update_yaxes(type="log", title="layers", dtick=1)
    alt = "Lines of the layers over the condition number, both logarithmic, one per algorithm: steeper is slower."
    return [Figure("Layers to reach the minimizer", alt, plot)]


ROWS = {
    "GD (7)": "gd",
    "ADMM (14)": "admm",
    "HB (11), beta = 0.3": "hb-0.3",
    "HB (11), beta = (1 - 1/sqrt(kappa))^2": "hb-best",
    "HB (11), beta = 1": "hb-1",
    "AGD (12), theta_k": "agd-theta",
    "AGD (12), constant of footnote 4": "agd-constant",
    "AGD2 (13), theta_k": "agd2-theta",
    "AGD2 (13), constant of footnote 4": "agd2-constant",
}
KAPPAS = (10, 100, 1000)
BETWEEN = 0.75  # between the claimed powers of kappa, 1/2 and 1
LIMIT = 30_000  # layers
COLUMNS = {f"kappa = {kappa}": Column("layers", {"kappa": kappa}, digits=0) for kappa in KAPPAS}

STUDY = Study(
    name="structure/convergence",
    title="How many layers with a shared weight each rule needs to reach the minimizer of their objective",
    run=Runner("structure/convergence", count),
    rows={row: {"rule": rule} for row, rule in ROWS.items()},
    columns=COLUMNS,
    scales={
        "full": Scale({"features": 100, "limit": LIMIT}, seconds=1),
        "smoke": Scale({"features": 10, "limit": 500}, {"seed": [0, 1]}, seconds=0.1),
    },
    baseline="GD (7)",
    source="structure Section 5.1",
    protocol=(
        "ReLU layers of 100 units, all with the same W and bias; their objective has L = 1 and mu = 1 / kappa, the "
        "eigenvalues of its Hessian are evenly spaced in their logarithm. Layers are counted until x is within 1e-6 of "
        f"the minimizer, relative to the first distance, at most {LIMIT:,}. Three random instances."
    ),
    claims=(
        Claim(
            "Section 5.1",
            "With condition number kappa, gradient descent needs O(kappa) layers, faster algorithms O(sqrt(kappa)).",
            (
                Derived(slope("GD (7)"), "higher", BETWEEN),
                *(
                    Derived(slope(row), "lower", BETWEEN)
                    for row in (
                        "HB (11), beta = (1 - 1/sqrt(kappa))^2",
                        "AGD (12), theta_k",
                        "AGD (12), constant of footnote 4",
                    )
                ),
            ),
            kind="mathematics",
            remark=remark,
            erratum=(
                "It depends on the coefficients: with the theta_k of Eq. 3, layers grow faster than the root of kappa; "
                "with the constant of footnote 4, like the root; heavy ball with beta = 1 does not converge."
            ),
            note="A power below 3/4 counts as 1/2, one above it as 1.",
            code=("relucid.papers.structure.convergence.layers_to_reach",),
            tests=(
                "papers/structure/test_convergence.py::"
                "test_accelerated_rules_need_layers_as_the_root_of_kappa_and_gradient_descent_as_kappa",
            ),
        ),
    ),
    figures=figures,
)
