import json
from pathlib import Path

from relucid.experiments import run
from relucid.experiments._catalog import find

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_of_a_study_runs(tmp_path):
    study = find(str(EXAMPLES / "my_study.py"))
    results = run(study, "smoke", store=tmp_path, jobs=1)
    assert [record["error"] for record in results.records.values() if record["state"] != "finished"] == []
    assert all(results[row, "test error %"].mean() < 60 for row in study.rows)


def test_the_notebook_of_a_study_runs_from_its_first_cell_to_its_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "my_study.ipynb").read_text(encoding="utf-8"))["cells"]
    names = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert all(len(names["results"][row, "test error %"]) == 3 for row in names["study"].rows)
    assert "CReLU" in capsys.readouterr().out
