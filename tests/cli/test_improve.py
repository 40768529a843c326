import json
import subprocess
import sys
import time

import pytest
import torch
from click import unstyle
from safetensors.torch import load_file

from relucid.experiments import Store

NET = """
import torch
from safetensors.torch import load_file
from torch import nn

class Net(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, outputs)

    def forward(self, x):
        return self.last(self.first(x).relu())

def build():
    torch.manual_seed(1)
    net = Net()
    net.first.bias.data[:2] = -100.0
    return net

def narrow():
    return Net(2)

def broken():
    net = build()
    net.last.weight.data[0, 0] = float("nan")
    return net

def one():
    inputs = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)

def data():
    inputs, classes = one()
    return (inputs[:100], classes[:100]), (inputs[100:], classes[100:])

def five():
    inputs, classes = one()
    return torch.cat([inputs, inputs[:, :1]], 1), classes

def nothing():
    return None

def random():
    return Net()

class Lines:
    def __init__(self, inputs, classes):
        self.inputs, self.classes = inputs, classes

def own_data():
    return Lines(*one())

def train(network, data, seed):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(data.inputs), data.classes).backward()
        optimizer.step()
    return network

def hits(network, data):
    return {"hits": (network(data.inputs).argmax(1) == data.classes).double().mean()}

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.first, self.last = nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, tokens):
        return self.last(self.first(self.embedding(tokens).mean(1)).relu())

def words():
    torch.manual_seed(0)
    return Words()

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)
"""
LOAD = """
import sys, torch
from safetensors.torch import load_file
network = torch.export.load(sys.argv[1] + "/network.pt2").module()
example = load_file(sys.argv[1] + "/example.safetensors")
torch.testing.assert_close(network(example["inputs"]), example["outputs"])
assert network(example["inputs"][:3]).shape == (3, 3)
assert not {"relucid", "net"} & {name.partition(".")[0] for name in sys.modules}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def improve(relucid, *options, network="net.py:build", data="net.py:data"):
    quick = ("--epochs", "1", "--seeds", "2", "--jobs", "1", "--store", "runs", "-o", "out")
    return relucid("improve", network, "--data", data, *quick, *options)


def test_the_written_network_loads_without_relucid_and_without_its_code(place, relucid):
    status, out, err = improve(relucid)
    assert status == 0, err
    assert "first: 2 of 6 units are dead on 100 inputs" in out
    assert "Training: 1 epoch of adam" in out
    assert "Judged by: test error % (lower is better)." in out
    assert "Your network: " in out
    subprocess.run([sys.executable, "-I", "-c", LOAD, "out"], check=True, cwd=place)
    found = json.loads((place / "out" / "improvement.json").read_text(encoding="utf-8"))
    assert found["plain layers"]
    assert found["load"] == 'network = torch.export.load("network.pt2").module()'
    assert len(found["outputs"]["outputs"]["first"]) == 8 * 3
    assert "</html>" in (place / "out" / "page.html").read_text(encoding="utf-8")


def test_a_dry_run_says_what_would_be_done_and_leaves_nothing(place, relucid):
    status, out, _ = improve(relucid, "--try", "crelu", "--dry-run")
    assert status == 0
    assert "trained further; CReLU; dead units redrawn; from scratch; CReLU from scratch." in out
    assert out.splitlines()[-1].startswith("11 runs, 11 still to do: about 0:00:")
    assert {path.name for path in place.iterdir()} <= {"net.py", "__pycache__"}


def test_without_a_test_split_there_is_a_warning_even_if_quiet_and_nothing_from_scratch(place, relucid):
    status, out, err = improve(relucid, "--try", "crelu", "-q", data="net.py:one")
    assert status == 0, err
    caution = "if so, all results are too good"
    assert caution in err
    assert "Training from scratch is left out" in err
    assert caution in out.splitlines()[-1]
    found = json.loads((place / "out" / "improvement.json").read_text(encoding="utf-8"))
    assert caution in found["headline"]
    rows = {each["row"] for each in found["runs"]}
    assert rows == {"as given", "trained further", "CReLU", "dead units redrawn"}


def test_own_training_and_an_own_metric_on_data_of_any_kind(place, relucid):
    own = ("--train", "net.py:train", "--metric", "net.py:hits", "--higher", "--example", "64,4")
    status, out, err = improve(relucid, "--try", "crelu", *own, data="net.py:own_data")
    assert status == 0, err
    assert "Training: your function train.\nJudged by: test hits (higher is better)." in out
    found = json.loads((place / "out" / "improvement.json").read_text(encoding="utf-8"))
    assert "Trained further: " in found["headline"]


def test_the_recipe_has_options(place, relucid):
    options = ("--optimizer", "sgd", "--weight-decay", "0.01", "--step", "0.5", "--metric", "f1")
    status, out, _ = improve(relucid, "--try", "crelu", *options, "--dry-run")
    assert status == 0
    for words in ("1 epoch of sgd", "times 0.1 at 0.5", "weight decay 0.01"):
        assert words in out
    assert "Judged by: test F1 (higher is better)." in out


def test_a_forgotten_checkpoint_is_a_warning(place, relucid):
    err = improve(relucid, "--dry-run", "--try", "crelu", network="net.py:random")[2]
    assert "Warning: The network has random weights" in err
    assert "random weights" not in improve(relucid, "--dry-run", "--try", "crelu")[2]


def test_examples_may_be_integers(place, relucid):
    assert relucid("examine", "net.py:words", "--example", "int:64,16")[0] == 0
    status, _, err = relucid("examine", "net.py:words", "--example", "int:a")
    assert (status, "int:1,16 for integers" in err) == (1, True)


@pytest.mark.parametrize("command", ["improve", "convert"])
def test_the_help_is_not_broken_in_the_middle_of_a_line(relucid, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    described = unstyle(relucid(command, "--help")[1]).partition("NETWORK")[2].partition("Arguments")[0]
    lines = [line.strip() for line in described.splitlines()[1:-1] if line.strip()]
    assert len(lines) > 3
    assert [line for line in lines if len(line) < 60 and not line.endswith((".", ":"))] == []


def test_a_second_time_takes_force_and_trains_nothing(place, relucid):
    assert improve(relucid, "--try", "crelu", "--loss", "net.py:loss", "-q")[0] == 0
    status, _, err = improve(relucid, "--try", "crelu", "--loss", "net.py:loss", "-q")
    assert (status, "exists; --force replaces it" in err) == (1, True)
    kept = load_file(place / "out" / "weights.safetensors")
    assert improve(relucid, "--try", "crelu", "--loss", "net.py:loss", "-q", "--force")[0] == 0
    again = load_file(place / "out" / "weights.safetensors")
    assert again.keys() == kept.keys()
    assert all(torch.equal(again[name], kept[name]) for name in kept)


@pytest.mark.parametrize(
    "network, data, options, words",
    [
        ("net.py:build", "nowhere", (), "there are no data nowhere"),
        ("net.py:build", "net.py:nothing", (), "not NoneType"),
        ("net.py:build", "net.py:five", (), "does not take inputs of shape (5,)"),
        ("net.py:narrow", "net.py:data", (), "label 2 is out of range"),
        ("net.py:broken", "net.py:data", (), "not finite"),
        ("net.py:build", "empty", (), "empty is empty"),
        ("net.py:build", "net.py:data", ("--try", "crellu"), "did you mean 'crelu'?"),
        ("net.py:build", "net.py:data", ("--loss", "mean"), "there is no loss mean"),
        ("net.py:build", "net.py:data", ("--metric", "f2"), "there is no metric f2"),
        ("net.py:build", "net.py:data", ("--size", "8"), "is for a folder of images"),
        ("net.py:build", "net.py:own_data", ("--train", "net.py:train"), "not Lines"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(place, relucid, network, data, options, words):
    (place / "empty").mkdir()
    status, _, err = improve(relucid, *options, network=network, data=data)
    assert status == 1
    assert words in err.strip().splitlines()[-1]
    assert sorted(path.name for path in place.iterdir() if path.suffix != ".pyc") == ["empty", "net.py"]


def test_a_full_disk_leaves_nothing_half_written(place, relucid, monkeypatch):
    def full(*_):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    monkeypatch.setattr(torch.export, "save", full)
    status, _, err = improve(relucid, "--try", "crelu", "-q")
    assert status == 1
    assert "out cannot be written: PytorchStreamWriter failed" in err
    assert sorted(path.name for path in place.iterdir()) == ["net.py", "runs"]


@pytest.mark.slow
def test_a_killed_command_resumes_where_it_stopped(place, relucid):
    quick = ("--epochs", "1", "--seeds", "3", "--jobs", "1", "--store", "runs", "-o", "out")
    words = ["improve", "net.py:build", "--data", "net.py:data", *quick]
    process = subprocess.Popen([sys.executable, "-m", "relucid", *words])
    while not (done := started(place / "runs")) and process.poll() is None:
        time.sleep(0.05)
    process.kill()  # SIGKILL
    process.wait()
    assert not (place / "out").exists()
    assert improve(relucid, "--seeds", "3", "-q")[0] == 0
    assert done.items() <= started(place / "runs").items()
    assert len(started(place / "runs")) == 1 + 5 * 3


def started(directory):
    """When each finished run of a store was started."""
    if not (directory / "results.sqlite").exists():
        return {}
    with Store(directory) as store:
        return {key: record["started"] for key, record in store.items()}
