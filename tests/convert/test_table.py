"""The table of docs/conversions.md says what the conversions do."""

import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conversions.md"
CELL = re.compile(
    r"(?P<outputs>\S+), (?P<gradients>\S+); (?P<changed>\d+(?: of \d+)?); \S+ s$|refused \((?P<note>\d+)\)$"
)


@cache
def table():
    """The cells of every network, and the notes."""
    text = PAGE.read_text().split("<!-- written by benchmarks/conversions_table.py -->")[1]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    notes = re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE)
    return [(name, cells) for name, *cells in lines[1:-1]], dict(notes)


@pytest.fixture
def generator(monkeypatch):
    """The script that writes the table."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import conversions_table

    return conversions_table


def test_the_page_has_every_network_of_the_generator_and_names_those_that_were_not_measured(generator):
    rows = [name for name, _ in table()[0]]
    page = PAGE.read_text()
    missing = {name for name in generator.NETWORKS if f"`{name}`" in page}
    known = {f"{name}: {what}": name for name, (what, _) in generator.NETWORKS.items()}
    assert rows == [full for full, name in known.items() if name not in missing]
    assert len(rows) >= 40


def test_every_cell_is_exact_or_refused_with_a_reason(generator):
    rows, notes = table()
    for name, cells in rows:
        assert len(cells) == len(generator.CONVERSIONS), name
        for cell in cells:
            found = CELL.match(cell)
            assert found, (name, cell)
            if found["note"]:
                assert len(notes[found["note"]]) > 20
            else:
                assert float(found["outputs"]) <= 1e-10
                assert float(found["gradients"]) <= 1e-8


@pytest.mark.parametrize("name", ["stand-in: GoogLeNet", "stand-in: segmentation"])
def test_a_row_made_anew_is_the_same(name, generator):
    rows, notes = table()
    expected = next(cells for full, cells in rows if full.startswith(f"{name}: "))
    made = generator.row(name)[1]
    for before, now in zip(expected, made, strict=True):
        refused = CELL.match(before)["note"]
        if refused:
            assert notes[refused] == now
        else:
            assert CELL.match(before)["changed"] == CELL.match(now)["changed"]
