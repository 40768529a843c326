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
    text = (GUIDES / guide).read_text()
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
        text = path.read_text()
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
    (copy / "table4.py").write_text(blocks("study.md", "python")[0])
    shown = python(copy, "-m", "relucid", "run", "table4.py", "--scale", "full", "--jobs", "1")
    assert "Here: holds." in shown


def test_a_study_is_built_in_as_its_guide_says(copy):
    (copy / "src" / "relucid" / "papers" / "gmp" / "table4.py").write_text(blocks("study.md", "python")[0])
    change(copy, "study.md")
    assert "gmp/widths" in python(copy, "-m", "relucid", "list")
    assert "gmp/widths (smoke)" in python(
        copy, "-m", "relucid", "run", "gmp/widths", "--scale", "smoke", "--jobs", "1"
    )
    assert "Wide networks err less." in python(copy, "-m", "relucid", "claims", "gmp")
