"""The page of an improvement: what was found in a sentence, the comparison, the network, how to load and repeat."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import cycle

import pandas as pd

from relucid._improve._improvement import BETTER, GIVEN, TRAINED, Improvement, confidence, interval
from relucid.experiments._judge import Verdict
from relucid.report.examination import overview, stages_of
from relucid.report.examination import words as examined
from relucid.report.figure import PALETTE, Figure, wrapped
from relucid.report.page import render, text_grid
from relucid.report.study import grid_of_environments

KINDS = {
    BETTER: ("significantly better", PALETTE[2], "circle"),
    "reversed": ("significantly worse", PALETTE[1], "x"),
}
CHANCE = ("within chance", PALETTE[4], "circle-open")


def improvement_page(
    improvement: Improvement, *, load: Sequence[str], notes: Sequence[str], command: str
) -> str:
    """Render the page of an improvement.

    Args:
        improvement: what was tried, and what came of it.
        load: lines of Python that load the network that is returned.
        notes: what a reader must know of it.
        command: what repeats it.
    """
    project = improvement.project
    stages = stages_of(project.examination)
    return render(
        "improvement.html",
        name=project.task.name,
        lines=[*improvement.outcomes(), *improvement.levels()],
        conclusion=improvement.conclusion(),
        cautions=project.cautions,
        next_step=next_step(improvement),
        row=improvement.row,
        notes=notes,
        left_out=project.left_out,
        figures=[
            differences(improvement.compared, project.column, higher=project.task.metric.higher),
            *curves(improvement),
        ],
        grid=text_grid("Means over the seeds, and differences from training alone", improvement.rows()),
        protocol=project.protocol,
        examined=examined(project.examination),
        findings=project.examination.sentences(),
        columns=project.examination.columns(),
        overview=overview(project.examination, stages) if len(stages) > 1 else None,
        stages=stages,
        load=load,
        command=command,
        time=timedelta(seconds=round(sum(run["seconds"] for run in improvement.records()))),
        runs=text_grid(f"{len(improvement.results.records)} runs", runs(improvement)),
        environments=grid_of_environments(improvement.results),
    )


def next_step(improvement: Improvement) -> str:
    """What to do next, in a sentence or two."""
    if improvement.row not in (GIVEN, TRAINED):
        return (
            "Load the network as shown below, and test it once more on data that have decided nothing so far."
        )
    if improvement.closest is None:
        return "With more seeds (--seeds), smaller differences would be found."
    seeds = 4 * len(improvement.project.study.repeat["seed"])
    return (
        f"With --seeds {seeds}, the intervals would be about half as wide; finished runs are kept. --try names other "
        "conversions, and --epochs trains longer."
    )


def runs(improvement: Improvement) -> list[dict[str, str]]:
    """What every run achieved."""
    records = improvement.records()
    metrics = dict.fromkeys(name for record in records for name in record.get("metrics", {}))
    return [
        {
            "run": record["key"][:8],
            "row": record["row"],
            "seed": str(record["config"]["seed"]),
            "state": record["state"],
            "seconds": f"{record['seconds']:.1f}",
            **{name: f"{record['metrics'].get(name, float('nan')):.4g}" for name in metrics},
        }
        for record in records
    ]


def curves(improvement: Improvement) -> list[Figure]:
    """Draw the mean training loss of each row, epoch by epoch."""
    import plotly.graph_objects as go

    plot = go.Figure(layout={"xaxis_title": "epoch", "yaxis_title": "training loss", "height": 380})
    ends = []
    for row, dash in zip(
        improvement.results.study.rows, cycle(("solid", "dash", "dot", "dashdot")), strict=False
    ):
        courses = improvement.results[row, improvement.project.column, "train_loss", True]
        if not len(courses):
            continue
        mean = pd.DataFrame(courses.tolist()).astype(float).mean().tolist()
        plot.add_scatter(x=list(range(1, len(mean) + 1)), y=mean, name=row, mode="lines", line_dash=dash)
        ends.append(f"{row} from {mean[0]:.3g} to {mean[-1]:.3g}")
    alt = f"Mean training loss over the seeds, epoch by epoch: {', '.join(ends)}."
    return [Figure("Learning curves: mean training loss", alt, plot)] if ends else []


def differences(verdicts: Mapping[str, Verdict], column: str, higher: bool = False) -> Figure:
    """Draw each row's difference from training alone, with the interval that decides."""
    import plotly.graph_objects as go

    shown = {row: verdict for row, verdict in verdicts.items() if verdict.comparison}
    plot = go.Figure(layout={"height": 150 + 44 * len(shown)})
    plot.update_xaxes(title=f"{'right' if higher else 'left'} of 0 is better", zeroline=False)
    plot.add_vline(0, line_dash="dash", line_color=PALETTE[4])
    for kind in dict.fromkeys(_kind(verdict) for verdict in shown.values()):
        alike = {
            row: (_effect(verdict), *interval(verdict))
            for row, verdict in shown.items()
            if _kind(verdict) == kind
        }
        plot.add_scatter(
            name=kind[0],
            mode="markers",
            x=[effect for effect, _, _ in alike.values()],
            y=[wrapped(row) for row in alike],
            error_x={
                "array": [high - effect for effect, _, high in alike.values()],
                "arrayminus": [effect - low for effect, low, _ in alike.values()],
            },
            marker={"color": kind[1], "symbol": kind[2], "size": 11},
        )
    rows = [wrapped(row) for row in shown]
    plot.update_yaxes(categoryorder="array", categoryarray=rows[::-1], type="category")
    described = "; ".join(
        f"{row} {_interval(verdict)}, {_kind(verdict)[0]}" for row, verdict in shown.items()
    )
    level = next(map(confidence, shown.values()), "95%")
    title = f"{column.capitalize()}: differences from {TRAINED}, with {level} intervals"
    return Figure(title, f"{described}.", plot)


def _kind(verdict: Verdict) -> tuple[str, str, str]:
    return KINDS.get(verdict.outcome, CHANCE)


def _effect(verdict: Verdict) -> float:
    assert verdict.comparison is not None
    return verdict.comparison.effect


def _interval(verdict: Verdict) -> str:
    low, high = interval(verdict)
    return f"{_effect(verdict):.3g} ({low:.3g} to {high:.3g})"
