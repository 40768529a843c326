import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from lightning import LightningModule, Trainer
from torch import nn

from relucid import convert, to_crelu
from relucid.cli.checkpoint import load, restore


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Lit(LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.head = nn.Linear(1, 1)


def test_a_checkpoint_of_lightning_loads_and_its_prefix_is_named(tmp_path, capsys):
    trained, path = network(), tmp_path / "epoch.ckpt"
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.strategy.connect(Lit(trained))
    trainer.save_checkpoint(path)
    assert same(restore(network(), path), trained)
    named = "weights are named net.*, ignoring the prefix; not used: head.weight, head.bias"
    assert capsys.readouterr().err == f"{path}: {named}\n"


def test_a_checkpoint_of_a_converted_network_converts_the_network(tmp_path):
    x = torch.randn(5, 3)
    converted, path = to_crelu(network(), x).model, tmp_path / "epoch.ckpt"
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.strategy.connect(Lit(converted))
    trainer.save_checkpoint(path)
    assert torch.equal(restore(network(), path)(x), converted(x))
    torch.save(
        {"model": converted.state_dict(), "ema": converted.state_dict(), "iter": 7}, tmp_path / "ckpt.pt"
    )
    assert torch.equal(restore(network(), tmp_path / "ckpt.pt", key="ema")(x), converted(x))
    with pytest.raises(ValueError, match=r"2\.weight has the shape"):
        restore(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 7)), tmp_path / "ckpt.pt", key="ema")


class Resumed(Lit):
    """Lightning calls the hook before it loads the weights."""

    def __init__(self):
        super().__init__(network())

    def on_load_checkpoint(self, checkpoint):
        convert.restore(self, checkpoint["state_dict"])


def test_lightning_itself_resumes_a_converted_network(tmp_path):
    x, path = torch.randn(5, 3), tmp_path / "epoch.ckpt"
    module = Resumed()
    to_crelu(module.net, x, inplace=True)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path)
    assert torch.equal(Resumed.load_from_checkpoint(path).net(x), module.net(x))


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "model.backbone."])
def test_any_prefix_that_all_weights_have_is_left_out(tmp_path, capsys, prefix):
    trained, path = network(), tmp_path / "w.pt"
    torch.save({prefix + name: value for name, value in trained.state_dict().items()}, path)
    assert same(restore(network(), path), trained)
    assert f"named {prefix}*" in capsys.readouterr().err


def test_names_that_fit_are_taken_without_a_word(tmp_path, capsys):
    trained, path = network(), tmp_path / "w.pt"
    torch.save({"model_state_dict": trained.state_dict(), "epoch": 3}, path)
    assert same(restore(network(), path), trained)
    assert capsys.readouterr().err == ""


def test_the_only_weights_that_fit_are_taken_and_of_several_those_that_are_named(tmp_path):
    trained, ema, path = network(), network(), tmp_path / "w.pt"
    optimizer = {"state": {0: {"step": torch.zeros(1)}}, "param_groups": [{"lr": 0.1}]}
    torch.save(
        {
            "net": trained.state_dict(),
            "acc": 93.1,
            "head": nn.Linear(2, 2).state_dict(),
            "optimizer": optimizer,
        },
        path,
    )
    assert same(restore(network(), path), trained)
    torch.save({"agent": {"policy": trained.state_dict(), "ema": ema.state_dict()}}, path)
    assert same(restore(network(), path, key="agent.ema"), ema)
    with pytest.raises(ValueError, match=r"--key, agent\.policy, agent\.ema"):
        restore(network(), path)
    with pytest.raises(ValueError, match=r"--key can be agent\.policy"):
        restore(network(), path, key="policy")


def test_weights_of_two_such_networks_are_not_guessed_at(tmp_path):
    weights = network().state_dict()
    both = {prefix + name: value for prefix in ("net.", "average.") for name, value in weights.items()}
    torch.save(both, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"weights for several such networks, net\.\*, average\.\*"):
        restore(network(), tmp_path / "w.pt")


def damaged():
    """Ways to write a file that is no checkpoint."""

    def truncated(path, **how):
        torch.save(network(), path, **how)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def archive(path):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a.txt", "no weights")

    return {
        "text": lambda path: path.write_text("epoch,loss\n1,0.5\n"),
        "empty": lambda path: path.touch(),
        "truncated": truncated,
        "truncated, old": lambda path: truncated(path, _use_new_zipfile_serialization=False),
        "archive": archive,
        "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
        "pickle": lambda path: path.write_bytes(pickle.dumps({"a": nn.Linear})),
        "bytes.safetensors": lambda path: path.write_bytes(b"\xff" * 100),
        "text.safetensors": lambda path: path.write_text("hello"),
        "empty.safetensors": lambda path: path.touch(),
    }


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("name, write", damaged().items())
def test_a_damaged_file_is_refused_without_advice_to_trust_it(tmp_path, name, write, unsafe):
    path = tmp_path / ("w.safetensors" if name.endswith(".safetensors") else "w.pt")
    write(path)
    with pytest.raises(Exception, match=r"(cannot be read: it is damaged|cannot be unpickled)") as refused:
        load(path, unsafe=unsafe)
    assert str(path) in str(refused.value)
    assert "--unsafe-pickle" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("new", [True, False])
def test_a_whole_file_with_more_than_weights_needs_trust(tmp_path, new):
    net, path = network(), tmp_path / "net.pt"
    torch.save(net, path, _use_new_zipfile_serialization=new)
    with pytest.raises(ValueError, match=r"holds more than weights.*--unsafe-pickle"):
        load(path)
    assert same(load(path, unsafe=True), net)


@pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("unsafe", [False, True])
def test_torchscript_is_refused(tmp_path, unsafe):
    torch.jit.save(torch.jit.trace(network(), torch.zeros(1, 3)), tmp_path / "net.pt")
    with pytest.raises(ValueError, match="is a TorchScript program, not weights"):
        load(tmp_path / "net.pt", unsafe=unsafe)


@pytest.mark.parametrize("state", [{"0.weight": torch.zeros(2)}, {0: torch.zeros(1)}, {}, torch.zeros(2)])
def test_weights_of_another_network_are_refused_in_a_line(tmp_path, state):
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"does not fit this network|holds no named weights") as refused:
        restore(network(), Path(tmp_path / "w.pt"))
    assert len(str(refused.value).splitlines()) == 1
