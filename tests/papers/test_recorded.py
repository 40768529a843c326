"""The runs recorded in results/ and the plans of today's studies."""

import json
from pathlib import Path

import pytest

from relucid.papers import built_in, find, recorded
from relucid.studies import Run, cells
from relucid.studies.travel import file_of

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.glob("*.json"))

# How many runs each study held when runs got names of their own, at the paper's scale and below it.
FULL = {
    "crelu/parameters": 9, "crelu/random": 20, "gmp/banana": 8, "gmp/levy": 8, "gmp/perturbation": 3, "gmp/rates": 32,
    "gmp/uci": 48, "gmp/uci-batches": 8, "structure/convergence": 81, "structure/depth": 20, "structure/lemma1": 120,
}  # fmt: skip
SMALL = {
    "crelu/convpool": 60, "crelu/invariance": 30, "crelu/pairing": 30, "crelu/phase": 12, "crelu/reconstruction": 12,
    "crelu/vgg": 72, "gmp/vgg6": 54, "merge": 12, "structure/cifar": 30, "structure/deep": 15, "structure/depth": 60,
    "together": 30,
}  # fmt: skip


def test_no_recorded_run_is_lost(recorded_tables):
    found = {(table.study.name, table.scale): len(table.runs) for table in recorded_tables}
    held = {
        **{(name, "full"): runs for name, runs in FULL.items()},
        **{(n, "small"): r for n, r in SMALL.items()},
    }
    assert sum(held.values()) == 774
    assert {place: runs for place, runs in held.items() if found.get(place, 0) < runs} == {}


def test_every_file_is_named_for_its_study_and_scale():
    for file in FILES:
        recorded = json.loads(file.read_text())
        assert file.name == file_of(recorded["study"], recorded["scale"])


def test_a_file_that_another_scale_could_overwrite_is_refused(tmp_path):
    content = json.loads((RESULTS / "merge-small.json").read_text())
    (tmp_path / "merge.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"merge-small.json"):
        recorded(tmp_path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recorded_run_has_the_key_that_today_s_plan_gives_it(file):
    recorded = json.loads(file.read_text())
    runs = {run["key"]: Run(run["runner"], run["config"], run["version"]) for run in recorded["runs"]}
    assert len(runs) == len(recorded["runs"])
    assert all(run.key == key for key, run in runs.items())
    planned = cells(find(recorded["study"]), recorded["scale"])
    assert runs.keys() <= {run.key for cell in planned.values() for run in cell}
    for cell in recorded["cells"]:
        here = planned.get((cell["row"], cell["column"]), [])  # a column may have got another name
        if len(here) == sum(cell["states"].values()):
            assert runs.keys() >= {run.key for run in here}


def test_each_built_in_runner_has_one_name_that_is_not_a_path():
    runners = {study.run for study in built_in().values()}
    assert len({runner.name for runner in runners}) == len(runners)
    assert not [runner.name for runner in runners if ":" in runner.name or "." in runner.name]
