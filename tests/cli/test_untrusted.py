"""Files and names that somebody else made: they run no code, steer no terminal, and end in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from relucid.data import DamagedDataError
from relucid.data.folder import Images
from relucid.inspect import examine
from relucid.printing import printable

NETWORK = """
from pathlib import Path
from torch import nn

def build():
    Path("ran").touch()
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""


@pytest.fixture
def directory(tmp_path, monkeypatch, relucid):
    """A directory of `convert`, and a function that changes what it names as its network."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NETWORK)
    assert relucid("convert", "net.py:build", "--to", "crelu", "--example", "8,4", "-o", "made")[0] == 0
    Path("ran").unlink()

    def name(network):
        described = json.loads(Path("made/conversion.json").read_text(encoding="utf-8"))
        Path("made/conversion.json").write_text(json.dumps(described | {"network": network}))

    return name


@pytest.mark.parametrize(
    "network", ["net.py:build", "os:getcwd", "made", "./made", "resnet20:0", ["x"], "\x1b[2J"]
)
def test_a_directory_runs_no_code_that_the_user_did_not_name(directory, relucid, network):
    directory(network)
    status, _, complaint = relucid("examine", "made", "--example", "8,4")
    assert (status, Path("ran").exists(), "\x1b" in complaint) == (1, False, False)
    assert len(complaint.strip().splitlines()) == 1
    assert relucid("examine", "net.py:build", "--checkpoint", "made", "--example", "8,4")[0] == 0


def test_a_model_needs_no_name_and_a_result_of_a_result_none_either(tmp_path, monkeypatch, relucid):
    monkeypatch.chdir(tmp_path)
    example = ("--example", "2,3,8,8")
    assert relucid("convert", "resnet8:3", "--to", "crelu", *example, "-o", "one")[0] == 0
    assert relucid("convert", "one", "--to", "geometric", *example, "-o", "two")[0] == 0
    assert json.loads(Path("two/conversion.json").read_text(encoding="utf-8"))["network"] == "resnet8:3"
    assert relucid("examine", "two", *example)[0] == 0


def test_control_characters_of_names_are_shown_and_not_sent():
    net = nn.Sequential()
    net.add_module("a\x1b]0;owned\x07\x1b[2J", nn.Linear(4, 8))
    net.add_module("relu\nforged: line", nn.ReLU())
    net.add_module("b", nn.Linear(8, 2))
    found = examine(net, torch.randn(64, 4))
    assert all(character == "\n" or character.isprintable() for character in str(found))
    assert printable("a\x1b\x9b\r\n\tb") == "a\\x1b\\x9b\\r\\n\tb"


@pytest.mark.parametrize("outputs", ["0", "1000001", "9" * 5000])
def test_a_model_has_a_number_of_outputs_that_fits(relucid, outputs):
    status, _, complaint = relucid("examine", f"resnet20:{outputs}", "--example", "1,3,32,32")
    assert (status, "outputs" in complaint) == (1, True)


@pytest.mark.parametrize("option", ["--devices", "--threads", "--nodes"])
def test_numbers_of_devices_and_threads_have_bounds(relucid, option):
    assert relucid("run", "quickstart", option, "100000000000")[0] == 2


def test_an_image_with_too_many_pixels_is_not_decoded(tmp_path, monkeypatch):
    from PIL import Image

    (tmp_path / "a").mkdir()
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / "a" / "1.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DamagedDataError, match="pixels"):
        Images(tmp_path)


def test_pairs_of_very_wide_layers_are_left_out_and_named():
    net = nn.Sequential(nn.Linear(2, 40_000), nn.ReLU(), nn.Linear(40_000, 2))
    found = examine(net, torch.randn(2, 2), measures=["pairing"])
    assert "0" in dict(found.unattributed)
    assert found["0"].pairing == {}
