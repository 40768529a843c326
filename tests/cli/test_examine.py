import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from relucid.models import create

NETWORK = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def build_double():
    return build().double()

def batches():
    many = torch.eye(3).repeat(10, 1)
    return [(many, torch.zeros(30)), (-many, torch.zeros(30))]

def generated():
    yield from batches()

def labelled():
    return torch.randn(60, 3), torch.arange(60)

def none():
    return []

def nothing():
    return None
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """A network in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(NETWORK)


@pytest.fixture
def weights():
    """Of the network: its first two units are dead."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net[0].bias.data = torch.tensor([-100.0, -100.0, 0.0, 0.0])
    return net.state_dict()


def test_an_existing_page_is_kept_unless_forced(relucid):
    Path("page.html").write_text("mine")
    command = ["examine", "my_net:build", "--example", "1,3", "-o", "page.html"]
    status, _, err = relucid(*command)
    assert (status, "--force" in err) == (1, True)
    assert Path("page.html").read_text(encoding="utf-8") == "mine"
    assert relucid(*command, "--force")[0] == 0
    assert "What my_net:build has learned" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("factory", ["my_net:build", "my_net.py:build", "my_net:build_double"])
def test_examine_prints_its_findings_and_writes_a_page(relucid, factory):
    status, shown, err = relucid("examine", factory, "--example", "2,3", "-o", "page.html")
    assert status == 0
    assert "layer  kind  units" in shown
    assert err == "Written to page.html\n"
    assert f"What {factory} has learned" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_examine_shows_how_far_it_is_on_a_terminal_only(relucid, monkeypatch, is_terminal):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    status, shown, err = relucid("examine", "my_net:build", "--example", "2,3")
    assert (status, "layers" in err, "batches" in err) == (0, is_terminal, is_terminal)
    assert "batches" not in shown


def test_examine_explains_when_dead_units_cannot_be_judged(relucid):
    shown = relucid("examine", "my_net:build", "--example", "2,3")[1]
    assert "at least 35 inputs are needed" in shown


def test_examine_prints_json_for_programs_and_nothing_else(relucid):
    status, shown, err = relucid("examine", "my_net:build", "--example", "2,3", "--json")
    assert (status, err) == (0, "")
    assert [layer["units"] for layer in json.loads(shown)["layers"]] == [4]


def wrapped(weights):
    return {"state_dict": {f"module.{name}": value for name, value in weights.items()}, "epoch": 3}


@pytest.mark.parametrize(
    "name, write",
    [
        ("w.pt", torch.save),
        ("w.safetensors", save_file),
        ("wrapped.pth", lambda weights, path: torch.save(wrapped(weights), path)),
    ],
)
def test_examine_loads_checkpoints(relucid, weights, name, write):
    write(weights, name)
    shown = relucid("examine", "my_net:build", "--example", "50,3", "--checkpoint", name)[1]
    assert "2 of 4 units are dead on 50 inputs" in shown


def test_a_pickled_network_is_loaded_only_if_it_is_trusted(relucid, weights):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net.load_state_dict(weights)
    torch.save(net, "net.pt")
    command = ["examine", "my_net:build", "--example", "50,3", "--checkpoint", "net.pt"]
    status, _, err = relucid(*command)
    assert status == 1
    assert "--unsafe-pickle" in err
    assert "2 of 4 units are dead" in relucid(*command, "--unsafe-pickle")[1]


@pytest.mark.parametrize(
    "data, inputs",
    [
        ("x.npy", 70),
        ("x.pt", 70),
        ("x.safetensors", 70),
        ("x64.npy", 70),
        ("my_net:batches", 60),
        ("my_net:generated", 60),
        ("my_net:labelled", 60),
    ],
)
def test_examine_counts_on_data(relucid, weights, data, inputs):
    x = torch.randn(70, 3)
    np.save("x.npy", x.numpy())
    np.save("x64.npy", x.double().numpy())
    torch.save(x, "x.pt")
    save_file({"inputs": x}, "x.safetensors")
    torch.save(weights, "w.pt")
    command = ["examine", "my_net:build", "--checkpoint", "w.pt", "--data", data, "-o", "page.html"]
    assert f"2 of 4 units are dead on {inputs} inputs" in relucid(*command)[1]
    page = Path("page.html").read_text(encoding="utf-8")
    assert f"Activity was counted on {data}." in page
    assert (
        "relucid convert my_net:build --checkpoint w.pt --example 1,3 --to crelu --layers 0 -o converted"
        in page
    )


@pytest.mark.parametrize("other", ["earlier.pt", "my_net:build"])
def test_examine_prints_changes_since_an_earlier_checkpoint(relucid, weights, other):
    torch.save(weights, "w.pt")
    torch.manual_seed(0)
    torch.save(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).state_dict(), "earlier.pt")
    command = ["examine", "my_net:build", "--checkpoint", "w.pt", "--example", "50,3", "--against", other]
    status, shown, err = relucid(*command)
    assert (status, err) == (0, "")
    assert f"From {other} to my_net:build" in shown
    assert "0: 2 units died, 0 were revived" in shown
    shown = json.loads(relucid(*command, "--json")[1])
    assert shown["changes"]["layers"][0]["died"] == [0, 1]


def test_a_model_is_examined_by_its_name(relucid):
    torch.save(create("resnet8", num_classes=5).state_dict(), "w.pt")
    command = ["examine", "resnet8:5", "--example", "1,3,32,32", "--checkpoint", "w.pt", "--json"]
    status, shown, err = relucid(*command)
    assert (status, err) == (0, "")
    assert len(json.loads(shown)["layers"]) == 7
    assert "did you mean 'resnet8'" in relucid("examine", "resnet-8", "--example", "1,3,32,32")[2]


@pytest.mark.parametrize(
    "command, complaint",
    [
        ("examine my_net:build", "examine needs inputs"),
        ("examine my_net:build --example a,3", "--example a,3 is not a shape"),
        ("examine my_net --example 1,3", "write MODULE:FUNCTION"),
        ("examine my_nett:build --example 1,3", "my_nett cannot be imported"),
        ("examine missing.py:build --example 1,3", "missing.py cannot be imported"),
        ("examine my_net:bild --example 1,3", "my_net has no bild"),
        ("examine my_net:nothing --example 1,3", "returns a NoneType"),
        ("examine my_net:build --example 1,3 --checkpoint w.pt", "there is no file w.pt"),
        ("examine my_net:build --example 1,3 --checkpoint other.pt", "does not fit this network"),
        ("examine my_net:build --example 1,3 --checkpoint list.pt", "list.pt holds no named weights"),
        ("examine my_net:build --data list.pt", "the network fails on these inputs"),
        ("examine my_net:build --data my_net:none", "--data has no inputs"),
        ("examine my_net:build --example 1,7", "the network fails on these inputs"),
        ("examine my_net:build --example 1,3 -o there/page.html", "there is no directory"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(relucid, command, complaint):
    torch.save({"a": torch.zeros(1)}, "other.pt")
    torch.save([1], "list.pt")
    status, _, err = relucid(*command.split())
    assert status == 1
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
