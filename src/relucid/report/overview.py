"""Everything in one file: the front page of the results, then paper by paper and study by study."""

from collections.abc import Mapping, Sequence

from relucid.report.chapters import chapters, made, short
from relucid.report.front import HEAD, HOW, Front, summary
from relucid.report.page import CellStyle, Grid, GridCell, render
from relucid.report.study import grid
from relucid.studies import Table
from relucid.studies.compare import HOLDS, NO_EFFECT, REVERSED
from relucid.studies.formats import chosen, marked
from relucid.studies.ledger import Entry

STYLES: dict[str, CellStyle] = {HOLDS: "good", REVERSED: "bad", NO_EFFECT: "bad"}
KINDS = {
    "experiment": "Experiments",
    "construction": "By construction",
    "mathematics": "Theorems and counts",
}


def overview_page(
    entries: Sequence[Entry], tables: Sequence[Table], front: Front, papers: Mapping[str, str]
) -> str:
    """Render the page from the ledger, everything recorded, the front page and the papers' titles."""
    return render(
        "overview.html",
        front=front,
        table=_headlines(front),
        how=HOW.replace("*", ""),
        chapters=chapters(entries, tables, papers),
        kinds=KINDS,
        summary=summary,
        styles=STYLES,
        made=made,
        grid=lambda table: grid(short(table)),
        marked=marked,
        chosen=chosen,
    )


def _headlines(front: Front) -> Grid:
    head = [(name, "") for name in HEAD]
    rows = [
        [
            GridCell(text, style=STYLES.get(line.outcome, "") if name == "outcome" else "")
            for name, text in zip(HEAD, line.texts, strict=True)
        ]
        for line in front.lines
    ]
    return Grid("Positive effects are as claimed.", head, rows)
