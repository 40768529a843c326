"""What the networks of crelu Table 1 have learned: Table 6, Table S1, Fig. 2 to 5; over the same runs."""

from relucid.studies.crelu.convpool import BASELINE, HALF, ROWS, SCALES, SCALES100, study
from relucid.studies.crelu.measures import LAYERS, POOLED
from relucid.studies.crelu.protocols import SINGLE
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Table
from relucid.studies.words import difference, mean

PHASED = ("CReLU", HALF)
NON_PAIR = "non-pair, mean of layers"
SAME_RUNS = 'Measured on the networks of crelu/convpool ("Single"): see there for how they were trained.'
TABLE_S1 = {
    "cifar10": {"conv2": ((0.92, 0.0002), (0.99, 0.00005)), "conv5": ((0.96, 0.0003), (0.99, 0.00005))},
    "cifar100": {"conv2": ((0.93, 0.0002), (0.99, 0.00005)), "conv5": ((0.96, 0.0001), (0.99, 0.00005))},
}


def pairing_verdict(table: Table) -> str:
    """The first layers against random filters, ReLU and CReLU."""
    said = []
    for row in (BASELINE, "CReLU"):
        wanted = {**ROWS[row], **table.cells[row, "conv1"].chosen}
        runs = [run["metrics"] for run in table.runs if wanted.items() <= run["config"].items()]
        mu, random = (sum(run[f"conv1 {name}"] for run in runs) / len(runs) for name in ("mu", "random mu"))
        found = difference(table.cells[row, "conv1"], 0.0)
        last = mean(table.cells[row, LAYERS[-1]])
        said.append(
            f"{row}: mean mu {mu:.2f} in conv1, random filters {random:.2f}; difference {found}; {last:+.2f} in conv7"
        )
    first = difference(table.cells[BASELINE, "conv1"], 0.0).judged()
    more = difference(table.cells[BASELINE, "conv1"], table.cells["CReLU", "conv1"])
    return (
        f"{'. '.join(said)}. Filters of ReLU networks pair up more than random ones: {first}. "
        f"They do so more than those of CReLU networks: {more}, {more.judged()}."
    )


def phase_verdict(table: Table) -> str:
    """The two phases of a unit against phases of different units."""
    found = {(row, layer): mean(table.cells[row, layer]) for row in PHASED for layer in LAYERS}
    (row, layer), largest = max(found.items(), key=lambda item: item[1])
    pair = sum(found.values()) / len(found)
    non_pair = sum(mean(table.cells[row, NON_PAIR]) for row in PHASED) / len(PHASED)
    holds = "holds here" if largest < 1 and non_pair < pair else "does not hold here"
    return (
        f"The largest correlation is {largest:.2f} ({layer}, {row}); on average it is {pair:.2f} between the phases of "
        f"a unit and {non_pair:.2f} between those of different units: the claim {holds}."
    )


def reconstruction_verdict(table: Table) -> str:
    """Learned against random filters, layer by layer."""
    said = []
    for row in PHASED:
        for layer in POOLED:
            found = difference(table.cells[row, f"{layer} learned"], table.cells[row, f"{layer} random"])
            said.append(f"{row}, {layer}: {found}, {found.judged()}")
    return f"Learned less random filters. {'; '.join(said)}."


def invariance_verdict(table: Table) -> str:
    """CReLU against the baseline, layer by layer."""
    found = {layer: difference(table.cells["CReLU", layer], table.cells[BASELINE, layer]) for layer in LAYERS}
    higher = [layer for layer, each in found.items() if each.mean > 0]
    sure = [layer for layer in higher if found[layer].judged(lower=False) == "the claim holds here"]
    ends = {row: [mean(table.cells[row, layer]) for layer in LAYERS] for row in (BASELINE, "CReLU")}
    rise = ", ".join(f"{row} from {scores[0]:.1f} to {scores[-1]:.1f}" for row, scores in ends.items())
    return (
        f"CReLU's score is higher than the baseline's in {len(higher)} of {len(LAYERS)} layers, in {len(sure)} by more "
        f"than noise ({', '.join(sure) or 'none'}). From conv1 to conv7: {rise}."
    )


def _reconstruction(name: str, data: str, scales: dict[str, Scale]) -> Study:
    kinds = ("learned", "random")
    figures = TABLE_S1[data]
    columns = {f"{layer} {kind}": (layer, kind) for layer in POOLED for kind in kinds}
    published = {
        label: dict(zip(kinds, figures[layer], strict=True))[kind] for label, (layer, kind) in columns.items()
    }
    return study(
        name,
        scales,
        title="How much of a layer's input is lost after CReLU and max-pooling: |x - x'| / |x|",
        rows={row: ROWS[row] for row in PHASED},
        columns={label: Column(label, SINGLE, digits=3) for label in columns},
        published={HALF: published},
        source="crelu Table S1",
        claim="Learned filters span more of their inputs than random ones.",
        verdict=reconstruction_verdict,
        figures="relucid.report.crelu:reconstruction",
        protocol=SAME_RUNS,
    )


STUDIES = (
    study(
        "pairing",
        SCALES,
        title="Mean cosine of a filter with its most opposite one, less that of random filters",
        columns={layer: Column(f"{layer} excess", SINGLE, best=None) for layer in LAYERS},
        source="crelu Fig. 2, 3",
        claim="The first layers of ReLU networks learn pairs of opposite filters, fewer with depth; CReLU's do not.",
        verdict=pairing_verdict,
        figures="relucid.report.crelu:pairing",
        protocol=SAME_RUNS,
    ),
    study(
        "phase",
        SCALES,
        title="Absolute correlation of the weights that leave the two phases of a unit",
        rows={row: ROWS[row] for row in PHASED},
        columns={layer: Column(f"{layer} pair", SINGLE, best=None, digits=3) for layer in LAYERS}
        | {NON_PAIR: Column("mean non-pair", SINGLE, best=None, digits=3)},
        source="crelu Table 6",
        claim="Well below 1, if above that of different units: the next layer treats the phases differently.",
        verdict=phase_verdict,
        protocol=f"{SAME_RUNS} Table 6 itself is of the ImageNet network conv1-7: see crelu/phase-imagenet.",
    ),
    _reconstruction("reconstruction", "cifar10", SCALES),
    _reconstruction("reconstruction-100", "cifar100", SCALES100),
    study(
        "invariance",
        SCALES,
        title="How often a unit still fires when the image is flipped, turned or moved, over how often it fires",
        columns={layer: Column(f"{layer} invariance", SINGLE, best="highest") for layer in LAYERS},
        source="crelu Fig. 4",
        claim="CReLU networks score higher than ReLU networks, and scores rise with depth.",
        verdict=invariance_verdict,
        figures="relucid.report.crelu:invariance",
        protocol=SAME_RUNS,
        baseline=BASELINE,
    ),
)
