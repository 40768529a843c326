import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def with_table(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return runpy.run_path(str(ROOT / "benchmarks" / "table.py"))["with_table"]


def test_the_page_has_the_figures_that_were_measured(with_table):
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.count("\n| ") > 30
    assert with_table(page) == page, "run python benchmarks/table.py"


def test_the_targets_that_are_missed_come_first(with_table):
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmarks -->")[2].partition("<!-- /benchmarks -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    missed = [line.endswith("| missed |") for line in rows]
    assert missed == sorted(missed, reverse=True)
    assert f"{missed.count(False)} of {len(rows)} targets are met." in table
