"""The page of an improvement: what was found in a sentence, the comparison, the network, how to load and repeat."""

from collections.abc import Sequence
from datetime import timedelta

from relucid.report.curves import averaged, over_epochs
from relucid.report.examination import overview, stages_of
from relucid.report.examination import words as examined
from relucid.report.figure import PALETTE, Figure, wrapped
from relucid.report.page import render, text_grid
from relucid.report.study import grid_of_environments, grid_of_runs
from relucid.studies.compare import HOLDS, REVERSED, Comparison
from relucid.studies.improvement import GIVEN, TRAINED, Improvement
from relucid.studies.judge import Judged

KINDS = {
    HOLDS: ("better beyond chance", PALETTE[2], "circle"),
    REVERSED: ("worse beyond chance", PALETTE[1], "x"),
}
CHANCE = ("within chance", PALETTE[4], "circle-open")


def improvement_page(found: Improvement, *, load: Sequence[str], notes: Sequence[str], command: str) -> str:
    """Render the page of an improvement.

    Args:
        found: the improvement.
        load: lines of Python that load the network that is returned.
        notes: what a reader must know of it.
        command: what repeats it.
    """
    project, table = found.project, found.table
    stages = stages_of(project.examination)
    compared = list(found.compared.values())
    return render(
        "improvement.html",
        name=project.task.name,
        lines=[*found.results(), *found.levels()],
        conclusion=found.conclusion(),
        cautions=project.task.cautions,
        next_step=next_step(found),
        row=found.row,
        notes=notes,
        left_out=project.left_out,
        figures=[differences(compared, project.column, higher=project.task.metric.higher), *curves(found)],
        grid=text_grid("Means over the seeds, and differences from training alone", found.rows()),
        protocol=table.study.protocol,
        examined=examined(project.examination),
        findings=project.examination.sentences(),
        columns=project.examination.columns(),
        overview=overview(project.examination, stages) if len(stages) > 1 else None,
        stages=stages,
        load=load,
        command=command,
        time=timedelta(seconds=round(sum(run["seconds"] for run in table.runs))),
        runs=grid_of_runs(table),
        environments=grid_of_environments(table),
    )


def next_step(found: Improvement) -> str:
    """What to do next, in a sentence or two."""
    if found.row not in (GIVEN, TRAINED):
        return (
            "Load the network as shown below, and test it once more on data that have decided nothing so far."
        )
    if found.closest is None:
        return "With more seeds (--seeds), smaller differences would be found."
    seeds = 4 * found.closest.n
    size = found.show(found.closest.detectable_with(seeds)).rstrip("%")
    return (
        f"With --seeds {seeds}, a difference of about {size} would be found; finished runs are kept. --try names other "
        "conversions, and --epochs trains longer."
    )


def curves(found: Improvement) -> list[Figure]:
    """Draw the mean training loss of each row, epoch by epoch."""
    table = found.table
    losses = {
        row: averaged(run["history"].get("train_loss", []) for run in table.behind(row))
        for row in table.study.rows
    }
    figure = over_epochs("Learning curves: mean training loss", "training loss", losses)
    return [figure] if figure.plot.data else []


def differences(judged: Sequence[Judged], column: str, higher: bool = False) -> Figure:
    """Draw each row's difference from the one it is compared with, with its 95% interval."""
    import plotly.graph_objects as go

    shown = [(label(each), each.found, KINDS.get(each.outcome, CHANCE)) for each in judged if each.found]
    base = str(getattr(judged[0].expected.b, "row", "the others")) if judged else ""
    plot = go.Figure(layout={"height": 150 + 44 * len(shown)})
    plot.update_xaxes(title=f"{'right' if higher else 'left'} of 0 is better", zeroline=False)
    plot.add_vline(0, line_dash="dash", line_color=PALETTE[4])
    for kind in dict.fromkeys(kind for _, _, kind in shown):
        own = [(row, found) for row, found, each in shown if each == kind]
        plot.add_scatter(
            name=kind[0],
            mode="markers",
            x=[found.effect for _, found in own],
            y=[wrapped(row) for row, _ in own],
            error_x={
                "array": [found.high - found.effect for _, found in own],
                "arrayminus": [found.effect - found.low for _, found in own],
            },
            marker={"color": kind[1], "symbol": kind[2], "size": 11},
        )
    rows = [wrapped(row) for row, _, _ in shown]
    plot.update_yaxes(categoryorder="array", categoryarray=rows[::-1], type="category")
    described = "; ".join(f"{row} {_interval(found)}, {kind[0]}" for row, found, kind in shown)
    level = next((found.confidence for _, found, _ in shown), "95%")
    title = f"{column.capitalize()}: differences from {base}, with {level} intervals"
    return Figure(title, f"{described}.", plot)


def label(judged: Judged) -> str:
    """The row that is compared."""
    return str(getattr(judged.expected.a, "row", judged.expected.label))


def _interval(found: Comparison) -> str:
    return f"{found.effect:.3g} ({found.low:.3g} to {found.high:.3g})"
