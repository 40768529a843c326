import json
import runpy
from pathlib import Path

import pytest

from relucid.studies import find, plan

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))
page = runpy.run_path(str(ROOT / "docs" / "results.py"))["page"]


def test_the_page_says_what_the_files_say():
    assert (ROOT / "docs" / "results.md").read_text() == page(), "run python docs/results.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_runs_of_its_study_as_it_is_now_and_no_others(path):
    recorded = json.loads(path.read_text())
    planned = {run.key for run in plan(find(recorded["study"]), recorded["scale"])}
    found = {run["key"] for run in recorded["runs"]}
    assert found
    assert found <= planned
