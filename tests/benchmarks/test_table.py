import re
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
    assert len(re.findall(r"\d \([\d.]+", page)) > 70
    assert with_table(page) == page, "run python benchmarks/table.py"


def test_the_targets_that_are_missed_come_first(with_table):
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmarks -->")[2].partition("<!-- /benchmarks -->")[0]
    counted, missed, met = re.split("Missed:|Met, by", table)
    rows = [
        re.findall(r"([\d.e+-]+)(?: to ([\d.e+-]+))? \(([\d.]+)(?: to ([\d.]+))?\)(?: \||[;.])", of)
        for of in (missed, met)
    ]
    assert all(float(most or least) > float(target) for least, most, target, _ in rows[0])
    assert all(float(most or least) <= float(large or small) for least, most, small, large in rows[1])
    assert f"{len(rows[1])} of {len(rows[0]) + len(rows[1])} targets are met." in counted
