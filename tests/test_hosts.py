"""Nothing is sent anywhere: whatever the commands do, only this machine is looked up."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).with_name("hosts")
LOOPBACK = {"127.0.0.1", "::1", "localhost", "", "None"}
NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def data():
    inputs = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    return (inputs[:100], inputs[:100, :3].argmax(1)), (inputs[100:], inputs[100:, :3].argmax(1))
"""


@pytest.fixture
def hosts(tmp_path):
    """A function that runs Python in a directory of its own, and returns the hosts of all its processes."""
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    log = tmp_path / "hosts.log"

    def run(*words):
        path = os.pathsep.join([str(HOOK), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "HOSTS_LOG": str(log)}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return set(log.read_text(encoding="utf-8").splitlines()) if log.exists() else set()

    return run


def test_the_hook_sees_lookups_and_connections_of_children(hosts):
    code = "import socket; socket.getaddrinfo('localhost', 80); s = socket.socket(); s.connect_ex(('127.0.0.1', 1))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    assert hosts("-c", child) == {"localhost", "127.0.0.1"}


@pytest.mark.parametrize(
    "words",
    [
        ("examine", "net.py:build", "--example", "64,4"),
        ("convert", "net.py:build", "--to", "crelu", "--example", "8,4", "-o", "out"),
        (
            "improve",
            "net.py:build",
            "--data",
            "net.py:data",
            "--epochs",
            "1",
            "--seeds",
            "3",
            "--jobs",
            "2",
            "-o",
            "out",
        ),
        ("run", "quickstart", "--scale", "smoke", "--jobs", "2"),
    ],
    ids=lambda words: words[0],
)
def test_commands_look_up_no_host_but_this_one(hosts, words):
    assert hosts("-m", "relucid", *words) <= LOOPBACK


@pytest.mark.slow
@pytest.mark.needs("ray")
def test_ray_on_one_machine_asks_nobody(hosts):
    unsent = "8.8.8.8"  # where a datagram socket points to that sends nothing: Ray learns this machine's address so
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.connect((unsent, 80))
        here = {socket.gethostname(), datagram.getsockname()[0]}
    command = ("-m", "relucid", "run", "quickstart", "--scale", "smoke", "--jobs", "2", "--executor", "ray")
    assert hosts(*command) <= LOOPBACK | here | {unsent}
