"""Every example runs as a script, and does what it says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path):
    def run(name: str) -> str:
        command = [sys.executable, str(EXAMPLES / name)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def numbers(pattern: str, text: str) -> list[float]:
    found = [match.groups() for match in re.finditer(pattern, text)]
    return [float(number) for groups in found for number in groups]


def test_a_plain_loop_learns_and_geometric_boundaries_move_steadily(run):
    output = run("plain_loop.py")
    assert max(numbers(r"test error ([\d.]+) %", output)) < 10
    standard, geometric = numbers(r"turns by at most ([\d.]+)°", output)
    assert geometric < standard


def test_a_plain_loop_that_has_stopped_learning_is_mended_without_forgetting(run):
    output = run("keep_learning.py")
    first, last = numbers(r"first tasks: ([\d.]+) % fitted, last tasks: ([\d.]+) %", output)
    before, after = numbers(r"([\d.]+) -> ([\d.]+) % still right", output)
    assert last < first - 10
    assert max(numbers(r"differ by at most (\S+),", output)) < 1e-5
    assert after == before
    assert numbers(r"following tasks: ([\d.]+) % fitted", output)[0] > last + 10


@pytest.mark.slow
def test_a_reinforcement_learner_is_mended_and_goes_on_earning(run):
    output = run("reinforcement.py")
    left, mended = (
        [float(reward) for reward in line.split()] for line in re.findall(r"reward ([\d. ]+),", output)
    )
    assert "of the units are dead: mended" in output
    assert sum(mended[-2:]) > 2 * sum(left[-2:])


@pytest.mark.slow
def test_a_lightning_module_learns_and_its_boundaries_are_watched(run):
    output = run("lightning_module.py")
    assert numbers(r"test error ([\d.]+) %", output)[0] < 15
    assert len(numbers(r"moves by at most ([\d.]+)", output)) == 3


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="needs Hugging Face's Trainer: pip install transformers",
)
def test_hugging_face_s_trainer_trains_a_converted_network(run):
    output = run("hugging_face.py")
    assert max(numbers(r"moved by at most (\S+)", output)) < 1e-5
    assert numbers(r"test error ([\d.]+) %", output)[0] < 20


@pytest.mark.slow
def test_a_converted_network_is_trained_on_and_exported_with_the_same_outputs(run, tmp_path):
    output = run("convert_and_export.py")
    assert max(numbers(r"moved by at most (\S+)", output)) < 1e-4
    before, after = numbers(r"test error ([\d.]+) %", output)
    assert after < before
    assert numbers(r"outputs differ by at most (\S+)", output)[0] < 1e-4
    assert (tmp_path / "digits.onnx").exists()


@pytest.mark.slow
def test_a_thousand_layers_learn_in_a_fraction_of_the_memory(run):
    output = run("thousand_layers.py")
    losses = numbers(r"training loss ([\d.]+)", output)
    assert losses[-1] < losses[0]
    reversible, ordinary = numbers(r"([\d.]+) MB", output)
    assert reversible < ordinary / 100
