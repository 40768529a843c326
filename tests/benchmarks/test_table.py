import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_has_the_figures_that_were_measured(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    with_table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))["with_table"]
    readme = (ROOT / "README.md").read_text()
    assert "| ours | against | ratio | bar |" in readme
    assert with_table(readme) == readme, "run python benchmarks/table.py"
