"""Pages stay short: a page with a budget of words in its front matter does not exceed it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BUDGETS = {
    str(path.relative_to(DOCS)): int(found[1])
    for path in sorted(DOCS.rglob("*.md"))
    if (found := re.match(r"---\nbudget: (\d+)\n---\n", path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("page", BUDGETS)
def test_a_page_keeps_to_its_budget_of_words(page):
    words = len((DOCS / page).read_text(encoding="utf-8").split())
    assert BUDGETS[page] - 250 < words <= BUDGETS[page], "shorten the page, or lower the budget"


def test_the_pages_that_a_stranger_reads_first_have_one():
    assert {"index.md", "choose.md", "related.md", "conversions.md", "tutorials/stopped.md"} <= BUDGETS.keys()
