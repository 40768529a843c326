from pathlib import Path

from relucid.papers import find
from relucid.studies import run, table

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_study.py"


def test_the_example_of_a_study_of_one_s_own_runs(tmp_path):
    study = find(str(EXAMPLE))
    run(study, "smoke", store=tmp_path, jobs=1)
    found = table(study, "smoke", store=tmp_path)
    assert {record["state"] for record in found.runs} == {"finished"}, found.runs[0]["error"]
    errors = [found.cells[row, "test error %"].mean for row in study.rows]
    assert all(error < 60 for error in errors)
