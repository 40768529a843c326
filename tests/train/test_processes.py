"""Trainings in processes of their own, killed or distributed."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from relucid.train import fit

from .problems import PLAIN, mean_norm_network, small_images

SCRIPT = str(Path(__file__).with_name("train_in_process.py"))
# Without the second, restarted processes find the addresses of the dead ones in the store that they share.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def run(*arguments):
    subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], check=True, env=ENVIRONMENT)


def torchrun(*arguments):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command += ["--monitor-interval=0.2", SCRIPT, *map(str, arguments)]
    done = subprocess.run([sys.executable, *command], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def equal(one, other):
    return all(one["weights"][name].equal(other["weights"][name]) for name in one["weights"])


@pytest.mark.slow
def test_kill_minus_nine_at_any_moment_changes_nothing(tmp_path):
    run(tmp_path / "whole", tmp_path / "whole.pt")
    positions = []
    for attempt, batch in enumerate(torch.randint(6, 16, (4,)).tolist()):  # of 48 in all
        arguments = [tmp_path / "killed", tmp_path / "killed.pt", 1, tmp_path / f"died {attempt}", batch]
        with pytest.raises(subprocess.CalledProcessError) as ended:
            run(*arguments)
        assert ended.value.returncode == -signal.SIGKILL
        saved = torch.load(tmp_path / "killed" / "last.ckpt")
        positions.append((saved["epoch"], saved["step"]))
    assert positions == sorted(positions)
    assert any(step for _, step in positions), "one of them within an epoch"
    run(tmp_path / "killed", tmp_path / "killed.pt")
    whole, killed = torch.load(tmp_path / "whole.pt"), torch.load(tmp_path / "killed.pt")
    assert equal(whole, killed)
    assert whole["history"] == killed["history"]
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["last.ckpt"]


@pytest.mark.slow
def test_two_processes_are_one_with_the_whole_batch_and_resume_when_one_is_killed(tmp_path):
    network = mean_norm_network()
    train, held = small_images(), small_images(31, seed=2)
    alone = fit(network, train, replace(PLAIN, epochs=12, augment=()), held, seed=3)
    torchrun(tmp_path / "both", tmp_path / "both.pt", 2)
    torchrun(tmp_path / "killed", tmp_path / "killed.pt", 2, tmp_path / "died")
    assert (tmp_path / "died").exists()
    both, killed = torch.load(tmp_path / "both.pt"), torch.load(tmp_path / "killed.pt")
    for name, course in alone.history.items():
        assert both["history"][name] == pytest.approx(course, rel=1e-12), name
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(both["weights"][name], weight, rtol=1e-11, atol=1e-13)
    assert equal(both, killed)
    assert both["history"] == killed["history"]
    second = torch.load(f"{tmp_path / 'both.pt'}.second")
    assert both["tested"] == pytest.approx(alone.evaluate(held), rel=1e-9), "evaluation is of all examples"
    for name in ("tested", "tested with batch norm"):
        assert both[name] == second[name], "every process has the same network"
