"""Everything on one page: what holds at a glance, then paper by paper, with the same figures as the site."""

from collections.abc import Mapping, Sequence

from relucid.report.chapters import POWER, Chapter, at_a_glance, chapters, count, made, short
from relucid.report.page import Cell, CellStyle, Grid, render
from relucid.report.study import grid
from relucid.studies.compare import HOLDS, NONE, REVERSED
from relucid.studies.formats import chosen, marked
from relucid.studies.ledger import Entry

STYLES: dict[str, CellStyle] = {HOLDS: "good", REVERSED: "bad", NONE: "bad"}


def overview_page(entries: Sequence[Entry], findings: Sequence[str], papers: Mapping[str, str]) -> str:
    """Render the page from the ledger, the findings and the papers' titles."""
    return render(
        "overview.html",
        findings=findings,
        glance=at_a_glance(entries),
        chapters=[(chapter, _power(chapter)) for chapter in chapters(entries, papers)],
        styles=STYLES,
        count=count,
        made=made,
        grid=lambda table: grid(short(table)),
        marked=marked,
        chosen=chosen,
    )


def _power(chapter: Chapter) -> Grid:
    head = [(name, "") for name in ("claim", *POWER)]
    return Grid("What the studies could tell", head, [[*map(Cell, line)] for line in chapter.told()])
