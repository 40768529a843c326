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
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page.count("\n| ") > 30
    assert with_table(page) == page, "run python benchmarks/table.py"


def test_the_readme_has_the_five_that_users_care_about(with_table):
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("<!-- benchmarks -->")[2].partition("<!-- /benchmarks -->")[0]
    assert table.count("\n| ") == 1 + 5
    assert with_table(readme, short=True) == readme, "run python benchmarks/table.py"
