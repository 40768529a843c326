"""Commands refuse at the door what could only come to nothing, and say what would be right."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def without_relu():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def single():
    return nn.Linear(8, 3)


def _pair(count, seed):
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :3] ** 2).argmax(1)


def data():
    return _pair(200, 1), _pair(100, 2)


def sets():
    return TensorDataset(*_pair(200, 1)), TensorDataset(*_pair(100, 2))


BUILD, SINGLE = f"{__file__}:build", f"{__file__}:single"
DATA = f"{__file__}:data"
IMPROVE = ("improve", BUILD, "--data", DATA, "--epochs", "1", "--seeds", "2", "-q")
CONVERT = ("convert", BUILD, "--to", "crelu", "--example", "1,8", "-o", "out")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("row.npy", np.zeros(8))
    np.save("x.npy", np.random.default_rng(0).normal(size=(64, 8)))
    (tmp_path / "file").touch()


@pytest.mark.parametrize(
    "command, words",
    [
        (("improve", f"{__file__}:without_relu", *IMPROVE[2:], "-o", "out"), "to_crelu changes no layer"),
        ((*IMPROVE, "-o", "out", "--try", "heavy-ball"), "nothing to compare with further training"),
        ((*IMPROVE, "-o", "file/out"), "file is a file, not a directory"),
        ((*IMPROVE, "-o", "out", "--target", "price"), "which only a table has"),
        ((*CONVERT, "--tolerance", "-1"), "tolerance=-1.0 must be 0 or more"),
        ((*CONVERT, "--tolerance", "nan"), "tolerance=nan must be 0 or more"),
        (
            ("convert", BUILD, "--to", "merge", *CONVERT[4:], "--tolerance", "-1"),
            "tolerance=-1.0 must be 0 or",
        ),
        (("examine", BUILD, "--data", "row.npy"), "holds one row of 8 numbers, not a batch"),
        (("logs", "quickstart", "--store", "elsewhere"), "there is no store elsewhere"),
    ],
)
def test_hopeless_commands_are_refused_at_once(relucid, command, words):
    status, _, complaint = relucid(*command)
    assert status == 1
    assert words in complaint


def test_a_pickled_network_is_not_taken_for_the_one_that_was_named(relucid, tmp_path):
    torch.save(build(), tmp_path / "whole.pt")
    status, _, complaint = relucid(
        "examine", SINGLE, "--data", "x.npy", "--checkpoint", "whole.pt", "--unsafe-pickle"
    )
    assert status == 1
    assert "whole.pt does not fit this network" in complaint


@pytest.mark.parametrize("name, inputs", [("sets", 300), ("data", 300)])
def test_examine_takes_what_improve_takes(relucid, name, inputs):
    status, shown, _ = relucid("examine", BUILD, "--data", f"{__file__}:{name}", "--json")
    assert status == 0
    assert f'"inputs": {inputs}' in shown
