import pytest

from relucid.papers import PAPERS
from relucid.papers.highlights import HEADLINES
from relucid.report.front import front
from relucid.report.overview import overview_page


@pytest.fixture(scope="module")
def first(ledger, recorded_tables):
    return front(list(ledger.values()), recorded_tables, HEADLINES, ["This was <found>."], ["Beware."])


@pytest.fixture(scope="module")
def page(ledger, recorded_tables, first):
    return overview_page(list(ledger.values()), recorded_tables, first, PAPERS)


def test_it_begins_with_the_front_page_and_goes_on_with_every_paper_and_its_figure(page, first):
    parts = [first.summary, "This was &lt;found&gt;.", "The main claims", "Beware."]
    parts += [part for paper in PAPERS for part in (f'<h2 id="{paper}"', f"Every experiment that {paper}")]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert page.count("<svg") == 1 + len(PAPERS)
    assert all(line.texts[1] in page for line in first.lines)


def test_studies_are_folded_away_and_all_of_their_scales_are_there(page, recorded_tables):
    inside = "".join(each.partition("</details>")[0] for each in page.split("<details>")[1:])
    assert inside.count("of computing") == page.count("of computing") == len(recorded_tables)


def test_it_is_drawn_without_a_library(page):
    assert "plotly.js" not in page
    assert len(page) < 1_000_000
