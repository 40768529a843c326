"""The search of the page of claims, in chromium."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
DOCS = Path(__file__).parents[2] / "docs"
CLAIM = re.compile(r"^- (.*) \*\*(.*?)\*\*", re.MULTILINE)


@pytest.fixture
def claims(browser, tmp_path):
    """The claims of the page, as a list below the search."""
    found = CLAIM.findall((DOCS / "claims.md").read_text(encoding="utf-8"))
    items = "".join(f"<li>{says} <strong>{outcome}</strong></li>" for says, outcome in found)
    script = (DOCS / "filter.js").read_text(encoding="utf-8")
    page = tmp_path / "claims.html"
    page.write_text(
        f'<meta charset="utf-8"><div id="filter"></div><ul>{items}</ul><script>{script}</script>',
        encoding="utf-8",
    )
    browser.get(page.as_uri())
    return found


def left(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('li:not([hidden])')].map(li => li.innerText)"
    )


def test_claims_are_found_by_their_words_and_by_their_outcome(browser, claims):
    assert len(left(browser)) == len(claims) > 100
    browser.find_element("css selector", "input").send_keys("table CIFAR")
    by_words = left(browser)
    assert 0 < len(by_words) < len(claims)
    assert all("table" in text.lower() and "cifar" in text.lower() for text in by_words)
    browser.find_element("css selector", "select").send_keys("reversed")
    assert 0 < len(left(browser)) < len(by_words)
    assert all(text.endswith("reversed") for text in left(browser))
    assert browser.find_element("css selector", "output").text == f"{len(left(browser))} of {len(claims)}"
