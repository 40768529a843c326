"""Kills at random moments (`--seed`): afterwards each thing is as it was, or wholly done, and what was done is kept."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from relucid.convert import load, to_crelu, to_geometric
from relucid.experiments import Store

KILLS = [2, pytest.param(30, marks=pytest.mark.slow)]
NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layers = [module for _ in range(3) for module in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(8, 3))

def data():
    inputs = torch.randn(120, 8, generator=torch.Generator().manual_seed(0))
    return (inputs[:100], inputs[:100, :3].argmax(1)), (inputs[100:], inputs[100:, :3].argmax(1))
"""
INPUTS = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """The function of net.py that builds the network; the working directory is where the file is."""
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    defined = {}
    exec(NETWORK, defined)
    return defined["build"]


@pytest.fixture
def moments(request):
    """Seconds drawn at random, of which many are few."""
    rng = random.Random(request.config.getoption("seed"))
    return lambda longest: longest * rng.random() ** 2


def killed(child, seconds):
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def command(*words):
    """Type a command; what it prints is not looked at."""
    from relucid.cli.app import app

    app(words, standalone_mode=False)


def same(one, other):
    with torch.no_grad():
        return torch.allclose(one.eval()(INPUTS), other.eval()(INPUTS), atol=1e-5)


@pytest.mark.parametrize("kills", KILLS)
def test_save(build, moments, forked, kills):
    made = [to_crelu(build(), INPUTS), to_geometric(build(), INPUTS)]

    def save_on():
        while True:
            for conversion in made:
                conversion.save("out")

    made[0].save("out")
    for _ in range(kills):
        killed(forked(save_on), moments(0.5))
        assert same(load("out", build()), build())


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets two directories change places at once")
@pytest.mark.slow
@pytest.mark.parametrize("kills", [30])
def test_convert(build, moments, forked, kills):
    def convert_on():
        for kind in ["crelu", "geometric"] * 1000:
            command("convert", "net.py:build", "--to", kind, "--example", "16,8", "-o", "out", "--force")

    for _ in range(kills):
        before = Path("out").exists()
        killed(forked(convert_on), moments(2))
        assert Path("out").exists() or not before
        if Path("out").exists():
            said = json.loads(Path("out/conversion.json").read_text(encoding="utf-8"))["conversion"]
            layers = {type(module).__name__ for module in load("out", build()).modules()}
            assert ("CReLU" in layers) == (said == "crelu")
            assert same(load("out", build()), build())


# An interrupt in a callback of the garbage collector is reported and swallowed by Python itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kills", KILLS)
def test_ctrl_c_in_a_conversion_in_place(build, moments, kills):
    start = time.perf_counter()
    to_crelu(build(), INPUTS)
    longest = 2 * (time.perf_counter() - start)
    former = {  # a process in the background of a shell ignores Ctrl-C
        signal.SIGALRM: signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT)),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    try:
        for _ in range(kills):
            net, reference = build(), build()
            optimizer = torch.optim.Adam(net.parameters())
            train(net, optimizer), train(reference, torch.optim.Adam(reference.parameters()))
            before = str(net)
            signal.setitimer(signal.ITIMER_REAL, moments(longest) + 1e-6)
            try:
                to_crelu(net, INPUTS, inplace=True, optimizer=optimizer)
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert str(net) == before or "CReLU" in str(net)
            assert same(net, reference)
            assert {p for group in optimizer.param_groups for p in group["params"]} == {*net.parameters()}
            assert all(optimizer.state[p]["exp_avg"].shape == p.shape for p in net.parameters())
            train(net, optimizer)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def train(net, optimizer):
    nn.functional.cross_entropy(net.train()(INPUTS), torch.zeros(16, dtype=int)).backward()
    optimizer.step()
    optimizer.zero_grad()
    net.eval()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [30])
def test_improve(build, moments, forked, kills):
    seeds = 2 + kills // 3
    words = ("improve", "net.py:build", "--data", "net.py:data", "--epochs", "1", "--seeds", str(seeds))
    words += ("--try", "crelu", "--jobs", "1", "-q", "-o", "out", "--force", "--store")

    def figures(store):
        with Store(store, create=False) as kept:
            return {key: (record["started"], record["metrics"]) for key, record in kept.items()}

    known = {}
    for _ in range(kills):
        killed(forked(lambda: command(*words, "runs")), moments(4))
        found = figures("runs")
        assert known.items() <= found.items()
        assert not Path("out").exists() or (Path("out/improvement.json").exists() and len(found) > 0)
        known = found
    command(*words, "runs")
    command(*words, "quiet")
    assert known.items() <= figures("runs").items()
    whole = figures("quiet")
    assert {key: metrics for key, (_, metrics) in figures("runs").items()} == {
        key: metrics for key, (_, metrics) in whole.items()
    }
    assert [path.name for path in Path("runs/work").iterdir()] == []
