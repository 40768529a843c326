"""crelu Fig. 4: how invariant the features of ReLU and of CReLU networks are."""

from relucid.papers.crelu.measures import LAYERS
from relucid.papers.crelu.protocols import SINGLE
from relucid.papers.crelu.table1 import BASELINE, HALF, SAME_RUNS, SCALES, SCALES100, study
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Higher, Lower, Scale, Store, Study, Table

PLOTTED = (BASELINE, "CReLU", HALF)


def remark(table: Table) -> str:
    """State the scores of the first and the last layer."""
    rise = ", ".join(
        f"{row} from {table.cells[row, LAYERS[0]].mean:.1f} to {table.cells[row, LAYERS[-1]].mean:.1f}"
        for row in (BASELINE, "CReLU")
    )
    return f"From {LAYERS[0]} to {LAYERS[-1]}: {rise}."


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw the invariance score over the layers, one line per network."""
    import plotly.graph_objects as go

    plot = go.Figure()
    layers = list(table.study.columns)
    for row in dict.fromkeys(row for row, _ in table.cells):
        cells = [table.cells[row, layer] for layer in layers]
        plot.add_scatter(
            x=layers,
            y=[cell.mean for cell in cells],
            error_y_array=[cell.error or 0.0 for cell in cells],
            name=row,
        )
    plot.update_yaxes(title="invariance score")
    alt = f"Lines of the score over the layers, one for each of: {', '.join(table.study.rows)}."
    return [Figure("Invariance over depth", alt, plot)]


def _study(name: str, where: str, data: str, scales: dict[str, Scale], *more: Claim) -> Study:
    return study(
        name,
        scales,
        title=f"How often a unit still fires when the image is changed, divided by how often it fires, on {data}",
        columns={layer: Column(f"{layer} invariance", SINGLE, best="highest") for layer in LAYERS},
        source=f"crelu {where}",
        protocol=f"{SAME_RUNS} The image is flipped, rotated or shifted.",
        baseline=BASELINE,
        paired=True,
        claims=(
            Claim(
                where,
                "CReLU networks have higher invariance scores than ReLU networks in all layers.",
                (Higher("CReLU", than=BASELINE, columns=LAYERS),),
                remark=remark,
                code=("relucid.inspect.invariance",),
                tests=("inspect/test_invariance.py::test_invariance_is_what_its_definition_says",),
            ),
            Claim(
                f"{where}, pooling",
                "The scores rise after max-pooling: from conv2 to conv3, and from conv4 to conv6.",
                (
                    Higher(PLOTTED, columns="conv3", than_column="conv2"),
                    Higher(PLOTTED, columns="conv6", than_column="conv4"),
                ),
                stated="2026-11-17",
                code=("relucid.inspect.invariance",),
            ),
            Claim(
                f"{where}, not monotone",
                "The scores do not rise from layer to layer throughout: conv2 is below conv1.",
                (Lower(PLOTTED, columns="conv2", than_column="conv1"),),
                stated="2026-11-17",
                note="The paper does not name the layers.",
                code=("relucid.inspect.invariance",),
            ),
            *more,
        ),
        figures=figures,
    )


HALVED = Claim(
    "Fig. 4, half the filters",
    "CReLU networks with half the filters have higher invariance scores than ReLU networks in all layers.",
    (Higher(HALF, than=BASELINE, columns=LAYERS),),
    stated="2026-11-17",
    note="Our test: the runs at cpu scale have no other CReLU network.",
    code=("relucid.inspect.invariance",),
)
STUDIES = (
    _study("invariance", "Fig. 4", "CIFAR-10", SCALES, HALVED),
    _study("invariance-100", "Fig. 4b", "CIFAR-100", SCALES100),
)
