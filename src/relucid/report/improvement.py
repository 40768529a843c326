"""The page of an improvement: what was found in a sentence, the comparison, the network, how to load and repeat."""

from collections.abc import Sequence
from datetime import timedelta
from textwrap import wrap

from relucid.report.examination import overview, stages_of
from relucid.report.examination import words as examined
from relucid.report.figure import PALETTE, Figure, literal
from relucid.report.page import render
from relucid.report.study import grid, grid_of_environments, grid_of_runs
from relucid.studies.compare import HOLDS, REVERSED, Comparison
from relucid.studies.expect import Place
from relucid.studies.formats import legend
from relucid.studies.improve import FAIR, Improvement
from relucid.studies.judge import Judged
from relucid.studies.ledger import entry

KINDS = {
    HOLDS: ("lower beyond chance", PALETTE[2], "circle"),
    REVERSED: ("higher beyond chance", PALETTE[1], "x"),
}
CHANCE = ("within chance", PALETTE[4], "circle-open")


def improvement_page(found: Improvement, *, load: Sequence[str], notes: Sequence[str], command: str) -> str:
    """Render the page of an improvement.

    Args:
        found: the improvement.
        load: lines of Python that load the network that was handed back.
        notes: what a reader must know of it.
        command: what repeats it.
    """
    project, table = found.project, found.table
    stages = stages_of(project.examination)
    return render(
        "improvement.html",
        name=project.subject.name,
        headline=found.headline(),
        fair=fairness(found),
        better=found.better,
        row=found.row,
        notes=notes,
        left_out=project.left_out,
        figures=[differences(list(found.against_unchanged.values()), project.column)]
        * bool(found.against_unchanged),
        claims=[
            entry("", table.study, claim, table)
            for claim in table.study.claims
            if claim.where in table.judged
        ],
        grid=grid(table),
        legend=legend(table),
        protocol=table.study.protocol,
        examined=examined(project.examination),
        findings=[finding.sentence for finding in project.examination.findings],
        columns=project.examination.columns(),
        overview=overview(project.examination, stages) if len(stages) > 1 else None,
        stages=stages,
        load=load,
        command=command,
        time=timedelta(seconds=round(sum(run["seconds"] for run in table.runs))),
        runs=grid_of_runs(table),
        environments=grid_of_environments(table),
    )


def fairness(found: Improvement) -> str:
    """Say how the returned network compares with the controls; empty if it is compared with none."""
    judged = [
        each
        for each in found.table.judged.get(FAIR, [])
        if isinstance(each.expected.a, Place) and each.expected.a.row == found.row
    ]
    said = {HOLDS: "better than", REVERSED: "worse than"}
    parts = [
        f"{said.get(each.outcome, 'not different beyond chance from')} {_other(each)}" for each in judged
    ]
    return f"Compared with the controls it is {', '.join(parts)}." if parts else ""


def _other(judged: Judged) -> str:
    """The control that a row is compared with."""
    return str(getattr(judged.expected.b, "row", ""))


def differences(judged: Sequence[Judged], column: str) -> Figure:
    """Draw each row's difference from the unchanged network, with its interval; left of 0 is better."""
    import plotly.graph_objects as go

    shown = [(label(each), each.found, KINDS.get(each.outcome, CHANCE)) for each in judged if each.found]
    plot = go.Figure(layout={"height": 150 + 44 * len(shown)})
    plot.update_xaxes(title="left of 0 is better", zeroline=False)
    plot.add_vline(0, line_dash="dash", line_color=PALETTE[4])
    for kind in dict.fromkeys(kind for _, _, kind in shown):
        own = [(row, found) for row, found, each in shown if each == kind]
        plot.add_scatter(
            name=kind[0],
            mode="markers",
            x=[found.effect for _, found in own],
            y=["<br>".join(map(literal, wrap(row, 24, break_long_words=False))) for row, _ in own],
            error_x={
                "array": [found.high - found.effect for _, found in own],
                "arrayminus": [found.effect - found.low for _, found in own],
            },
            marker={"color": kind[1], "symbol": kind[2], "size": 11},
        )
    rows = ["<br>".join(map(literal, wrap(row, 24, break_long_words=False))) for row, _, _ in shown]
    plot.update_yaxes(categoryorder="array", categoryarray=rows[::-1], type="category")
    said = "; ".join(f"{row} {_interval(found)}, {kind[0]}" for row, found, kind in shown)
    level = next((found.confidence for _, found, _ in shown), "95%")
    return Figure(
        f"{column.capitalize()}: differences from unchanged, with {level} intervals", f"{said}.", plot
    )


def label(judged: Judged) -> str:
    """The row that is compared."""
    return str(getattr(judged.expected.a, "row", judged.expected.label))


def _interval(found: Comparison) -> str:
    return f"{found.effect:.3g} ({found.low:.3g} to {found.high:.3g})"
