from pathlib import Path

from relucid.experiments import run
from relucid.experiments._catalog import find

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_study.py"


def test_the_example_of_a_study_runs(tmp_path):
    study = find(str(EXAMPLE))
    results = run(study, "smoke", store=tmp_path, jobs=1)
    assert [record["error"] for record in results.records.values() if record["state"] != "finished"] == []
    assert all(results[row, "test error %"].mean() < 60 for row in study.rows)
