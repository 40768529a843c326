"""One screen about everything: the findings that matter, and every claim's effect beside the published one."""

from collections.abc import Mapping, Sequence

from relucid.report.figure import PALETTE, Figure, literal
from relucid.report.page import Cell, Grid, Mood, render
from relucid.studies.compare import HOLDS, REVERSED
from relucid.studies.expect import Judged
from relucid.studies.ledger import Entry

WORDS: dict[str, Mood] = {"reproduced": "good", "reproduced in part": "good", "contradicted": "bad"}
NOT_TOLD = "not told"
COLOURS: dict[str, str] = {HOLDS: PALETTE[2], REVERSED: PALETTE[1], NOT_TOLD: PALETTE[4]}


def overview_page(entries: Sequence[Entry], findings: Sequence[str], papers: Mapping[str, str]) -> str:
    """The page, from the ledger, the findings and the papers' titles."""
    tried = [entry for entry in entries if entry.empirical and entry.judged]
    return render(
        "overview.html",
        findings=findings,
        forest=[forest(tried)],
        grid=_grid([entry for entry in entries if entry.empirical]),
        papers=papers,
    )


def headline(entry: Entry) -> Judged | None:
    """The comparison that stands for a claim: the first with a published effect, or else the first."""
    told = [each for each in entry.judged if each.relative is not None]
    return next((each for each in told if each.published is not None), told[0] if told else None)


def forest(entries: Sequence[Entry]) -> Figure:
    """A line per claim: the effect, in per cent of the baseline's level, with its interval, and the published one."""
    import plotly.graph_objects as go

    lines = [(entry, each) for entry in entries if (each := headline(entry))]
    labels = [literal(f"{entry.paper} {entry.claim.where}") for entry, _ in lines]
    plot = go.Figure(layout={"height": 120 + 24 * len(lines), "xaxis_title": "difference, % of the baseline"})
    for name, colour in COLOURS.items():
        mine = [
            (label, each.relative)
            for label, (_, each) in zip(labels, lines, strict=True)
            if each.relative and (each.outcome if each.outcome in COLOURS else NOT_TOLD) == name
        ]
        plot.add_scatter(
            x=[100 * effect for _, (effect, _, _) in mine],
            y=[label for label, _ in mine],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [100 * (high - effect) for _, (effect, _, high) in mine],
                "arrayminus": [100 * (effect - low) for _, (effect, low, _) in mine],
            },
            mode="markers",
            marker={"color": colour, "size": 9},
            name=f"here: {name}",
        )
    printed = [
        (label, share)
        for label, (_, each) in zip(labels, lines, strict=True)
        if (share := each.relative_published) is not None
    ]
    plot.add_scatter(
        x=[100 * share for _, share in printed],
        y=[label for label, _ in printed],
        mode="markers",
        marker={"symbol": "diamond-open", "color": PALETTE[0], "size": 9},
        name="published",
    )
    plot.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=labels)
    plot.update_xaxes(range=[-60, 60])
    alt = (
        "A dot with its 95% interval for each claim that was run, and a diamond where the paper has a number."
    )
    return Figure("What was claimed and what was found", alt, plot)


def _grid(entries: Sequence[Entry]) -> Grid:
    rows = []
    for entry in entries:
        each = headline(entry)
        rows.append(
            [
                Cell(f"{entry.paper} {entry.claim.where}"),
                Cell(entry.claim.says),
                Cell(entry.stands, mood=WORDS.get(entry.state, "" if entry.table else "dim")),
                Cell(str(each) if each else ""),
            ]
        )
    head = [("where", ""), ("claim", ""), ("state", ""), ("the comparison that stands for it", "")]
    return Grid("Every claim that a study checks", head, rows)
