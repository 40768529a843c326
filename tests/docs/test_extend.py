"""Whoever follows a guide in docs/extend gets what it promises: each is followed in a copy of the package.

The guides to rules, backbones and measurements need no change of the package: `test_code_blocks.py` runs them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "extend"


def blocks(guide, language):
    text = (GUIDES / guide).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def copy(tmp_path):
    """The directory of a copy of the package."""
    shutil.copytree(
        ROOT / "src" / "relucid", tmp_path / "src" / "relucid", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def change(copy, guide):
    """Make the changes that a guide shows."""
    for block in blocks(guide, "diff"):
        name, *lines = block.splitlines(keepends=True)
        path = copy / name.removeprefix("--- ").strip()
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines if line[0] != "-")
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{guide} changes lines that {name} does not have"
        path.write_text(text.replace(before, after))


def python(copy, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_activation_is_added_as_its_guide_says(copy):
    change(copy, "index.md")
    python(copy, "-c", "\n".join(blocks("index.md", "py")))


def test_a_study_in_a_file_is_run_as_its_guide_says(copy):
    (copy / "widths.py").write_text("".join(blocks("study.md", "python")[:2]))
    shown = python(copy, "-m", "relucid", "run", "widths.py", "--jobs", "1")
    assert "Wide networks have a lower error." in shown
    assert "1.02±0.00" in shown


def test_the_study_of_the_guide_is_ten_lines(copy):
    (study, *_) = blocks("study.md", "python")
    assert len([line for line in study.splitlines() if line.strip()]) <= 10


def test_a_page_and_a_package_work_as_their_guide_says(copy):
    (copy / "widths.py").write_text(blocks("study.md", "python")[0] + "STUDIES = [study]\n")
    (template,) = (block for block in blocks("study.md", "jinja") if block.startswith("# "))
    (copy / "widths.md").write_text(template)
    python(copy, "-m", "relucid", "run", "widths.py", "--jobs", "1", "-q")
    page = python(
        copy, "-c",
        "import widths; from relucid.experiments import Store; from relucid.experiments._page import Archive; "
        "print(Archive(Store('runs')).render(widths))",
    )  # fmt: skip
    assert "| wide | 1.02±0.00 |" in page
    assert "The wide ones err 1.02 on average." in page
