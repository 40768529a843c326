"""Everything on one screen: the findings that matter, and every claim's effect beside the published one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from relucid.report.figure import PALETTE, Figure, literal
from relucid.report.page import Cell, CellStyle, Grid, render
from relucid.studies.compare import HOLDS, REVERSED
from relucid.studies.expect import Judged, Place
from relucid.studies.ledger import Entry

WORDS: dict[str, CellStyle] = {"reproduced": "good", "reproduced in part": "good", "contradicted": "bad"}
WIDEST = 60  # per cent; what is larger is cut off
NOT_TOLD = "not told"
COLOURS: dict[str, str] = {HOLDS: PALETTE[2], REVERSED: PALETTE[1], NOT_TOLD: PALETTE[4]}


def overview_page(entries: Sequence[Entry], findings: Sequence[str], papers: Mapping[str, str]) -> str:
    """Render the page from the ledger, the findings and the papers' titles."""
    tried = [entry for entry in entries if entry.empirical and entry.judged]
    return render(
        "overview.html",
        findings=findings,
        forest=[forest(tried)],
        grid=_grid([entry for entry in entries if entry.empirical]),
        papers=papers,
    )


@dataclass(frozen=True)
class Line:
    """The comparison that represents a claim, in per cent of B's level: effect, interval, published effect."""

    entry: Entry
    judged: Judged
    effect: float
    low: float
    high: float
    published: float | None


def headline(entry: Entry) -> Line | None:
    """The line of a claim: its first comparison of cells with a published effect, or else the first of all."""
    lines = [line for judged in entry.judged if (line := _line(entry, judged))]
    return next((line for line in lines if line.published is not None), lines[0] if lines else None)


def _line(entry: Entry, judged: Judged) -> Line | None:
    found, b = judged.found, judged.expected.b
    if found is None or entry.table is None or not isinstance(b, Place):
        return None
    cell = entry.table.cells[b.row, b.column]
    if cell.mean is None or cell.mean <= 0:
        return None
    here, there = 100 / cell.mean, cell.published[0]
    published = 100 * judged.published / there if judged.published is not None and there else None
    return Line(entry, judged, here * found.effect, here * found.low, here * found.high, published)


def forest(entries: Sequence[Entry]) -> Figure:
    """Draw one line per claim: the effect with its interval and the published effect, in per cent of the baseline."""
    import plotly.graph_objects as go

    lines = {_label(line.entry): line for entry in entries if (line := headline(entry))}
    plot = go.Figure(layout={"height": 120 + 36 * len(lines), "xaxis_title": "difference, % of the baseline"})
    for name, colour in COLOURS.items():
        mine = {label: line for label, line in lines.items() if _told(line.judged) == name}
        plot.add_scatter(
            x=[line.effect for line in mine.values()],
            y=list(mine),
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [line.high - line.effect for line in mine.values()],
                "arrayminus": [line.effect - line.low for line in mine.values()],
            },
            mode="markers",
            marker={"color": colour, "size": 9},
            name=f"here: {name}",
        )
    printed = {label: line.published for label, line in lines.items() if line.published is not None}
    plot.add_scatter(
        x=list(printed.values()),
        y=list(printed),
        mode="markers",
        marker={"symbol": "diamond-open", "color": PALETTE[0], "size": 9},
        name="published",
    )
    plot.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=list(lines))
    plot.update_xaxes(range=[-WIDEST, WIDEST])
    alt = (
        "A dot with its 95% interval for each claim that was run, and a diamond where the paper has a number."
    )
    return Figure("What was claimed and what was found", alt, plot)


def _label(entry: Entry) -> str:
    name = f"{entry.paper} {entry.claim.where}"
    return "<br>".join(map(literal, wrap(name, 26, break_long_words=False)))


def _told(judged: Judged) -> str:
    return judged.outcome if judged.outcome in COLOURS else NOT_TOLD


def _grid(entries: Sequence[Entry]) -> Grid:
    rows = []
    for entry in entries:
        line = headline(entry)
        rows.append(
            [
                Cell(f"{entry.paper} {entry.claim.where}"),
                Cell(entry.claim.says),
                Cell(entry.stands, style=WORDS.get(entry.state, "" if entry.table else "dim")),
                Cell(str(line.judged) if line else ""),
            ]
        )
    head = [("where", ""), ("claim", ""), ("state", ""), ("main comparison", "")]
    return Grid("Every claim that a study checks", head, rows)
