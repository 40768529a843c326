import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relucid.experiments import _executors


def test_run_does_the_study_and_shows_its_claims_and_its_table(relucid, study):
    status, out, _ = relucid("run", study, "--jobs", "1")
    assert status == 0
    assert "squares (small): How large squares are" in out
    assert "against two: One is lower.\nConfirmed." in out
    assert "one minus two, value: -3.00 [-5.27, -0.733]" in out
    assert "5.00±0.58 [5.50±0.50]" in out
    assert os.path.exists("runs/results.sqlite")


def test_a_dry_run_prints_the_runs_left_and_their_time_by_those_that_are_done(relucid, study, edit):
    status, out, _ = relucid("run", study, "--dry-run", "--jobs", "2")
    assert (status, os.path.exists("runs")) == (0, False)
    assert "6 runs, 6 left: an unknown time" in out
    assert "`relucid logs squares.py --scale small`" in out
    edit('    return {"value"', '    import time; time.sleep(0.5)\n    return {"value"')
    relucid("run", study, "--jobs", "1", "--seeds", "2", "-q")
    _, out, _ = relucid("run", study, "--dry-run", "--seeds", "1002", "--jobs", "4")
    assert "2004 runs, 2000 left: about 0:04:" in out
    assert "with 4 at a time, by the runs that are done" in out
    assert "with 1 at a time on 6 devices, if each" in relucid("run", study, "--dry-run", "--devices", "6")[1]
    assert "4 runs, 0 left: nothing to do." in relucid("run", study, "--dry-run", "--seeds", "2")[1]


def test_a_dry_run_plans_as_many_at_a_time_as_there_are_cores_for(relucid, study, monkeypatch):
    monkeypatch.setattr(_executors, "cores", lambda: 8)
    relucid("run", study, "--jobs", "1", "--seeds", "1", "-q")
    for threads, at_a_time in (("1", 8), ("4", 2), ("16", 1)):
        _, out, _ = relucid("run", study, "--dry-run", "--seeds", "20", "--threads", threads)
        assert f"with {at_a_time} at a time" in out


def test_an_edited_study_says_so_and_repeats_nothing_before_its_version_is_raised(relucid, study, edit):
    relucid("run", study, "--jobs", "1", "-q")
    edit("** 2", "** 3")
    for command in ("run", "show"):
        status, out, err = relucid(command, study)
        assert (status, "5.00±0.58" in out) == (0, True)
        assert "the file of squares:run has changed since 6 of these runs" in err
        assert '@runner("squares:run", version=2)' in err
    edit("def run(x", '@runner("squares:run", version=2)\ndef run(x')
    edit("Study, lower", "Study, lower, runner")
    status, out, err = relucid("run", study, "--jobs", "1", "-q")
    assert (status, err) == (0, "")
    assert "9.00±0.58" in relucid("show", study)[1]


@pytest.mark.parametrize("then", ["pass", "raise KeyboardInterrupt"])
def test_runs_of_a_store_that_is_removed_meanwhile_are_saved_and_can_be_imported(relucid, study, edit, then):
    last = f"if x == 2 and seed == 2:\n        import shutil; shutil.rmtree('runs'); {then}"
    edit('    return {"value"', f'    {last}\n    return {{"value"')
    status, out, err = relucid("run", study, "--jobs", "1", "-q")
    assert (status, out) == (1, "")
    assert "runs was moved or removed while it was in use" in err
    saved = next(Path().glob("runs-saved-*")).name
    assert f"`relucid import {saved} --store STORE`" in err
    done = 6 if then == "pass" else 5
    assert f"{saved}: {done} runs added" in relucid("import", saved)[1]
    assert f"6 runs, {6 - done} left" in relucid("run", study, "--dry-run", "--store", saved)[1]


def test_failed_runs_are_reported_and_logged_and_make_the_command_fail(relucid, study):
    status, out, err = relucid("run", study, "--scale", "broken", "--jobs", "1")
    assert status == 1
    assert "(3 failed)" in out
    assert "`relucid logs squares.py --scale broken` shows why" in out
    assert "failed: RuntimeError: no [way]" in err
    _, out, _ = relucid("logs", study, "--scale", "broken")
    assert out.count("RuntimeError: no [way]") == 3
    assert out.count("  finished  ") == 3


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ('rows={"one": {"x": 1}', 'rows={"one": {"y": 1}', "has no argument 'y'; it takes x, seed, broken"),
        ('{"x": 1}', '{"x": 1, "seeed": 2}', "has no argument 'seeed'; did you mean 'seed'?"),
        ('rows={"one": {"x": 1}', 'rows={"one": {}', "row 'one' of study 'squares' has no setting 'x'"),
        ('Column("value")', 'Column("valeu")', "no run of column 'value' returned the metric 'valeu'; did you mean"),
        ("published={(\"two\"", "published={(\"tow\"", "there is no row 'tow' in what study 'squares' publishes"),
    ],
)  # fmt: skip
def test_a_wrong_study_is_refused_in_one_sentence(relucid, study, edit, old, new, sentence):
    edit(old, new)
    status, out, err = relucid("run", study, "--jobs", "1", "-q")
    assert (status, out) == (1, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "value, sentence",
    [
        ('float("nan")', "metric 'value' is nan; it must be a finite number"),
        ("None", "metric 'value' is None; it must be a finite number"),
        ('"low"', "metric 'value' is 'low'; it must be a number"),
        ("[x, float('inf')]", "it must be a finite number or a list of them"),
    ],
)
def test_a_run_that_returns_no_number_has_failed_and_is_never_compared(relucid, study, edit, value, sentence):
    edit('return {"value": x ** 2 + seed}', f'return {{"value": {value} if x == 2 else 0.5 + seed}}')
    status, out, err = relucid("run", study, "--jobs", "1")
    assert (status, out.count("(3 failed)")) == (1, 1)
    assert sentence in err
    assert "no detectable difference" not in out.lower()
    assert "Inconclusive" in out


@pytest.mark.parametrize(
    "options, sentence",
    [
        (("--precision", "8"), "--precision 8: expected 32, bf16-mixed, 16-mixed"),
        (("--workers", "2"), "runs of squares:run take no workers, precision or compilation"),
        (("--workers", "99999"), "workers=99999 is not within 0 to"),
    ],
)
def test_a_machine_that_cannot_be_is_refused_before_any_run(relucid, study, edit, options, sentence):
    if "99999" in options:
        edit("broken=False)", "broken=False, machine=None)")
    status, out, err = relucid("run", study, "--jobs", "1", *options)
    assert (status, out) == (1, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_quiet_run_prints_errors_only(relucid, study):
    assert relucid("run", study, "--jobs", "1", "--quiet") == (0, "", "")
    status, out, err = relucid("run", study, "--jobs", "1", "--quiet", "--scale", "broken")
    assert (status, out) == (1, "")
    assert "no [way]" in err


def test_after_ctrl_c_the_same_command_continues(relucid, study, edit):
    edit('raise RuntimeError("no [way]")', "raise KeyboardInterrupt")
    status, _, err = relucid("run", study, "--jobs", "1", "--scale", "broken")
    assert status == 130
    assert "the same command continues" in err
    assert "1.00 (1 of 3 runs)" in relucid("show", study, "--scale", "broken")[1]


DISTRIBUTED = """
import os
import torch
from torch import nn
from relucid.data import Split
from relucid.experiments import Column, Study
from relucid.nn import MeanNorm
from relucid.train import Recipe, fit

def run(seed, machine):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(3, 8), MeanNorm(8, bias=True), nn.ReLU(), nn.Linear(8, 1)).double()
    inputs = torch.randn(40, 3, dtype=torch.float64)
    part = Split(inputs, inputs.sum(1, keepdim=True).sin())
    fitted = fit(network, part, Recipe(epochs=3, batch_size=10, loss="mse", lr=0.01), machine=machine)
    return {"loss": fitted.history["train_loss"][-1], "processes": int(os.environ.get("WORLD_SIZE", 1))}

study = Study("both", "", run, rows={"a": {}}, columns={"loss": Column("loss"), "processes": Column("processes")})
"""


@pytest.mark.slow
def test_devices_work_on_one_run_together_and_give_what_one_gives(relucid, study):
    Path(study).write_text(DISTRIBUTED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "relucid", "run", study, "--seeds", "2", "--store"]
    subprocess.run([*command, "together", "--devices", "2"], check=True, env=environment)
    subprocess.run([*command, "alone", "--jobs", "1"], check=True, env=environment)
    losses = {}
    for store, processes in (("together", 2), ("alone", 1)):
        out = json.loads(relucid("show", study, "--seeds", "2", "--store", store, "--format", "json")[1])
        loss, counted = out["cells"]
        assert counted["values"] == [processes] * 2
        losses[store] = loss["values"]
    assert losses["together"] == pytest.approx(losses["alone"], rel=1e-12)
