import pytest

from relucid.papers import PAPERS
from relucid.report.overview import overview_page


@pytest.fixture(scope="module")
def page(ledger):
    return overview_page(list(ledger.values()), ["This was <found>."], PAPERS)


def test_findings_come_first_then_all_claims_at_a_glance_then_every_paper_with_its_figure(page):
    parts = ["This was &lt;found&gt;.", "What was claimed and what was found"]
    parts += [part for paper in PAPERS for part in (f'<h2 id="{paper}"', f"Every comparison that {paper}")]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert page.count("<svg") == 1 + len(PAPERS)


def test_protocols_are_folded_away(page, ledger):
    folded = page.replace("<details open>", "<shown>").split("<details>")[1:]
    inside = "".join(each.partition("</details>")[0] for each in folded)
    shown = {(entry.study.name, entry.table.scale) for entry in ledger.values() if entry.table}
    assert inside.count("of computing") == len(shown)
    assert page.count("of computing") == inside.count("of computing")


def test_it_is_drawn_without_a_library(page):
    assert "plotly.js" not in page
    assert len(page) < 1_000_000
