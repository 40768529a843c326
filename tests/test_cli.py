import json
import os
import shlex
import subprocess
import sys

import pytest

from relucid.cli import main

STUDY = """
from relucid.studies import Column, Scale, Study

def run(config):
    if config["broken"] and config["x"] == 2:
        raise RuntimeError("no [way]")
    return {"value": config["x"] ** 2 + config["seed"]}

study = Study(
    "squares", "How large squares are", run,
    rows={"one": {"x": 1}, "two": {"x": 2}},
    columns={"value": Column("value")},
    scales={"small": Scale({"broken": False}, seconds=60.0), "broken": Scale({"broken": True})},
    published={"two": {"value": (5.5, 0.5)}},
    source="a Table 1",
    protocol="Nothing is chosen on anything.",
)
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A file with a study, in the working directory, and an empty store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELUCID_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "squares.py").write_text(STUDY)
    return "squares.py"


def test_run_does_the_study_and_shows_its_table_beside_the_published_figures(relucid, study):
    status, shown, _ = relucid("run", study, "--jobs", "1")
    assert status == 0
    assert "squares (small): How large squares are" in shown
    assert "2.00 ± 0.58" in shown
    assert "5.50 ± 0.50" in shown
    assert "Nothing is chosen on anything." in shown
    assert os.path.exists("runs/results.sqlite")


def test_show_shows_what_there_is_and_every_format_of_it(relucid, study):
    relucid("run", study, "--jobs", "1", "--only", "two", "--seeds", "2")
    assert "(0 of 3 runs)" in relucid("show", study)[1]
    assert "(2 of 3 runs)" in relucid("show", study)[1]
    _, shown, _ = relucid("show", study, "--only", "two", "--seeds", "2", "--format", "json")
    assert json.loads(shown)["cells"][0]["values"] == [4, 5]
    assert "two,value,4.5" in relucid("show", study, "--format", "csv")[1]
    assert (
        "| two | 4.50 ± 0.50 (2 of 3 runs) [5.50 ± 0.50] |"
        in relucid("show", study, "--format", "markdown")[1]
    )
    assert r"\begin{tabular}" in relucid("show", study, "--format", "latex")[1]


def test_a_dry_run_prints_the_plan_and_the_time_and_does_nothing(relucid, study):
    status, shown, _ = relucid("run", study, "--dry-run", "--jobs", "2")
    assert status == 0
    assert "6 runs, 6 still to do: about 0:03:00 with 2 at a time; from what the scale says" in shown
    assert "`relucid logs squares.py --scale small` lists them." in shown
    assert "After a pilot, `relucid run squares.py --scale small --seeds 2`, this command says." in shown
    assert "nothing has been run yet" in relucid("show", study)[2]


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("options", [[], ["--scale", "broken", "--store", "my runs"]])
def test_before_the_first_run_the_error_names_the_command_to_run(relucid, study, command, options):
    status, shown, errors = relucid(command, study, *options)
    scale, store = options[1::2] or ("small", "runs")
    assert (status, shown) == (1, "")
    run = shlex.join(["relucid", "run", study, *options])
    assert (
        errors.strip() == f"relucid: nothing has been run yet at scale {scale}, in the store {store}: {run}"
    )
    assert not os.path.exists("page.html")


@pytest.mark.parametrize("command", ["show squares.py", "logs squares.py", "report squares.py", "claims"])
def test_a_directory_that_holds_other_things_is_no_store(relucid, study, tmp_path, command):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.png").touch()
    status, shown, errors = relucid(*command.split(), "--store", "photos")
    assert (status, shown) == (1, "")
    assert errors.strip() == (
        "relucid: photos is not a store: name a directory that `relucid run --store` has filled"
    )


def test_after_a_pilot_a_dry_run_prints_how_many_seeds_are_needed(relucid, study):
    relucid("run", study, "--jobs", "1", "--seeds", "2")
    _, shown, _ = relucid("run", study, "--dry-run", "--seeds", "18")
    assert "36 runs, 32 still to do" in shown
    assert "at a time; from " in shown
    assert "By the noise of the 2 seeds that have been run" in shown
    assert (
        "against one\n  two minus one, value\n    18 seeds: 0.680, with a standard error of 0.236\n" in shown
    )
    assert "other numbers of seeds: 4: " in shown


def test_a_dry_run_at_smoke_scale_detects_nothing(relucid, study):
    _, shown, _ = relucid("run", "quickstart", "--scale", "smoke", "--dry-run")
    assert "A smoke test is not compared with anything" in shown


def test_a_dry_run_prints_the_time_on_the_devices(relucid, study):
    dry = ("run", study, "--dry-run")
    assert "about 0:02:00 with 4 at a time;" in relucid(*dry, "--jobs", "4")[1]
    assert "about 0:01:00 with 1 at a time on 6 devices" in relucid(*dry, "--devices", "3", "--nodes", "2")[1]
    assert relucid("run", study, "--tflops", "3")[0] == 1


def test_a_dry_run_estimates_times_from_counted_operations(relucid, study, tmp_path):
    assert "does not count its operations" in relucid("run", study, "--dry-run", "--tflops", "2")[2]
    counting = "    flops=lambda config: config['x'] * 6e13,\n    source="
    (tmp_path / study).write_text(STUDY.replace("    source=", counting))
    _, shown, _ = relucid("run", study, "--dry-run", "--tflops", "2", "--jobs", "2")
    assert "about 0:02:30 with 2 at a time; from 5.4e+14 counted operations, if a device sustains 2" in shown


def test_an_edited_study_is_refused_and_the_old_numbers_are_not_shown(relucid, study, tmp_path):
    relucid("run", study, "--jobs", "1")
    (tmp_path / study).write_text(STUDY.replace("** 2", "** 3"))
    sentence = "the file of squares:run has changed since 6 runs were made"
    status, _, errors = relucid("run", study, "--jobs", "1")
    assert status == 2
    assert errors.strip().startswith(
        f"relucid: {sentence}: --keep to count them anyway, --rerun to repeat them"
    )
    _, shown, errors = relucid("show", study)
    assert shown.count("(0 of 3 runs)") == 2
    assert f"{sentence}; they are not shown: `relucid run squares.py --keep` counts them" in errors
    assert sentence in relucid("run", study, "--dry-run")[2]
    assert relucid("run", study, "--keep", "--rerun")[0] == 1
    status, shown, _ = relucid("run", study, "--jobs", "1", "--rerun", "--only", "two")
    assert (status, "9.00 ± 0.58" in shown) == (0, True)
    status, shown, _ = relucid("run", study, "--jobs", "1", "--keep")
    assert (status, "2.00 ± 0.58" in shown, "of 3 runs" in shown) == (0, True, False)


def test_what_is_shown_as_json_can_be_imported_elsewhere(relucid, study, tmp_path):
    relucid("run", study, "--jobs", "1")
    (tmp_path / "squares.json").write_text(relucid("show", study, "--format", "json")[1])
    status, errors, _ = relucid("import", "squares.json", "runs", "--store", "other")
    assert status == 0
    assert errors == "squares.json: 6 runs added, 0 already there\nruns: 0 runs added, 6 already there\n"
    assert relucid("show", study, "--store", "other")[1] == relucid("show", study)[1]
    changed = json.loads((tmp_path / "squares.json").read_text())
    changed["runs"][0]["metrics"]["value"] = 7
    (tmp_path / "squares.json").write_text(json.dumps(changed))
    status, _, errors = relucid("import", "squares.json", "--store", "other")
    assert status == 1
    assert (
        "squares.json: refused, the store has a different outcome: " + changed["runs"][0]["key"][:8] in errors
    )


@pytest.mark.parametrize(
    "command, expected", [("show squares.py", 1), ("logs squares.py", 0), ("run squares.py --dry-run", 0)]
)
def test_a_command_that_only_reads_makes_no_store(relucid, study, command, expected):
    assert relucid(*command.split())[0] == expected
    assert not os.path.exists("runs")


def test_failures_are_printed_and_logged_and_make_the_command_fail(relucid, study):
    status, shown, errors = relucid("run", study, "--scale", "broken", "--jobs", "1")
    assert status == 1
    assert "(3 failed)" in shown
    assert "`relucid logs squares.py --scale broken` shows why" in shown
    assert "failed: RuntimeError: no [way]" in errors
    _, shown, _ = relucid("logs", study, "--scale", "broken")
    assert shown.count("RuntimeError: no [way]") == 3
    assert shown.count("finished") == 3


def test_list_shows_models_and_which_data_sets_are_present(relucid, study, monkeypatch):
    monkeypatch.setenv("RELUCID_DATA", "here")
    status, shown, _ = relucid("list")
    assert status == 0
    assert "vgg6" in shown
    present, missing = (shown.partition(f"{label}:")[2].split(":")[0] for label in ("present", "missing"))
    assert "digits" in present
    assert "cifar10" in missing
    assert "cifar10" not in present.partition("missing")[0]


@pytest.mark.parametrize(
    "command, complaint",
    [
        ("run squars", "relucid: there is no study 'squars': `relucid list` shows all of them"),
        ("run gmp/levi", "there is no study 'gmp/levi'; did you mean 'gmp/levy'"),
        ("show squares.py --only tow", "there is no row 'tow' in study 'squares'; did you mean 'two'?"),
        ("run squares.py --scale smal", "no scale 'smal' in study 'squares'; did you mean 'small'?"),
        ("run squares.py --executor slurm", "there is no executor 'slurm'; there are local, ray, dask"),
        ("show squares.py --format markdwn", "there is no format 'markdwn'; did you mean 'markdown'?"),
        ("run squares.py --store squares.py", "name a directory that can be written to with --store"),
        ("run squares.py --nodes 2", "with 2 nodes, start torchrun on each of them: torchrun --nnodes 2"),
    ],
)
def test_an_error_is_one_sentence(relucid, study, command, complaint):
    status, _, errors = relucid(*command.split())
    assert status == 1
    assert complaint in errors
    assert "Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_error_for_an_unknown_command_names_the_nearest(relucid):
    status, _, errors = relucid("shwo")
    assert status == 2
    assert "No such command 'shwo'. Did you mean 'show'?" in errors


def test_ctrl_c_prints_how_to_go_on(relucid, study):
    with open(study, "w") as file:
        file.write(STUDY.replace('raise RuntimeError("no [way]")', "raise KeyboardInterrupt"))
    status, _, errors = relucid("run", study, "--jobs", "1", "--scale", "broken")
    assert status == 130
    assert "Finished runs are kept; the same command continues from here." in errors
    assert "1.00 (1 of 3 runs)" in relucid("show", study, "--scale", "broken")[1]


def test_without_the_extra_the_error_names_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("relucid.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install .*\[studies\]"):
        main()


def test_logs_for_tensorboard_need_tensorboard(relucid, study, monkeypatch):
    monkeypatch.setattr("relucid.cli.studies.find_spec", lambda name: None)
    status, _, errors = relucid("run", study, "--tensorboard")
    assert (status, errors) == (1, "relucid: --tensorboard needs tensorboard: pip install tensorboard")


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "relucid.cli", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "relucid: No space left on device\n")


def test_a_reader_that_has_seen_enough_is_no_reason_to_complain():
    command = f"{sys.executable} -m relucid.cli list --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


DISTRIBUTED = """
import os
import torch
from torch import nn
from relucid.data import Split
from relucid.nn import MeanNorm
from relucid.studies import Column, Study
from relucid.train import Recipe, fit

def run(config, machine):
    torch.manual_seed(config["seed"])
    network = nn.Sequential(nn.Linear(3, 8), MeanNorm(8, bias=True), nn.ReLU(), nn.Linear(8, 1)).double()
    inputs = torch.randn(40, 3, dtype=torch.float64)
    part = Split(inputs, inputs.sum(1, keepdim=True).sin())
    fitted = fit(network, part, Recipe(epochs=3, batch_size=10, loss="mse", lr=0.01), machine=machine)
    return {"loss": fitted.history["train_loss"][-1], "processes": int(os.environ.get("WORLD_SIZE", 1))}

study = Study("both", "", run, rows={"a": {}}, columns={"loss": Column("loss"), "processes": Column("processes")})
"""


@pytest.mark.slow
def test_devices_work_on_one_run_together_and_give_what_one_gives(relucid, study):
    with open(study, "w") as file:
        file.write(DISTRIBUTED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "relucid.cli", "run", study, "--seeds", "2", "--store"]
    subprocess.run([*command, "together", "--devices", "2"], check=True, env=environment)
    subprocess.run([*command, "alone", "--jobs", "1"], check=True, env=environment)
    losses = {}
    for store, processes in (("together", 2), ("alone", 1)):
        shown = json.loads(relucid("show", study, "--seeds", "2", "--store", store, "--format", "json")[1])
        loss, counted = shown["cells"]
        assert counted["values"] == [processes] * 2
        losses[store] = loss["values"]
    assert losses["together"] == pytest.approx(losses["alone"], rel=1e-12)


def test_list_is_readable_by_programs(relucid):
    shown = json.loads(relucid("list", "--json")[1])
    assert "resnet56" in shown["models"]
    assert shown["data"]["digits"] is True
    lines = relucid("list", "--models")[1].splitlines()
    assert lines == shown["models"] == json.loads(relucid("list", "--models", "--json")[1])


def test_a_quiet_run_prints_errors_only(relucid, study):
    assert relucid("run", study, "--jobs", "1", "--quiet") == (0, "", "")
    status, shown, errors = relucid("run", study, "--jobs", "1", "--quiet", "--scale", "broken")
    assert (status, shown) == (1, "")
    assert "no [way]" in errors
