"""structure Table 4: HB-Net against ResNet and AGD-Net against DenseNet on CIFAR."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relucid.experiments import (
    Cell,
    Claim,
    Column,
    Comparison,
    Contrast,
    Quantity,
    Results,
    Scale,
    Study,
    compare,
    compare_shares,
    lower,
    merge,
    runner,
    tuning,
)
from relucid.report.plots import curves
from relucid.train import Machine
from relucid_reproductions.images import evaluated, held_out
from relucid_reproductions.structure.images import AUGMENT, DECAY, RECIPE, train

RESNET, CONTROL, HBNET = "ResNet", "ResNet without ReLU after the sum", "HB-Net (16)"
DENSENET, AGDNET = "DenseNet", "AGD-Net (18)"
ROWS: dict[str, dict[str, Any]] = {
    RESNET: {"family": "residual", "design": {}},
    CONTROL: {"family": "residual", "design": {"rectify": "nowhere"}},
    HBNET: {"family": "residual", "design": {"propagation": "heavy_ball"}},
    DENSENET: {"family": "dense", "design": {}},
    AGDNET: {"family": "dense", "design": {"propagation": "nesterov2"}},
}
# Not in the table: the paper only derives them (Eq. 14, 20).
DERIVED: dict[str, dict[str, Any]] = {
    "ADMM-Net (14)": {"family": "residual", "design": {"propagation": "admm"}},
    "DMRNet (20)": {"family": "residual", "design": {"propagation": {"rule": "RelaxedADMM"}}},
}
# Error rates without and with augmentation, by data set, n and L.
PUBLISHED = {
    ("CIFAR-10", 9, 40): ((10.05, 5.32), (10.17, 5.46), (7.0, 5.24), (6.44, 5.2)),
    ("CIFAR-10", 18, 52): ((9.17, 5.06), (8.66, 5.04), (6.05, 5.09), (5.75, 4.94)),
    ("CIFAR-100", 9, 40): ((39.65, 26.03), (38.52, 26.0), (27.55, 24.42), (26.33, 24.87)),
    ("CIFAR-100", 18, 52): ((38.13, 24.71), (36.4, 23.93), (26.3, 24.33), (24.92, 23.84)),
}


@runner("structure/cifar")
def run(machine: Machine | None = None, **settings: Any) -> dict[str, Any]:
    """Train one network and test it once; `settings` are those of `train`."""
    fitted, data = train(machine=machine, **settings)
    return held_out(fitted) if settings.get("share") else evaluated(fitted, data, "error")


FULL = Scale({"decay": DECAY})
SMALL = Scale(
    {
        "images": 5000,
        "pool": 2,
        "residual": {"depth": 20, "width": 0.5},
        "dense": {"depth": 16, "growth": 8},
        "recipe": {"epochs": 10},
    }
)
SMOKE = Scale(
    {
        "data": "digits",
        "images": 64,
        "residual": {"depth": 8, "width": 0.25},
        "dense": {"depth": 7, "growth": 2},
        "recipe": {"epochs": 1},
    },
    {"seed": [0, 1]},
)
# DenseNet's own recipe: dropout where nothing is augmented.
WITHOUT: dict[str, Any] = {"recipe": {"augment": []}, "dense": {"dropout": 0.2}}
# At cpu scale without it: networks that are trained this briefly do not overfit.
BRIEF: dict[str, Any] = {"dense": {"dropout": 0.0}}


def at_rates(config: Mapping[str, Any], chosen: Mapping[str, float]) -> Scale:
    """A scale at which two cores can answer the claim about some of the rows, each at the rate chosen for it."""
    return Scale(
        {"pool": 2, **config},
        {"seed": range(4)},
        rows={row: merge(BRIEF, {"recipe": {"lr": rate}}) for row, rate in chosen.items()},
        columns=("CIFAR-10", "parameters"),
    )


DENSE_CPU = at_rates(
    {"dense": {"depth": 13, "growth": 8}, "decay": {"dense": "all"}, "recipe": {"epochs": 8}},
    {DENSENET: 0.1, AGDNET: 0.1},
)
RESIDUAL_CPU = at_rates(
    {"residual": {"depth": 20, "width": 0.5}, "recipe": {"epochs": 14}},
    {RESNET: 0.1, CONTROL: 0.1, HBNET: 0.3},
)


def study(name: str, data: str, n: int, depth: int, scales: Mapping[str, Scale]) -> Study:
    """The table's rows on a data set, with 6n + 2 and `depth` layers."""
    columns = data, f"{data} (+)"
    published = {
        (row, column): error
        for row, errors in zip((RESNET, HBNET, DENSENET, AGDNET), PUBLISHED[data, n, depth], strict=True)
        for column, error in zip(columns, errors, strict=True)
    }
    return Study(
        name,
        f"Layers joined by heavy ball and by Nesterov's method on {data} "
        f"(at full scale, {6 * n + 2} and {depth} of them)",
        run,
        rows=ROWS | DERIVED if (data, n) == ("CIFAR-10", 9) else ROWS,
        columns={
            columns[0]: Column("error", WITHOUT),
            columns[1]: Column("error", {"recipe": {"augment": AUGMENT}}),
            "parameters": Column("parameters", WITHOUT, {"seed": [0]}, best=None, digits=0),
        },
        scales=scales,
        config={
            "data": data.lower().replace("-", ""),
            "residual": {"name": "resnet_cifar", "depth": 6 * n + 2},
            "dense": {"name": "densenet_cifar", "depth": depth},
            "recipe": RECIPE,
        },
        published=published,
        claims=claimed(data, n, depth, columns, published),
        figures=[curves],
    )


def claimed(
    data: str, n: int, depth: int, columns: Sequence[str], published: Mapping[tuple[str, str], float]
) -> list[Claim]:
    """The claims of the table about these networks."""
    where = f"Table 4, {data}"

    def better(row: str, than: str) -> list[Contrast]:
        """In the columns in which the paper's own figures are lower: of the others it claims nothing."""
        return lower(
            row, than, [label for label in columns if published[row, label] < published[than, label]]
        )

    dense = Claim(
        f"{where}, AGD-Net, L = {depth}",
        "AGD-Net has a lower error than DenseNet.",
        better(AGDNET, DENSENET),
    )
    control = Claim(
        f"{where}, HB-Net against its control, n = {n}",
        "HB-Net has a lower error than ResNet without ReLU after the sum.",
        lower(HBNET, CONTROL, columns),
    )
    # At n = 9 on CIFAR-10 the paper's own figures are the other way round: there it claims nothing of HB-Net.
    if published[HBNET, data] > published[RESNET, data]:
        return [dense, control]
    residual = Claim(
        f"{where}, HB-Net, n = {n}", "HB-Net has a lower error than ResNet.", better(HBNET, RESNET)
    )
    return [residual, control, dense]


cifar = study(
    "structure/cifar", "CIFAR-10", 9, 40, {"full": FULL, "cpu": DENSE_CPU, "small": SMALL, "smoke": SMOKE}
)
deeper = study(
    "structure/cifar-deeper", "CIFAR-10", 18, 52, {"full": FULL, "cpu": RESIDUAL_CPU, "smoke": SMOKE}
)
cifar_rates, deeper_rates = (
    tuning(
        of,
        rates,
        lambda rate: merge(WITHOUT, BRIEF, {"share": 0.1, "seed": 100, "recipe": {"lr": rate}}),
        smoke={"images": 128},
        epochs=4,
    )
    for of, rates in ((cifar, (0.03, 0.1, 0.3)), (deeper, (0.03, 0.1, 0.3, 1.0)))
)


def of_size(row: str, n: int) -> str:
    """A row of structure/growth."""
    return f"{row}, n = {n}"


def gain(n: int, column: str) -> Quantity:
    """By how much HB-Net's error is below ResNet's, seed by seed."""
    cells = [Cell(of_size(row, n), column) for row in (RESNET, HBNET)]
    return Quantity(f"gain of HB-Net, n = {n}, {column}", cells, lambda resnet, hbnet: resnet - hbnet)


DATA = {
    f"{data}{label}": merge(config, {"data": data.lower().replace("-", "")})
    for data in ("CIFAR-10", "CIFAR-100")
    for label, config in (("", WITHOUT), (" (+)", {"recipe": {"augment": AUGMENT}}))
}
GROWING = {
    of_size(row, n): merge(ROWS[row], {"residual": {"depth": 6 * n + 2}, "dense": {"depth": depth}})
    for n, depth in ((9, 40), (18, 52))
    for row in (RESNET, HBNET)
}
growth = Study(
    "structure/growth",
    "HB-Net and ResNet with 56 and 110 layers on CIFAR: the runs of structure/cifar and its siblings",
    run,
    rows=GROWING,
    columns={label: Column("error", config) for label, config in DATA.items()},
    # Rows fix the depth, and columns the data: the smoke scale must say again, for each row, what it is.
    scales={"full": FULL, "smoke": replace(SMOKE, rows=dict.fromkeys(GROWING, SMOKE.config))},
    config=cifar.config,
    published={
        (of_size(row, n), f"{data}{label}"): errors[row_place][column_place]
        for (data, n, _), errors in PUBLISHED.items()
        for row_place, row in enumerate((RESNET, HBNET))
        for column_place, label in enumerate(("", " (+)"))
    },
    claims=[
        Claim(
            "Table 4, HB-Net, n = 9 and 18",
            "HB-Net's gain over ResNet is larger with n = 18 than with n = 9.",
            [Contrast(gain(18, label), gain(9, label), "higher") for label in DATA],
            stated="2026-11-17",
        )
    ],
)


def at(row: str, rate: float) -> str:
    """A row of structure/momentum."""
    return f"{row}, rate {rate:g}"


def where_both_end(results: Results, row: str, than: str) -> tuple[int, Comparison | None]:
    """In how many seeds neither of two rows diverges, and how they differ there; this decides nothing."""
    ours, theirs = (results[side, "CIFAR-10"] for side in (row, than))
    both = ours.index.intersection(theirs.index)
    return len(both), compare(ours[both], theirs[both], paired=True)


HB_LARGE, CONTROL_LARGE, CONTROL_OWN = at(HBNET, 0.3), at(CONTROL, 0.3), at(CONTROL, 0.1)
SHARE = Quantity(
    f"{HB_LARGE} minus {CONTROL}, share of runs that do not diverge",
    [Cell(row, "CIFAR-10", "finished") for row in (HB_LARGE, CONTROL_LARGE)],
    compare_shares,
)
momentum = Study(
    "structure/momentum",
    "HB-Net and ResNet without ReLU after the sum at the same learning rates, 20 layers, on CIFAR-10",
    run,
    rows={
        at(row, rate): merge(ROWS[row], BRIEF, {"recipe": {"lr": rate}})
        for row, rates in ((RESNET, (0.1,)), (CONTROL, (0.1, 0.3)), (HBNET, (0.1, 0.3)))
        for rate in rates
    },
    columns={"CIFAR-10": Column("error", WITHOUT)},
    scales={"cpu": Scale(RESIDUAL_CPU.config, {"seed": range(10, 18)}), "smoke": SMOKE},
    config=deeper.config,
    paper=merge(deeper.config, {"residual": {"width": 1}}),
    claims=[
        Claim(
            "Table 4, momentum at equal rates",
            "HB-Net has a lower error than ResNet without ReLU after the sum at the same rate.",
            [
                contrast
                for rate in (0.1, 0.3)
                for contrast in lower(at(HBNET, rate), at(CONTROL, rate), "CIFAR-10")
            ],
        ),
        Claim(
            "Table 4, the rate without momentum",
            "ResNet without ReLU after the sum has a lower error at HB-Net's rate than at its own.",
            lower(CONTROL_LARGE, CONTROL_OWN, "CIFAR-10"),
        ),
        Claim(
            "Table 4, HB-Net on new seeds",
            "HB-Net has a lower error than ResNet, each at its rate of structure/cifar-deeper.",
            lower(HB_LARGE, at(RESNET, 0.1), "CIFAR-10"),
            stated="2026-11-18",
        ),
        Claim(
            "Table 4, divergence without momentum",
            "At HB-Net's rate, HB-Net is trained to the end more often than ResNet without ReLU after the sum.",
            [Contrast(SHARE, 0.0, "higher")],
            stated="2026-11-18",
        ),
    ],
    figures=[curves],
)
STUDIES = [
    replace(cifar, tuning={"cpu": cifar_rates}),
    replace(deeper, tuning={"cpu": deeper_rates}),
    momentum,
    study("structure/cifar100", "CIFAR-100", 9, 40, {"full": FULL, "smoke": SMOKE}),
    study("structure/cifar100-deeper", "CIFAR-100", 18, 52, {"full": FULL, "smoke": SMOKE}),
    growth,
    cifar_rates,
    deeper_rates,
]
