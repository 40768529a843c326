import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


def test_show_shows_what_there_is_and_every_format_of_it(relucid, study):
    relucid("run", study, "--jobs", "1", "--only", "two", "--seeds", "2")
    shown = relucid("show", study)[1]
    assert "4.50±0.50 [5.50±0.50] (2 of 3 runs)" in shown
    assert "one" not in [line.strip("│ ").split("│")[0].strip() for line in shown.splitlines()]
    _, out, _ = relucid("show", study, "--only", "two", "--seeds", "2", "--format", "json")
    assert json.loads(out)["cells"][0]["values"] == [4, 5]
    assert "two,value,4.5,0.5,2.0,5.5,0.5" in relucid("show", study, "--format", "csv")[1]
    markdown = relucid("show", study, "--format", "markdown")[1]
    assert "| two | 4.50±0.50 [5.50±0.50] (2 of 3 runs) |" in markdown
    assert r"\begin{tabular}" in relucid("show", study, "--format", "latex")[1]


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("options", [[], ["--scale", "broken", "--store", "my runs"]])
def test_before_the_first_run_the_error_names_the_command_to_run(relucid, study, command, options):
    status, out, err = relucid(command, study, *options)
    store = options[3] if options else "runs"
    assert (status, out) == (1, "")
    run = shlex.join(["relucid", "run", study, *(options or ["--scale", "small"])])
    assert err.strip() == f"relucid: nothing has been run yet in the store {store}: {run}"
    assert not os.path.exists("page.html")


@pytest.mark.parametrize("command", ["show squares.py", "logs squares.py", "report squares.py", "claims"])
def test_a_directory_that_holds_other_files_is_refused_as_a_store(relucid, study, tmp_path, command):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.png").touch()
    status, out, err = relucid(*command.split(), "--store", "photos")
    assert (status, out) == (1, "")
    assert err.startswith("relucid: photos is not a store")


def test_records_are_lines_that_are_added_once_and_can_be_imported(relucid, study, tmp_path):
    relucid("run", study, "--jobs", "1", "-q")
    (tmp_path / "records").mkdir()
    assert "6 runs added to records" in relucid("show", study, "--record", "records")[2]
    before = Path("records/squares-run.jsonl").read_text(encoding="utf-8")
    relucid("run", study, "--jobs", "1", "--seeds", "4", "-q")
    assert "2 runs added to records" in relucid("show", study, "--seeds", "4", "--record", "records")[2]
    after = Path("records/squares-run.jsonl").read_text(encoding="utf-8")
    assert after.startswith(before)
    assert len(after.splitlines()) == 8
    status, out, _ = relucid("import", "records", "runs", "--store", "other")
    assert status == 0
    assert out == "records: 8 runs added, 0 already there\nruns: 0 runs added, 8 already there\n"
    assert relucid("show", study, "--store", "other")[1] == relucid("show", study)[1]


def test_json_output_can_be_imported_and_a_different_outcome_is_refused(relucid, study, tmp_path):
    relucid("run", study, "--jobs", "1", "-q")
    shown = relucid("show", study, "--format", "json")[1]
    (tmp_path / "squares.json").write_text(shown)
    assert relucid("import", "squares.json", "--store", "other")[1] == (
        "squares.json: 6 runs added, 0 already there\n"
    )
    changed = json.loads(shown)
    changed["runs"][0]["metrics"]["value"] = 7
    (tmp_path / "squares.json").write_text(json.dumps(changed))
    status, out, err = relucid("import", "squares.json", "--store", "other")
    assert (status, out) == (1, "squares.json: 0 runs added, 5 already there\n")
    assert f"refused, the store has a different outcome of run {changed['runs'][0]['key'][:8]}" in err


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("epoch,loss\n", "bad.jsonl has no records"),
        ('{"key": 1}\n', "bad.jsonl, run 1, is no record of a run"),
        (
            '{"key": "a", "runner": "r", "config": {}, "version": 1, "state": "finished", "metrics": {}}',
            "has another key than its configuration gives",
        ),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(relucid, study, text, sentence):
    Path("bad.jsonl").write_text(text)
    status, _, err = relucid("import", "bad.jsonl", "--store", "other")
    assert (status, sentence in err, len(err.strip().splitlines())) == (1, True, 1)
    assert relucid("show", study, "--store", "other")[0] == 1


@pytest.mark.parametrize(
    "command, expected", [("show squares.py", 1), ("logs squares.py", 0), ("run squares.py --dry-run", 0)]
)
def test_a_command_that_only_reads_makes_no_store(relucid, study, command, expected):
    assert relucid(*command.split())[0] == expected
    assert not os.path.exists("runs")


@pytest.mark.parametrize(
    "command, complaint",
    [
        ("run squars", "`relucid list`"),
        ("report squars", "there is no study 'squars'"),
        ("run gmp/levi", "did you mean 'gmp/levy'"),
        ("show squares.py --only tow", "did you mean 'two'?"),
        ("run squares.py --scale smal", "did you mean 'small'?"),
        ("run squares.py --executor slurm", "there are local, ray, dask"),
        ("show squares.py --format markdwn", "did you mean 'markdown'?"),
        ("run squares.py --store squares.py", "with --store"),
        ("run squares.py --nodes 2", "torchrun --nnodes 2"),
    ],
)
def test_wrong_names_are_refused_in_one_sentence(relucid, study, command, complaint):
    status, _, err = relucid(*command.split())
    assert status == 1
    assert complaint in err
    assert len(err.strip().splitlines()) == 1


def test_to_look_at_results_takes_neither_torch_nor_statistics():
    code = (
        "import sys, relucid.cli.studies, relucid.cli.tables, relucid.experiments._ledger; "
        "print([name for name in ('torch', 'scipy.stats') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
