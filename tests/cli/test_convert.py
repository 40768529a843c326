import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model
from torch import nn

from relucid.convert import fuse, load, to_crelu, to_geometric, to_heavy_ball
from relucid.extras import command

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


@pytest.fixture
def convert(relucid):
    """A function that converts a network of my_net.py and returns status, output and errors."""

    def convert(name, to, *options, example="5,3", out="out"):
        return relucid("convert", f"my_net.py:{name}", "--to", to, "--example", example, "-o", out, *options)

    return convert


def described(directory):
    return json.loads(Path(directory, "conversion.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "to, function",
    [("crelu", to_crelu), ("geometric", to_geometric), ("heavy-ball", to_heavy_ball), ("plain", fuse)],
)
def test_the_written_weights_are_those_of_the_same_conversion_in_python(convert, network, to, function):
    status, out, err = convert("build", to)
    assert status == 0, err
    assert "largest difference of the outputs" in out
    assert "Written to out" in err
    model, x = network["build"](), torch.randn(4, 3)
    conversion = function(model, x)
    converted = conversion.model
    for parameter in converted.parameters():
        nn.init.zeros_(parameter)
    load_model(converted, "out/weights.safetensors")
    torch.testing.assert_close(converted(x), model(x))
    description = described("out")
    assert (description["network"], description["conversion"]) == ("my_net.py:build", to)
    assert description["relative_error"] <= 1e-4
    assert description["changes"] == json.loads(json.dumps(conversion.to_dict()["changes"]))


@pytest.mark.parametrize("to", ["crelu", pytest.param("geometric", marks=pytest.mark.slow)])
def test_a_program_runs_without_the_code_of_the_network_on_batches_of_any_size(convert, network, to):
    status, _, err = convert("build", to, "--format", "pt2", example="1,3")
    assert status == 0
    assert err.endswith("out: conversion.json, model.pt2, weights.safetensors\n")
    x = torch.randn(7, 3)
    torch.testing.assert_close(torch.export.load("out/model.pt2").module()(x), network["build"]()(x))


@pytest.mark.slow
def test_a_graph_runs_in_an_onnx_runtime_on_batches_of_any_size(convert, network):
    pytest.importorskip("onnxscript", reason="needs relucid[onnx]")
    runtime = pytest.importorskip("onnxruntime", reason="needs relucid[onnx]")
    status, _, err = convert("build", "crelu", "--format", "onnx", example="1,3")
    assert status == 0, err
    assert not Path("out", "model.onnx.data").exists()
    x = torch.randn(7, 3)
    (y,) = runtime.InferenceSession("out/model.onnx").run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), network["build"]()(x))


def test_a_graph_needs_the_extra_and_nothing_is_computed_without_it(convert, monkeypatch):
    monkeypatch.setattr("relucid.cli.convert.find_spec", lambda name: None)
    status, _, err = convert("missing", "crelu", "--format", "onnx")
    assert (status, err) == (1, f"relucid: --format onnx needs onnxscript: {command('onnx')}")


def test_a_network_that_cannot_be_exported_is_refused(convert, monkeypatch):
    def fail(*_, **__):
        raise KeyError("inside torch")

    monkeypatch.setattr("torch.export.export", fail)
    status, _, err = convert("build", "crelu", "--format", "pt2")
    assert (status, "cannot be exported: 'inside torch'" in err) == (1, True)
    assert not Path("out").exists()


def test_a_result_is_converted_and_examined_further(relucid, convert, network):
    assert convert("build", "crelu", out="first")[0] == 0
    status, _, err = relucid(
        *("convert", "my_net.py:build", "--checkpoint", "first"),
        *("--to", "geometric", "--example", "5,3", "-o", "second"),
    )
    assert status == 0, err
    model, x = network["build"](), torch.randn(4, 3)
    torch.testing.assert_close(load("second", network["build"]())(x), model(x))
    assert relucid("examine", "my_net.py:build", "--checkpoint", "second", "--example", "5,3")[0] == 0


def test_the_weights_of_a_checkpoint_are_what_is_converted(convert, network):
    other = network["build"]()
    nn.init.constant_(other[4].bias, 7.0)
    torch.save(other.state_dict(), "w.pt")
    assert convert("build", "plain", "--checkpoint", "w.pt")[0] == 0
    assert load_file("out/weights.safetensors")["4.bias"].tolist() == [7.0, 7.0]


def test_merge_records_what_it_saved_and_converts_only_the_named_layers(convert):
    status, _, err = convert("paired", "merge", "--layers", "0", example="8,3")
    assert status == 0, err
    description = described("out")
    before, after = description["parameters"]
    assert before - after == 3 * (3 + 1)
    assert description["options"] == {"layers": ["0"]}


def test_a_result_is_replaced_only_by_force(convert):
    assert convert("build", "crelu")[0] == 0
    status, _, err = convert("build", "plain")
    assert (status, "--force" in err) == (1, True)
    assert described("out")["conversion"] == "crelu"
    assert convert("build", "plain", "--force")[0] == 0
    assert described("out")["conversion"] == "plain"


@pytest.mark.parametrize(
    "name, to, options, words",
    [
        ("build", "crelo", (), "did you mean 'crelu'?"),
        ("build", "crelu", ("--format", "onxn"), "did you mean 'onnx'?"),
        ("build", "plain", ("--layers", "0"), "plain changes the whole network"),
        ("build", "crelu", ("--layers", "nine"), "'nine'"),
        ("smooth", "crelu", (), "changes no layer"),
    ],
)
def test_impossible_conversions_are_refused_and_nothing_is_written(
    convert, tmp_path, name, to, options, words
):
    status, _, err = convert(name, to, *options)
    assert status == 1
    assert words in err
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["my_net.py"]
