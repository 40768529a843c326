"""crelu Fig. 4: how invariant the features of ReLU and of CReLU networks are."""

from relucid.papers.crelu.measures import LAYERS
from relucid.papers.crelu.protocols import SINGLE
from relucid.papers.crelu.table1 import BASELINE, SAME_RUNS, SCALES, study
from relucid.report.figure import Figure
from relucid.studies.expect import Claim, Higher
from relucid.studies.store import Store
from relucid.studies.study import Column
from relucid.studies.table import Table


def remark(table: Table) -> str:
    """From the first layer to the last."""
    rise = ", ".join(
        f"{row} from {table.cells[row, LAYERS[0]].mean:.1f} to {table.cells[row, LAYERS[-1]].mean:.1f}"
        for row in (BASELINE, "CReLU")
    )
    return f"From {LAYERS[0]} to {LAYERS[-1]}: {rise}."


def figures(table: Table, store: Store) -> list[Figure]:
    """The invariance score over the layers, one line per network."""
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


STUDIES = (
    study(
        "invariance",
        SCALES,
        title="How often a unit still fires when the image is flipped, turned or moved, over how often it fires",
        columns={layer: Column(f"{layer} invariance", SINGLE, best="highest") for layer in LAYERS},
        source="crelu Fig. 4",
        protocol=SAME_RUNS,
        baseline=BASELINE,
        paired=True,
        claims=(
            Claim(
                "Fig. 4",
                "CReLU networks have higher invariance scores than ReLU networks in all layers.",
                (Higher("CReLU", than=BASELINE, columns=LAYERS),),
                remark=remark,
                code=("relucid.inspect.invariance",),
                tests=("inspect/test_invariance.py::test_invariance_is_what_its_definition_says",),
            ),
        ),
        figures=figures,
    ),
)
