"""The page of the quickstart: four findings, each a sentence and its figures; details and tables are folded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relucid.experiments import Results
from relucid.experiments._page import Finding, findings
from relucid.report.figure import PALETTE, Figure
from relucid.report.page import Grid, render
from relucid.report.study import commands, facts, grid
from relucid_reproductions.gmp.evolution import LARGE
from relucid_reproductions.gmp.fig3 import in_training
from relucid_reproductions.ours.depth import SIDES
from relucid_reproductions.ours.drawing import over_tasks, smoothed
from relucid_reproductions.ours.mend import (
    CONVERTED,
    NEW,
    NEW_CRELU,
    REDRAWN,
    UNCHANGED,
    WITHOUT,
    of_runs,
)
from relucid_reproductions.ours.plasticity import HALF, RELU

REPAIRED = (UNCHANGED, REDRAWN, CONVERTED, WITHOUT, NEW, NEW_CRELU)
METHODS = {"standard": "SP", "weight norm": "WN", "batch norm": "BN", "geometric": "GmP"}
LAYERS = {f"{layers} layers": layers for layers in (10, 100, 1000)}
FIRST, LAST, DEAD, PARAMETERS = "first fifth %", "last fifth %", "dead %", "parameters"
FITTED, LEFT = "labels fitted %", "last task kept %"
TURN, ERROR = "largest turn °", "test error %"
KEPT, STEP = {side: f"MB, {side}" for side in SIDES}, {side: f"step ms, {side}" for side in SIDES}
LEARNING, REPAIR, BOUNDARIES, DEPTH = (
    "keeps learning",
    "mended without forgetting",
    "see what units do",
    "a thousand layers in constant memory",
)


@dataclass(frozen=True)
class Part:
    """A finding on the page: its sentence and its details are empty until all runs have finished."""

    title: str
    sentence: str
    details: str
    findings: Sequence[Finding]
    figures: Sequence[Figure]
    grid: Grid


def quickstart_page(results: Results, sentences: Mapping[str, tuple[str, str]]) -> str:
    """Render the page, with a sentence and details for every part."""
    name, scale = results.study.name, results.scale
    return render(
        "quickstart.html",
        Path(__file__).parent,
        study=results.study,
        **facts(results),
        parts=parts(results, sentences),
        missing=any(planned.run.key not in results.records for planned in results.plan),
        commands=commands(name, "--scale", scale),
    )


def parts(results: Results, sentences: Mapping[str, tuple[str, str]]) -> list[Part]:
    """The four findings."""
    layout: dict[str, tuple[str, Any, Any, list[Figure]]] = {
        LEARNING: ("Keeps learning", (RELU, HALF), (FIRST, LAST, DEAD), learning(results)),
        REPAIR: ("Repaired without forgetting", REPAIRED, (FITTED, LEFT, PARAMETERS), repair(results)),
        BOUNDARIES: ("See what units do", METHODS, (TURN, ERROR), turning(results)),
        DEPTH: (
            "A thousand layers in constant memory",
            LAYERS,
            (*KEPT.values(), *STEP.values()),
            deepening(results),
        ),
    }
    judged, shown = findings(results), results.shown()
    return [
        Part(
            title,
            *sentences.get(where, ("", "")),
            [finding for finding in judged if finding.claim.where.partition(":")[0] == where],
            figures,
            grid(results, shown.reindex([*rows], columns=[*columns], fill_value="")),
        )
        for where, (title, rows, columns, figures) in layout.items()
    ]


def learning(results: Results) -> list[Figure]:
    """Draw accuracy and dead units over the tasks: both networks at their own rates, and ReLU at CReLU's."""
    runs = {row: record for row in (HALF, RELU) for record in results.behind(row, LAST)}
    if len(runs) < 2:
        return []
    rates = {row: run["metrics"]["rate"] for row, run in runs.items()}
    lines = {f"{row}, rate {rates[row]:g}": (runs[row], "") for row in runs}
    lines.setdefault(f"{RELU}, rate {rates[HALF]:g}", (runs[RELU], f" at {rates[HALF]:g}"))
    courses = {
        name: (smoothed(run["history"][f"score{at}"]), smoothed(run["history"][f"dead{at}"]))
        for name, (run, at) in lines.items()
    }
    ends = "; ".join(f"{name}: {scores[0]:.0f} to {scores[-1]:.0f}" for name, (scores, _) in courses.items())
    plot = over_tasks({"": courses}, "accuracy %")
    return [
        Figure("Accuracy while learning, and dead units, task after task", f"Accuracy in %, {ends}.", plot)
    ]


def repair(results: Results) -> list[Figure]:
    """Draw the share of labels fitted, task by task, before and after the repair."""
    runs = {row: record for row in REPAIRED for record in results.behind(row, FITTED)}
    return [of_runs(runs)] if runs else []


def turning(results: Results) -> list[Figure]:
    """Draw the boundaries through training, with a slider."""
    rates = dict.fromkeys(METHODS.values(), LARGE)
    return [in_training(results, rates, f"Training at a rate of {LARGE:g}; the slider moves through it")]


def deepening(results: Results) -> list[Figure]:
    """Draw the megabytes needed and the milliseconds per step, over depth."""
    return [
        over_depth(results, "Needed for the backward pass", "MB", KEPT),
        over_depth(results, "Time per step", "ms", STEP),
    ]


def over_depth(results: Results, what: str, unit: str, columns: Mapping[str, str]) -> Figure:
    """Draw what each way through the layers needs over depth."""
    import plotly.graph_objects as go

    axes = {"xaxis_title": "layers", "yaxis_title": unit, "xaxis_type": "log", "yaxis_type": "log"}
    plot = go.Figure(layout={"height": 320, **axes})
    means = {side: [results[row, column].mean() for row in LAYERS] for side, column in columns.items()}
    for (side, y), color in zip(means.items(), PALETTE, strict=False):
        plot.add_scatter(name=side, mode="lines+markers", x=[*LAYERS.values()], y=y, line_color=color)
    described = "; ".join(f"{side}: {', '.join(f'{value:.2f}' for value in y)}" for side, y in means.items())
    return Figure(f"{what}, over depth", f"In {unit}, {described}.", plot)
