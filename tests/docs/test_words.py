"""Words that are always wrong here, in pages, messages and docstrings; the words that replace them are beside them.

Words that are only sometimes wrong (holds, over, machine, own, each) are for the reader of a change, not for a test.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    r"the opposite holds": "reversed",
    r"no such effect": "absent",
    r"\bundecided\b": "inconclusive",
    r"no difference (?:was )?found": "no detectable difference",
    r"beyond chance": "significantly, or the interval",
    r"rate by chance|rate at edge|but underfit|shared splits|post hoc": "a sentence",
    r"at (?:cpu|cpu-four|small-40) scale": "the difference: 20 layers instead of 110",
    r"\bmend(?:ed|ing)\b": "repaired",
    r"\banew\b": "again, or new",
    r"\berrs\b": "has a higher error",
    r"goes on learning": "keeps learning",
    r"both phases of": "both signs of",
    r"re-?initialised|reinitialised": "redrawn, reset, or new",
    r"how it stands|what becomes of|\btold apart\b": "result; what changed; distinguished",
    r"of which the first decides": "the first is the primary metric",
    r"\b(?:colour|normalis|initialis|optimis|vectoris|generalis|parametris|regularis)": "American spelling",
    r"\bcentre[ds]?\b": "center",
}
# Rooms that are being written again, and pages that they generate or belong to them: this list shrinks to nothing as
# each is finished.
LATER = (
    *("src/relucid/convert", "src/relucid/experiments", "src/relucid/inspect", "src/relucid/report"),
    *("src/relucid_reproductions", "docs/results", "docs/claims.md"),
)
FILES = [
    path
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CITATION.cff", "Makefile")),
        *sorted((ROOT / "docs").rglob("*.md*")),
        *sorted((ROOT / "src").rglob("*.py")),
    )
    if not str(path.relative_to(ROOT)).startswith(LATER)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_none_of_the_words(path):
    text = path.read_text(encoding="utf-8")
    wrong = {
        found[0]: better
        for pattern, better in BANNED.items()
        for found in re.finditer(pattern, text, re.IGNORECASE)
    }
    assert wrong == {}
