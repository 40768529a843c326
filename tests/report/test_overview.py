import pytest

from relucid.papers import PAPERS
from relucid.report.overview import forest, headline, overview_page


def test_a_line_is_an_effect_in_per_cent_of_the_baseline(ledger):
    lines = [line for entry in ledger.values() if (line := headline(entry))]
    assert len(lines) > 10
    for line in lines:
        b = line.judged.expected.b
        level = line.entry.table.cells[b.row, b.column].mean
        assert line.effect == pytest.approx(100 * line.judged.found.effect / level)
        assert line.low <= line.effect <= line.high


def test_every_line_is_drawn_once_with_its_published_effect(ledger):
    figure = forest([entry for entry in ledger.values() if entry.judged])
    *ours, published = figure.plot.data
    drawn = [label for trace in ours for label in trace.y]
    assert len(drawn) == len(set(drawn))
    assert set(published.y) <= set(drawn)


def test_the_page_tells_the_findings_first(ledger):
    page = overview_page(list(ledger.values()), ["This was <found>."], PAPERS)
    assert "This was &lt;found&gt;." in page
    assert page.index("This was") < page.index("Every claim that a study checks")
