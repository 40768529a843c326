import json
import os
import shlex

import pytest


def test_show_shows_what_there_is_and_every_format_of_it(relucid, study):
    relucid("run", study, "--jobs", "1", "--only", "two", "--seeds", "2")
    assert "(0 of 3 runs)" in relucid("show", study)[1]
    assert "(2 of 3 runs)" in relucid("show", study)[1]
    _, out, _ = relucid("show", study, "--only", "two", "--seeds", "2", "--format", "json")
    assert json.loads(out)["cells"][0]["values"] == [4, 5]
    assert "two,value,4.5" in relucid("show", study, "--format", "csv")[1]
    markdown = relucid("show", study, "--format", "markdown")[1]
    assert "| two | 4.50 ± 0.50 (2 of 3 runs) [5.50 ± 0.50] |" in markdown
    assert r"\begin{tabular}" in relucid("show", study, "--format", "latex")[1]


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("options", [[], ["--scale", "broken", "--store", "my runs"]])
def test_before_the_first_run_the_error_names_the_command_to_run(relucid, study, command, options):
    status, out, err = relucid(command, study, *options)
    scale, store = options[1::2] or ("small", "runs")
    assert (status, out) == (1, "")
    run = shlex.join(["relucid", "run", study, *options])
    assert err.strip() == f"relucid: nothing has been run yet at scale {scale}, in the store {store}: {run}"
    assert not os.path.exists("page.html")


@pytest.mark.parametrize("command", ["show squares.py", "logs squares.py", "report squares.py", "claims"])
def test_a_directory_that_holds_other_files_is_refused_as_a_store(relucid, study, tmp_path, command):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.png").touch()
    status, out, err = relucid(*command.split(), "--store", "photos")
    assert (status, out) == (1, "")
    assert err.startswith("relucid: photos is not a store")


def test_json_output_can_be_imported_elsewhere(relucid, study, tmp_path):
    relucid("run", study, "--jobs", "1")
    (tmp_path / "squares.json").write_text(relucid("show", study, "--format", "json")[1])
    status, out, _ = relucid("import", "squares.json", "runs", "--store", "other")
    assert status == 0
    assert out == "squares.json: 6 runs added, 0 already there\nruns: 0 runs added, 6 already there\n"
    assert relucid("show", study, "--store", "other")[1] == relucid("show", study)[1]
    changed = json.loads((tmp_path / "squares.json").read_text())
    changed["runs"][0]["metrics"]["value"] = 7
    (tmp_path / "squares.json").write_text(json.dumps(changed))
    status, _, err = relucid("import", "squares.json", "--store", "other")
    assert status == 1
    assert "refused" in err
    assert changed["runs"][0]["key"][:8] in err


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
