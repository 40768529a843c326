import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relucid.cli import forecast


def test_run_does_the_study_and_shows_its_table_beside_the_published_figures(relucid, study):
    status, out, _ = relucid("run", study, "--jobs", "1")
    assert status == 0
    assert "squares (small): How large squares are" in out
    assert "2.00 ± 0.58" in out
    assert "5.50 ± 0.50" in out
    assert "Nothing is chosen on anything." in out
    assert os.path.exists("runs/results.sqlite")


def test_a_dry_run_prints_the_plan_and_the_time_and_runs_nothing(relucid, study):
    status, out, _ = relucid("run", study, "--dry-run", "--jobs", "2")
    assert status == 0
    assert "6 runs, 6 still to do: about 0:03:00 with 2 at a time" in out
    assert "`relucid logs squares.py --scale small`" in out
    assert "After a pilot, `relucid run squares.py --scale small --seeds 2`" in out
    assert "nothing has been run yet" in relucid("show", study)[2]


def test_after_a_pilot_a_dry_run_prints_how_many_seeds_are_needed(relucid, study):
    relucid("run", study, "--jobs", "1", "--seeds", "2")
    _, out, _ = relucid("run", study, "--dry-run", "--seeds", "18")
    assert "36 runs, 32 still to do" in out
    assert "at a time; from " in out
    assert "By the noise of the 2 seeds that have been run" in out
    assert "against one\n  two minus one, value\n    18 seeds: 0.680, with a standard error of 0.236\n" in out
    assert "other numbers of seeds: 4: " in out


def test_a_dry_run_at_smoke_scale_has_no_power(relucid, study):
    _, out, _ = relucid("run", "quickstart", "--scale", "smoke", "--dry-run")
    assert "A smoke test is not compared with anything" in out


def test_a_dry_run_estimates_the_time_on_several_devices(relucid, study):
    dry = ("run", study, "--dry-run")
    assert "about 0:02:00 with 4 at a time;" in relucid(*dry, "--jobs", "4")[1]
    assert "about 0:01:00 with 1 at a time on 6 devices" in relucid(*dry, "--devices", "3", "--nodes", "2")[1]
    assert relucid("run", study, "--tflops", "3")[0] == 1


def test_a_dry_run_estimates_times_from_counted_operations(relucid, study, edit):
    assert "does not count its operations" in relucid("run", study, "--dry-run", "--tflops", "2")[2]
    edit("    source=", "    flops=lambda config: config['x'] * 6e13,\n    source=")
    _, out, _ = relucid("run", study, "--dry-run", "--tflops", "2", "--jobs", "2")
    assert "about 0:02:30 with 2 at a time; from 5.4e+14 counted operations" in out


def test_an_edited_study_is_refused_and_the_old_numbers_are_not_shown(relucid, study, edit):
    relucid("run", study, "--jobs", "1")
    edit("** 2", "** 3")
    sentence = "the file of squares:run has changed since 6 runs were made"
    status, _, err = relucid("run", study, "--jobs", "1")
    assert status == 2
    assert f"{sentence}: --keep" in err
    _, out, err = relucid("show", study)
    assert out.count("(0 of 3 runs)") == 2
    assert f"{sentence}; they are not shown" in err
    assert sentence in relucid("run", study, "--dry-run")[2]
    assert relucid("run", study, "--keep", "--rerun")[0] == 1
    status, out, _ = relucid("run", study, "--jobs", "1", "--rerun", "--only", "two")
    assert (status, "9.00 ± 0.58" in out) == (0, True)
    status, out, _ = relucid("run", study, "--jobs", "1", "--keep")
    assert (status, "2.00 ± 0.58" in out, "of 3 runs" in out) == (0, True, False)


def test_failed_runs_are_reported_and_logged_and_make_the_command_fail(relucid, study):
    status, out, err = relucid("run", study, "--scale", "broken", "--jobs", "1")
    assert status == 1
    assert "(3 failed)" in out
    assert "`relucid logs squares.py --scale broken` shows why" in out
    assert "failed: RuntimeError: no [way]" in err
    _, out, _ = relucid("logs", study, "--scale", "broken")
    assert out.count("RuntimeError: no [way]") == 3
    assert out.count("finished") == 3


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


def test_a_forecast_has_as_many_runs_at_a_time_as_the_cores_have_room_for(monkeypatch):
    monkeypatch.setattr(forecast, "cores", lambda: 8)
    assert [forecast.Fleet(threads=threads).workers(20) for threads in (1, 4, 16)] == [8, 2, 1]
