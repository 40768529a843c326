import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model
from torch import nn

from relucid.convert import fuse, load, to_crelu, to_geometric, to_heavy_ball

NETWORK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))

    def forward(self, x):
        return self.inner(x) + x

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), Block(), Block(), nn.Linear(6, 2))

def paired():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        net[0].weight[3:] = -net[0].weight[:3]
        net[0].bias[3:] = -net[0].bias[:3]
    return net

def smooth():
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
"""


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """The module my_net in the working directory, as a dictionary."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(NETWORK)
    space = {}
    exec(NETWORK, space)
    return space


def described(directory):
    return json.loads(Path(directory, "conversion.json").read_text())


@pytest.mark.parametrize(
    "to, convert",
    [("crelu", to_crelu), ("geometric", to_geometric), ("heavy-ball", to_heavy_ball), ("plain", fuse)],
)
def test_the_written_weights_are_those_of_the_same_conversion_in_python(relucid, network, to, convert):
    status, shown, told = relucid(
        "convert", "my_net.py:build", "--to", to, "--example", "5,3", "--out", "there"
    )
    assert status == 0, told
    assert "largest difference of the outputs" in shown
    assert "Written to there" in told
    model, x = network["build"](), torch.randn(4, 3)
    conversion = convert(model, x)
    converted = conversion.model
    for parameter in converted.parameters():
        nn.init.zeros_(parameter)
    load_model(converted, "there/weights.safetensors")
    torch.testing.assert_close(converted(x), model(x))
    description = described("there")
    assert (description["network"], description["conversion"]) == ("my_net.py:build", to)
    assert description["relative_error"] <= 1e-4
    assert description["changes"] == json.loads(json.dumps(conversion.to_dict()["changes"]))


@pytest.mark.parametrize("to", ["crelu", pytest.param("geometric", marks=pytest.mark.slow)])
def test_a_program_runs_without_the_code_of_the_network_on_batches_of_any_size(relucid, network, to):
    arguments = ("my_net.py:build", "--to", to, "--example", "1,3", "-o", "out", "--format", "pt2")
    status, _, told = relucid("convert", *arguments)
    assert (status, told) == (
        0,
        "Written to out: conversion.json, model.pt2, operations.json, weights.safetensors\n",
    )
    x = torch.randn(7, 3)
    torch.testing.assert_close(torch.export.load("out/model.pt2").module()(x), network["build"]()(x))


@pytest.mark.slow
def test_a_graph_runs_in_an_onnx_runtime_on_batches_of_any_size(relucid, network):
    pytest.importorskip("onnxscript", reason="needs relucid[onnx]")
    runtime = pytest.importorskip("onnxruntime", reason="needs relucid[onnx]")
    arguments = ("my_net.py:build", "--to", "crelu", "--example", "1,3", "-o", "out", "--format", "onnx")
    status, _, told = relucid("convert", *arguments)
    assert status == 0, told
    assert not Path("out", "model.onnx.data").exists()
    x = torch.randn(7, 3)
    (y,) = runtime.InferenceSession("out/model.onnx").run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), network["build"]()(x))


def test_a_graph_needs_the_extra_and_nothing_is_computed_without_it(relucid, monkeypatch):
    monkeypatch.setattr("relucid.cli.convert.find_spec", lambda name: None)
    arguments = ("nowhere:build", "--to", "crelu", "--example", "1,3", "-o", "out", "--format", "onnx")
    sentence = "relucid: --format onnx needs onnxscript: pip install 'relucid[onnx]'"
    assert relucid("convert", *arguments)[::2] == (1, sentence)


def test_a_network_that_cannot_be_exported_is_said_to_be_one(relucid, monkeypatch):
    def fail(*_, **__):
        raise KeyError("inside torch")

    monkeypatch.setattr("torch.export.export", fail)
    arguments = ("my_net.py:build", "--to", "crelu", "--example", "1,3", "-o", "out", "--format", "pt2")
    sentence = "relucid: the converted network cannot be exported: 'inside torch'"
    assert relucid("convert", *arguments)[::2] == (1, sentence)
    assert not Path("out").exists()


@pytest.mark.parametrize("again", [("first",), ("my_net.py:build", "--checkpoint", "first")])
def test_a_result_is_converted_and_examined_further(relucid, network, again):
    arguments = ("convert", "my_net.py:build", "--to", "crelu", "--example", "5,3", "-o", "first")
    assert relucid(*arguments)[0] == 0
    status, _, told = relucid("convert", *again, "--to", "geometric", "--example", "5,3", "-o", "second")
    assert status == 0, told
    model, x = network["build"](), torch.randn(4, 3)
    torch.testing.assert_close(load("second", network["build"]())(x), model(x))
    assert relucid("examine", "my_net.py:build", "--checkpoint", "second", "--example", "5,3")[0] == 0


def test_a_conversion_that_changes_nothing_fails_and_writes_nothing(relucid):
    arguments = ("convert", "my_net.py:smooth", "--to", "crelu", "--example", "5,3", "-o", "out")
    status, _, told = relucid(*arguments)
    assert status == 1
    assert "changes no layer" in told
    assert not Path("out").exists()


def test_the_weights_of_a_checkpoint_are_what_is_converted(relucid, network):
    other = network["build"]()
    nn.init.constant_(other[4].bias, 7.0)
    torch.save(other.state_dict(), "w.pt")
    arguments = ("my_net.py:build", "--to", "plain", "--example", "1,3", "-o", "out", "--checkpoint", "w.pt")
    assert relucid("convert", *arguments)[0] == 0
    assert load_file("out/weights.safetensors")["4.bias"].tolist() == [7.0, 7.0]


def test_merge_tells_what_it_saved_and_keeps_to_the_layers_it_was_given(relucid):
    arguments = ("my_net.py:paired", "--to", "merge", "--example", "8,3", "--layers", "0", "-o", "out")
    status, _, told = relucid("convert", *arguments)
    assert status == 0, told
    description = described("out")
    before, after = description["parameters"]
    assert before - after == 3 * (3 + 1)
    assert description["options"] == {"layers": ["0"]}


def test_a_result_is_replaced_only_by_force(relucid):
    arguments = ("convert", "my_net.py:build", "--example", "2,3", "-o", "out", "--to")
    assert relucid(*arguments, "crelu")[0] == 0
    status, _, told = relucid(*arguments, "plain")
    assert (status, told) == (1, "relucid: out exists; --force replaces it")
    assert described("out")["conversion"] == "crelu"
    assert relucid(*arguments, "plain", "--force")[0] == 0
    assert described("out")["conversion"] == "plain"


def test_force_keeps_what_convert_did_not_write(relucid, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    arguments = ("convert", "my_net.py:build", "--example", "2,3", "-o", "out", "--to", "plain", "--force")
    status, _, told = relucid(*arguments)
    assert (status, told) == (
        1,
        "relucid: out holds thesis.tex, which is not part of a result: name another directory",
    )
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


def test_others_may_read_the_weights_where_the_umask_allows_it(relucid, tmp_path):
    assert relucid("convert", "my_net.py:build", "--example", "2,3", "-o", "out", "--to", "plain")[0] == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    (tmp_path / "plain").touch()
    assert set(modes.values()) == {(tmp_path / "plain").stat().st_mode & 0o777}


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("build", "--to", "crelo"), "there is no conversion 'crelo'; did you mean 'crelu'?"),
        (("build", "--to", "crelu", "--format", "onxn"), "there is no format 'onxn'; did you mean 'onnx'?"),
        (("build", "--to", "plain", "--layers", "0"), "plain changes the whole network"),
        (("build", "--to", "crelu", "--budget", "0.1"), "--budget and --data are for merge"),
        (("build", "--to", "crelu", "--layers", "nine"), "no layer that can be converted is named 'nine'"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(relucid, tmp_path, arguments, sentence):
    name, *rest = arguments
    status, _, told = relucid("convert", f"my_net.py:{name}", *rest, "--example", "2,3", "-o", "out")
    assert status == 1
    assert sentence in told
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["my_net.py"]
