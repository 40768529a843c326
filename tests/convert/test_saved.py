import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, fuse, load, save, to_crelu, to_geometric, to_heavy_ball

from .networks import NETWORKS, example, trained_a_little
from .odd import Odd


@pytest.mark.parametrize("network", NETWORKS)
def test_a_saved_conversion_comes_back_the_same(network, tmp_path):
    model, x = trained_a_little(NETWORKS[network]()), example()
    for conversion in to_crelu(model, x), to_geometric(model, x, center=[x]), fuse(model, x):
        save(conversion, tmp_path / "net")
        back = load(tmp_path / "net")
        assert torch.equal(back.model(x), conversion.model(x))
        assert list(back.model.state_dict()) == list(conversion.model.state_dict())
        assert back.to_dict() == conversion.to_dict()
        assert back.summary() == conversion.summary()


def test_it_is_loaded_without_the_code_of_the_original_and_trained_on(tmp_path):
    model, x = trained_a_little(NETWORKS["residual"]()), example()
    found = to_crelu(to_heavy_ball(model, x).model, x)
    save(found, tmp_path)
    torch.save((x, found.model.eval()(x).detach()), tmp_path / "expected.pt")
    code = f"""
import torch
from relucid.convert import fuse, load
x, y = torch.load({str(tmp_path / "expected.pt")!r})
net = load({str(tmp_path)!r}).model
assert torch.equal(net.eval()(x), y)
assert torch.allclose(fuse(net, x).model(x), y)
net.train()(x).sum().backward()
assert all(p.grad is not None for p in net.parameters())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_converted_sequential_is_indexed_as_before_also_when_loaded(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    conversion = to_geometric(model, torch.randn(5, 3))
    save(conversion, tmp_path)
    for net in conversion.model, load(tmp_path).model:
        assert type(net[0]).__name__ == "GeometricLinear"
        assert net[-1] is net[2]
        with pytest.raises(IndexError, match="layer 1 has been merged into another layer"):
            net[1]


def test_what_needs_code_of_others_is_refused_by_name(tmp_path):
    model, x = Odd(["odd_sizes_padded"], "tensor").double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(ConversionError, match=r"pieces.0 .*cannot be saved without the code of Piece"):
        save(to_crelu(model, x), tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"target": "os.system"},
        {"target": "builtins.getattr", "args": {"tuple": [{"node": "input_1"}, "__class__"]}},
        {"op": "call_method", "target": "__reduce__"},
        {"target": "torch.load"},
    ],
)
def test_a_file_can_call_nothing_but_functions_on_tensors(change, tmp_path):
    class Sum(nn.Module):
        def forward(self, x):
            return torch.add(x.relu(), x)

    save(to_heavy_ball(Sum(), torch.randn(2, 3)), tmp_path)
    path = tmp_path / "network.json"
    found = json.loads(path.read_text())
    found["nodes"][1] |= {"op": "call_function", **change}
    path.write_text(json.dumps(found))
    with pytest.raises(ConversionError, match="holds no conversion that can be loaded"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', "[1, 2]"])
def test_a_damaged_file_is_a_sentence(text, tmp_path):
    (tmp_path / "network.json").write_text(text)
    torch.save({}, tmp_path / "weights.pt")
    with pytest.raises(ConversionError, match="holds no conversion that can be loaded"):
        load(tmp_path)
