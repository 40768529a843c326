"""structure Table 4: HB-Net against ResNet and AGD-Net against DenseNet on CIFAR."""

from collections.abc import Callable, Mapping
from typing import Any

from relucid.models import count_parameters
from relucid.papers.scales import designed, gain
from relucid.papers.structure.images import AUGMENT, DECAY, DECAYS_ALL, RECIPE, train
from relucid.papers.tuning import held_out_error, rates_of
from relucid.report.curves import training
from relucid.studies import Claim, Column, Derived, Lower, Result, Runner, Scale, Study, Table
from relucid.studies.compare import Comparison, compare, compare_shares
from relucid.studies.expect import Statistic
from relucid.studies.plan import merge
from relucid.train import Machine

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
    place: dict(zip((RESNET, HBNET, DENSENET, AGDNET), errors, strict=True))
    for place, errors in {
        ("CIFAR-10", 9, 40): ((10.05, 5.32), (10.17, 5.46), (7.0, 5.24), (6.44, 5.2)),
        ("CIFAR-10", 18, 52): ((9.17, 5.06), (8.66, 5.04), (6.05, 5.09), (5.75, 4.94)),
        ("CIFAR-100", 9, 40): ((39.65, 26.03), (38.52, 26.0), (27.55, 24.42), (26.33, 24.87)),
        ("CIFAR-100", 18, 52): ((38.13, 24.71), (36.4, 23.93), (26.3, 24.33), (24.92, 23.84)),
    }.items()
}


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network and test it once."""
    fitted, data = train(config, machine)
    if config.get("share"):  # the runs that choose a rate do not see the test set
        return held_out_error(fitted.history)
    metrics = {"error": fitted.evaluate(data.test)["error"], "parameters": count_parameters(fitted.network)}
    return Result(metrics, fitted.history)


RUNNER = Runner("structure/cifar", run)

SMALL = Scale(
    {
        "images": 5000,
        "pool": 2,
        "residual": {"depth": 20, "width": 0.5},
        "dense": {"depth": 16, "growth": 8},
        "recipe": {"epochs": 10},
    },
    seconds=45,
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
    seconds=1,
)


# DenseNet's own recipe: dropout where nothing is augmented.
WITHOUT: dict[str, Any] = {"recipe": {"augment": []}, "dense": {"dropout": 0.2}}
# At cpu scale without it: networks that are trained this briefly do not overfit.
BRIEF: dict[str, Any] = {"dense": {"dropout": 0.0}}
DENSE_RATES, RESIDUAL_RATES = (0.03, 0.1, 0.3), (0.03, 0.1, 0.3, 1.0)


def _cpu(name: str, effect: float, seconds: float, config: Any, chosen: Any) -> Scale:
    """A scale at which two cores can answer the claim about some of the rows, each at the rate chosen for it."""
    return Scale(
        {"pool": 2, **config},
        {"seed": range(4)},
        seconds=seconds,
        rows={row: merge(BRIEF, {"recipe": {"lr": rate}}) for row, rate in chosen.items()},
        columns=("CIFAR-10", "parameters"),
        tuned_by=f"{name}-rates",
        protocol=designed(4, 1.5, effect, at=28),
    )


def _effect(n: int, depth: int, row: str, than: str) -> float:
    """By what share the published error of a row without augmentation is lower than another's."""
    published = PUBLISHED["CIFAR-10", n, depth]
    return gain(published[row][0], published[than][0])


DENSE_CPU = _cpu(
    "structure/cifar",
    seconds=300,
    effect=_effect(9, 40, AGDNET, DENSENET),
    config={
        "dense": {"depth": 13, "growth": 8},
        "decay": {"dense": "all"},
        "recipe": {"epochs": 8},
    },
    chosen={DENSENET: 0.1, AGDNET: 0.1},
)
RESIDUAL_CPU = _cpu(
    "structure/cifar-deeper",
    seconds=360,
    effect=_effect(18, 52, HBNET, RESNET),
    config={"residual": {"depth": 20, "width": 0.5}, "recipe": {"epochs": 14}},
    chosen={RESNET: 0.1, CONTROL: 0.1, HBNET: 0.3},
)


def _study(name: str, data: str, n: int, depth: int, scales: dict[str, Scale], *more: Claim) -> Study:
    plain, augmented = data, f"{data} (+)"
    return Study(
        name=name,
        title=(
            f"Layers joined by heavy ball and by Nesterov's method on {data} "
            f"(at full scale, {6 * n + 2} and {depth} of them)"
        ),
        run=RUNNER,
        rows={**ROWS, **DERIVED} if (data, n) == ("CIFAR-10", 9) else ROWS,
        columns={
            plain: Column("error", WITHOUT),
            augmented: Column("error", {"recipe": {"augment": AUGMENT}}),
            "parameters": Column("parameters", WITHOUT, {"seed": [0]}, best=None, digits=0),
        },
        scales=scales,
        config={
            "data": data.lower().replace("-", ""),
            "residual": {"name": "resnet_cifar", "depth": 6 * n + 2},
            "dense": {"name": "densenet_cifar", "depth": depth},
            "recipe": RECIPE,
        },
        published={
            row: dict(zip((plain, augmented), errors, strict=True))
            for row, errors in PUBLISHED[data, n, depth].items()
        },
        source="structure Table 4",
        protocol=(
            "SGD with Nesterov momentum 0.9, batches of 64, learning rate 0.1, cut to a tenth after one half and "
            "after three quarters of 300 epochs, weight decay 0.0001; (+) is with random flips and crops, DenseNet "
            "and AGD-Net without it have dropout 0.2. The test set is looked at once, after training."
        ),
        paired=True,
        claims=(*_claims(data, n, depth, (plain, augmented)), *more),
        figures=training,
    )


def _claims(data: str, n: int, depth: int, columns: tuple[str, str]) -> tuple[Claim, ...]:
    """The claims of the table about these networks."""
    where, published = f"Table 4, {data}", PUBLISHED[data, n, depth]
    code = ("relucid.models.published.STRUCTURE",)
    dense = Claim(
        f"{where}, AGD-Net, L = {depth}",
        "AGD-Net has a lower error than DenseNet.",
        (Lower(AGDNET, than=DENSENET, columns=_lower(AGDNET, DENSENET, columns, published)),),
        code=code,
        tests=("models/test_published.py::test_parameters_are_as_many_as_published",),
    )
    control = Claim(
        f"{where}, HB-Net against its control, n = {n}",
        "HB-Net has a lower error than ResNet without ReLU after the sum.",
        (Lower(HBNET, than=CONTROL, columns=columns),),
        note="Ours: the paper has no such control. It decides on momentum only where both have the same rate.",
        code=code,
    )
    # At n = 9 on CIFAR-10 the paper's own figures are the other way round: there it claims nothing of HB-Net.
    if published[HBNET][0] > published[RESNET][0]:
        return dense, control
    residual = Claim(
        f"{where}, HB-Net, n = {n}",
        "HB-Net has a lower error than ResNet.",
        (Lower(HBNET, than=RESNET, columns=_lower(HBNET, RESNET, columns, published)),),
        code=code,
    )
    return residual, control, dense


def _lower(
    row: str, than: str, columns: tuple[str, str], published: Mapping[str, tuple[float, float]]
) -> tuple[str, ...]:
    """The columns in which the paper's own figures are lower: of the others it claims nothing."""
    return tuple(
        column
        for column, ours, theirs in zip(columns, published[row], published[than], strict=True)
        if ours < theirs
    )


GROWS = Claim(
    "Table 4, HB-Net, n = 9 and 18",
    "HB-Net's gain over ResNet is larger with n = 18 than with n = 9.",
    stated="2026-11-17",
    note="Takes structure/cifar and structure/cifar-deeper at full scale.",
    code=("relucid.models.published.STRUCTURE",),
)


FULL = Scale({"decay": DECAY}, seconds=80_000, protocol=DECAYS_ALL)
DENSE = {"full": FULL, "cpu": DENSE_CPU, "small": SMALL, "smoke": SMOKE}
RESIDUAL = {"full": FULL, "cpu": RESIDUAL_CPU, "smoke": SMOKE}
CIFAR = _study("structure/cifar", "CIFAR-10", 9, 40, DENSE)
DEEPER = _study("structure/cifar-deeper", "CIFAR-10", 18, 52, RESIDUAL)
SAME_RATE = "{}, rate {:g}"
TWO_RATES = (0.1, 0.3)


def reaching_the_end(table: Table) -> Comparison | None:
    """The share of seeds, in per cent, that do not diverge at the larger rate: HB-Net's less its control's."""
    cells = [table.cells[SAME_RATE.format(row, TWO_RATES[1]), "CIFAR-10"] for row in (HBNET, CONTROL)]
    if not all(cell.complete for cell in cells):
        return None
    ends = [[100.0] * len(cell.samples) + [0.0] * cell.states.get("diverged", 0) for cell in cells]
    return compare_shares(*ends)


def where_both_end(a: tuple[str, float], b: tuple[str, float]) -> Callable[[Table], str]:
    """A remark: how two networks at their rates differ in the seeds with which neither diverges, if some do."""

    def remark(table: Table) -> str:
        ours, theirs = (table.cells[SAME_RATE.format(*each), "CIFAR-10"].samples for each in (a, b))
        both = [seed for seed in ours if seed in theirs]
        found = compare([ours[seed] for seed in both], [theirs[seed] for seed in both], paired=True)
        if found is None or ours.keys() == theirs.keys():
            return ""
        return (
            f"{SAME_RATE.format(*a)}, minus {SAME_RATE.format(*b)}, in the {len(both)} seeds in which neither "
            f"diverges: {found.interval}; without a verdict, since not all seeds count."
        )

    return remark


REACHES_THE_END = Statistic(
    f"{SAME_RATE.format(HBNET, TWO_RATES[1])} minus {CONTROL}, share of runs that do not diverge",
    reaching_the_end,
)
MOMENTUM = Study(
    name="structure/momentum",
    title="HB-Net and ResNet without ReLU after the sum at the same learning rates, 20 layers, on CIFAR-10",
    run=RUNNER,
    rows={
        SAME_RATE.format(row, rate): merge(ROWS[row], BRIEF, {"recipe": {"lr": rate}})
        for row, rates in ((RESNET, TWO_RATES[:1]), (CONTROL, TWO_RATES), (HBNET, TWO_RATES))
        for rate in rates
    },
    columns={"CIFAR-10": Column("error", WITHOUT)},
    scales={
        "cpu": Scale(RESIDUAL_CPU.config, {"seed": range(10, 18)}, seconds=330),
        "smoke": SMOKE,
    },
    config=DEEPER.config,
    paper=merge(DEEPER.config, {"residual": {"width": 1}}),
    source="structure Table 4",
    protocol=(
        "As structure/cifar-deeper at cpu scale, with eight seeds that no earlier run has had, and both rates of "
        "the networks there for either. Designed before any of it was run."
    ),
    paired=True,
    claims=(
        Claim(
            "Table 4, momentum at equal rates",
            "HB-Net has a lower error than ResNet without ReLU after the sum at the same rate.",
            tuple(
                Lower(SAME_RATE.format(HBNET, rate), than=SAME_RATE.format(CONTROL, rate), columns="CIFAR-10")
                for rate in TWO_RATES
            ),
            remark=where_both_end((HBNET, TWO_RATES[1]), (CONTROL, TWO_RATES[1])),
            note="Ours: the paper has no such control.",
            code=("relucid.models.published.STRUCTURE",),
        ),
        Claim(
            "Table 4, the rate without momentum",
            "ResNet without ReLU after the sum has a lower error at HB-Net's rate than at its own.",
            (
                Lower(
                    SAME_RATE.format(CONTROL, TWO_RATES[1]),
                    than=SAME_RATE.format(CONTROL, TWO_RATES[0]),
                    columns="CIFAR-10",
                ),
            ),
            remark=where_both_end((CONTROL, TWO_RATES[1]), (CONTROL, TWO_RATES[0])),
            note="Ours.",
            code=("relucid.models.published.STRUCTURE",),
        ),
        Claim(
            "Table 4, HB-Net on new seeds",
            "HB-Net has a lower error than ResNet, each at its rate of structure/cifar-deeper.",
            (
                Lower(
                    SAME_RATE.format(HBNET, TWO_RATES[1]),
                    than=SAME_RATE.format(RESNET, TWO_RATES[0]),
                    columns="CIFAR-10",
                ),
            ),
            stated="2026-11-18",
            note="The claim of structure/cifar-deeper again, with twice as many seeds.",
            code=("relucid.models.published.STRUCTURE",),
        ),
        Claim(
            "Table 4, divergence without momentum",
            "At HB-Net's rate, HB-Net is trained to the end more often than ResNet without ReLU after the sum.",
            (Derived(REACHES_THE_END, "higher"),),
            stated="2026-11-18",
            note="Ours, stated when one run of ResNet without ReLU had diverged and those of seven seeds were to come.",
            code=("relucid.models.published.STRUCTURE",),
        ),
    ),
    figures=training,
)
HELD_OUT = merge(WITHOUT, BRIEF, {"share": 0.1, "seed": 100})
STUDIES = (
    CIFAR,
    DEEPER,
    MOMENTUM,
    _study("structure/cifar100", "CIFAR-100", 9, 40, {"full": FULL, "smoke": SMOKE}),
    _study("structure/cifar100-deeper", "CIFAR-100", 18, 52, {"full": FULL, "smoke": SMOKE}, GROWS),
    *(
        rates_of(
            study,
            rates,
            lambda rate: merge(HELD_OUT, {"recipe": {"lr": rate}}),
            seconds=120,
            smoke={"images": 128},
            epochs=4,
        )
        for study, rates in ((CIFAR, DENSE_RATES), (DEEPER, RESIDUAL_RATES))
    ),
)
