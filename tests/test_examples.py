"""Every example runs as a script, and does what it says."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path):
    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
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


def test_a_continual_learner_whose_units_die_learns_on_after_a_remedy_that_the_watch_calls(run):
    output = run("continual.py")
    none, crelu, redo = (
        numbers(r"first tasks: ([\d.]+) % fitted, last tasks: ([\d.]+) %", part)
        for part in re.split(r"^to_crelu$|^redo$", output, flags=re.MULTILINE)
    )
    assert none[1] < none[0] - 10
    assert min(crelu[1], redo[1]) > none[1] + 10
    unchanged, converted, *redrawn = numbers(r"outputs moved by (\S+)", output)
    assert unchanged == 0
    assert converted < 1e-5
    assert max(redrawn) > 0


def test_a_ppo_agent_without_a_forward_is_watched_and_its_dead_units_drawn_again(run):
    output = run("ppo.py")
    rewards, dead = (numbers(pattern, output) for pattern in (r"reward (-[\d.]+)", r"([\d.]+)% dead in"))
    assert numbers(r"redo: (\d+) units changed", output)[0] > 0
    assert max(dead[1:]) < dead[0]
    assert rewards[-1] > -0.5  # at random, points drift away from their targets


def test_the_notebook_opens_with_the_figure_and_ends_with_a_converted_network_of_ones_own(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "repair.ipynb").read_text(encoding="utf-8"))["cells"]
    (figure,) = re.findall(r"!\[.+\]\((.+)\)", "".join(cells[0]["source"]))
    assert (EXAMPLES / figure).is_file()
    names = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["moved"] < 1e-5
    assert names["again"] > names["fitted"] + 0.3
    assert type(names["mine"]) is names["Mine"]
    assert torch.equal(names["mine"](names["inputs"]), names["model"](names["inputs"]))


@pytest.mark.parametrize("name", ["continual.py", "ppo.py"])
def test_a_first_example_fits_on_a_page(name):
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None,
    reason="needs relucid[rl]: pip install 'relucid[rl]'",
)
@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_an_agent_of_stable_baselines3_keeps_its_outputs_and_resumes_in_a_new_process(run, name):
    output = run("stable_baselines.py", name)
    (moved,) = numbers(r"outputs moved by (\S+)", output)
    (apart,) = numbers(r"new process differ by (\S+)", output)
    trained, converted, further, resumed, _ = numbers(r"return (-?[\d.]+)", output)
    assert moved < 1e-5
    assert apart == 0
    assert converted == pytest.approx(trained)  # of the same episodes
    assert resumed == pytest.approx(further)
    dead = numbers(r"([\d.]+)% dead", output)
    assert dead[-1] < dead[0]


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
