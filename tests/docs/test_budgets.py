"""Pages stay short: a page with a budget of words in its front matter does not exceed it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
WHOLE, LONGEST = 41_000, 2_400
BUDGETS = {
    str(path.relative_to(DOCS)): int(found[1])
    for path in sorted(DOCS.rglob("*.md"))
    if (found := re.match(r"---\nbudget: (\d+)\n---\n", path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("page", BUDGETS)
def test_a_page_keeps_to_its_budget_of_words(page):
    words = len((DOCS / page).read_text(encoding="utf-8").split())
    assert BUDGETS[page] - 250 < words <= BUDGETS[page], "shorten the page, or lower the budget"


def test_all_pages_keep_to_a_budget_together_and_none_is_a_book():
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in DOCS.rglob("*.md")}
    words = {  # what a reader reads: not the rules of a table
        path: sum(bool(re.search(r"[^|:-]", word)) for line in of for word in line.split())
        for path, of in lines.items()
    }
    assert sum(words.values()) <= WHOLE, "shorten a page, or lower the budget"
    assert max(words.values()) <= LONGEST


def test_the_pages_that_a_stranger_reads_first_have_one():
    assert {"index.md", "choose.md", "related.md", "conversions.md", "tutorials/stopped.md"} <= BUDGETS.keys()
