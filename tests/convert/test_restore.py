"""Checkpoints of converted networks, resumed by the code that wrote them; nothing but steps is read from them."""

import json
import subprocess
import sys
import zlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, load, restore, to_crelu, to_geometric
from relucid.convert._recipe import RECIPE, encoded, recipe_of

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    safe_mode = True

    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.drop, self.fc2 = (
            nn.Linear(6, 12),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(12, 3),
        )

    def forward(self, x):
        return self.fc2(self.drop(self.act(self.fc1(x))))


def step(net, optimizer):
    optimizer.zero_grad()
    F.mse_loss(net(X), torch.ones(64, 3)).backward()
    optimizer.step()


def test_a_dictionary_with_weights_and_optimizer_is_resumed(tmp_path):
    """As in nanoGPT's train.py: a network that was compiled, its arguments and its optimizer in one file."""
    net = Net().eval()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    step(net, optimizer)
    to_crelu(net, X, inplace=True, optimizer=optimizer)
    step(net, optimizer)
    weights = {f"_orig_mod.{name}": value for name, value in net.state_dict().items()}
    saved = {"model": weights, "optimizer": optimizer.state_dict(), "iter_num": 2, "config": {"lr": 0.01}}
    torch.save(saved, tmp_path / "ckpt.pt")
    checkpoint = torch.load(tmp_path / "ckpt.pt", weights_only=True)
    again = restore(Net().eval(), checkpoint["model"])
    other = torch.optim.AdamW(again.parameters(), lr=0.01)
    other.load_state_dict(checkpoint["optimizer"])
    assert torch.equal(again(X), net(X))
    for each, its in ((net, optimizer), (again, other)):
        step(each, its)
    assert torch.equal(again(X), net(X))
    whole = restore(Net().eval(), torch.load(tmp_path / "ckpt.pt", weights_only=True))
    assert whole.fc2.weight.shape == (3, 24)


class Lit(nn.Module):
    """As a LightningModule: the network is a part, whose hook runs before the weights are loaded."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def on_load_checkpoint(self, checkpoint):
        restore(self, checkpoint["state_dict"])


def test_the_network_may_be_a_part():
    lit = Lit().eval()
    to_crelu(lit.net, X, inplace=True)
    checkpoint = {"epoch": 3, "state_dict": lit.state_dict(), "optimizer_states": []}
    other = Lit().eval()
    other.on_load_checkpoint(checkpoint)
    other.load_state_dict(checkpoint["state_dict"])
    assert torch.equal(other.net(X), lit.net(X))


def test_conversions_of_a_part_and_then_of_the_whole_are_repeated_in_order():
    lit = nn.Sequential(Net(), nn.ReLU(), nn.Linear(3, 2)).eval()
    to_crelu(lit[0], X, inplace=True)
    to_geometric(lit, X, inplace=True)
    again = nn.Sequential(Net(), nn.ReLU(), nn.Linear(3, 2)).eval()
    assert torch.equal(restore(again, lit.state_dict())(X), lit(X))
    assert [name for name in lit.state_dict() if RECIPE in name] == [RECIPE]


def test_a_network_that_was_never_converted_is_loaded_as_usual():
    net, other = Net().eval(), Net().eval()
    assert torch.equal(restore(other, net.state_dict())(X), net(X))


def test_another_process_resumes(tmp_path):
    """train.py runs as __main__; evaluate.py imports the class from train."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self): super().__init__(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))\n"
        "if __name__ == '__main__':\n"
        "    from relucid import to_crelu\n"
        "    net = to_crelu(Net(), torch.ones(4, 6)).model\n"
        "    torch.save({'model': net.state_dict(), 'y': net(torch.ones(4, 6))}, 'ckpt.pt')\n"
    )
    (tmp_path / "evaluate.py").write_text(
        "import torch\n"
        "from relucid.convert import restore\n"
        "from train import Net\n"
        "checkpoint = torch.load('ckpt.pt', weights_only=True)\n"
        "assert torch.equal(restore(Net(), checkpoint['model'])(torch.ones(4, 6)), checkpoint['y'])\n"
    )
    for script in ("train.py", "evaluate.py"):
        subprocess.run([sys.executable, script], cwd=tmp_path, check=True)


def test_an_optimizer_that_is_there_already_follows():
    net = to_crelu(Net().eval(), X).model
    again = Net().eval()
    optimizer = torch.optim.Adam(again.parameters())
    step(again, optimizer)
    restore(again, net.state_dict(), optimizer=optimizer)
    before = again.fc2.weight.detach().clone()
    step(again, optimizer)
    assert bool((again.fc2.weight != before).any())


def test_half_precision_keeps_the_recipe():
    net = to_crelu(Net().eval(), X).model
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert recipe_of(net.to(dtype)) == recipe_of(restore(Net().to(dtype), net.state_dict()))


# What does not fit


def test_another_network_is_refused_and_stays_as_it_was():
    weights = to_crelu(Net(), X).model.state_dict()
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    wide = Net()
    wide.fc1, wide.fc2 = nn.Linear(6, 20), nn.Linear(20, 3)
    for other in (net, wide, to_geometric(Net(), X).model):
        before = repr(other)
        with pytest.raises(ConversionError):
            restore(other, weights)
        assert repr(other) == before
    missing = {name: value for name, value in weights.items() if name != "fc1.bias"}
    other = Net()
    with pytest.raises(ConversionError, match=r"fc1\.bias is missing"):
        restore(other, missing)
    assert other.fc2.weight.shape == (3, 12)


@pytest.mark.parametrize(
    "checkpoint", [{}, {"epoch": 3}, {"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}}, 7]
)
def test_what_holds_no_state_dict_is_refused(checkpoint):
    with pytest.raises(ValueError, match="the checkpoint has"):
        restore(Net(), checkpoint)


READ = {"step": "Read", "name": "fc2", "carries": False}
WRONG = [
    {"do": "attribute", "name": "", "key": "safe_mode", "value": False},
    {"step": "attribute", "name": "", "key": "safe_mode", "value": False},
    {"step": "Step", "name": "fc1"},
    {"step": "Double", "name": "act", "dim": 1, "groups": 10**9},
    {"step": "Double", "name": "act", "dim": 1, "forward": "x"},
    {"step": "Double", "name": "act.__class__", "dim": 1},
    {"step": "Double", "name": ["act"], "dim": 1},
    {"step": "Geometric", "name": "fc1", "relu": "drop"},
    {**READ, "layout": {"dim": 1, "runs": [[0, 10**12, 1.0]]}},
    {**READ, "layout": {"dim": 1, "runs": [[0, 12, 1.0]] * 10**4}},
    {**READ, "layout": {"dim": 1, "runs": [[-3, 5, 1.0]]}},
    {**READ, "layout": {"dim": 1, "runs": {"a": 1}}},
    {**READ, "layout": 7},
    {**READ, "in": "nowhere", "layout": {"dim": 1, "runs": [[0, 12, 1.0]]}},
    {"step": "Draw", "name": "drop", "half": True},
    "fc1",
    7,
    None,
]


@pytest.mark.parametrize("item", WRONG, ids=str)
def test_a_recipe_from_anyone_can_do_nothing_but_convert(item):
    """Steps by name from a table, their arguments by name, sizes bounded by those of the network and the weights."""
    net = Net()
    before, weights = repr(net), Net().state_dict()
    with pytest.raises(ConversionError):
        restore(net, {**weights, RECIPE: encoded([item])})
    assert repr(net) == before
    assert net.safe_mode
    assert net.drop.p == 0.1


def test_a_recipe_that_is_none_is_refused():
    broken = torch.full((50,), 7.0)
    bomb = torch.frombuffer(
        bytearray(zlib.compress(b"[" + b" " * (1 << 25) + b"]")), dtype=torch.uint8
    ).float()
    deep = torch.frombuffer(bytearray(zlib.compress(b"[" * 10**5)), dtype=torch.uint8).float()
    plain = torch.frombuffer(
        bytearray(zlib.compress(json.dumps({"a": 1}).encode())), dtype=torch.uint8
    ).float()
    for recipe in (broken, bomb, deep, plain, torch.empty(0)):
        with pytest.raises(ConversionError, match="does not hold the steps"):
            restore(Net(), {**Net().state_dict(), RECIPE: recipe})


# Files


@pytest.mark.needs("safetensors")
def test_an_interrupted_save_leaves_the_earlier_result(tmp_path, monkeypatch):
    to_crelu(Net(), X).save(tmp_path)
    import safetensors.torch

    def killed(*args, **kwargs):
        (tmp_path / "trace").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save_model", killed)
    with pytest.raises(KeyboardInterrupt):
        to_geometric(Net(), X).save(tmp_path)
    assert (tmp_path / "trace").exists()
    assert load(tmp_path, Net()).fc2.weight.shape == (3, 24)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["trace", "weights.safetensors"]


@pytest.mark.needs("safetensors")
def test_equal_networks_make_equal_files(tmp_path):
    conversion = to_crelu(Net(), X)
    files = set()
    for number in range(8):
        conversion.save(tmp_path / str(number))
        files.add((tmp_path / str(number) / "weights.safetensors").read_bytes())
    assert len(files) == 1


def test_a_conversion_that_was_loaded_can_be_saved_and_converted_again(tmp_path):
    first = to_crelu(Net().eval(), X)
    first.save(tmp_path / "first")
    loaded = load(tmp_path / "first", Net().eval())
    second = to_geometric(loaded, X, layers="fc1")
    second.save(tmp_path / "second")
    assert torch.equal(load(tmp_path / "second", Net().eval())(X), second.model(X))


@pytest.mark.needs("safetensors")
def test_weights_that_are_no_conversion_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file(Net().state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="of a conversion"):
        load(tmp_path, Net())
