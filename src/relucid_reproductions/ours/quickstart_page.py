"""The page of the quickstart: the recommender's figure, a sentence per finding; details and tables are folded."""

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
from relucid_reproductions.ours.recommender import CONVERTED, CRELU, NEW, NORM_DECAY, RELU, TANH, drawn

RECOMMENDERS = (RELU, CONVERTED, NEW, NORM_DECAY, TANH, CRELU)
METHODS = {"standard": "SP", "weight norm": "WN", "batch norm": "BN", "geometric": "GmP"}
LAYERS = {f"{layers} layers": layers for layers in (10, 100, 1000)}
LIKED, FIRST = "liked %", "first two phases %"
TURN, ERROR = "largest turn °", "test error %"
KEPT, STEP = {side: f"MB, {side}" for side in SIDES}, {side: f"step ms, {side}" for side in SIDES}
CHANGING, BOUNDARIES, DEPTH = (
    "a recommender whose users change",
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
    """The findings."""
    layout: dict[str, tuple[str, Any, Any, list[Figure]]] = {
        CHANGING: (
            "A recommender whose users change",
            RECOMMENDERS,
            (LIKED, FIRST),
            drawn(results, RECOMMENDERS, LIKED, CONVERTED),
        ),
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
