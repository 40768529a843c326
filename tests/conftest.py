import math
import os
import select
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import settings

RESULTS = Path(__file__).parents[1] / "results"
RANK = """
import os, sys, torch
import torch.distributed as dist
torch.set_num_threads(1)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # gloo prints lines of its own in some releases of torch
rank, world = int(os.environ["RANK"]), 2
dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
for place in map(str.strip, sys.stdin):
    torch.manual_seed(0)
    names = {"torch": torch, "rank": rank, "world": world}
    with open(f"{place}/script.py") as script:
        exec(script.read(), names)
    torch.save(names["result"], f"{place}/{rank}.pt")
    print("done", file=answers, flush=True)
dist.destroy_process_group()
"""


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="Of everything that tests draw at random.")
    parser.addoption("--device", default="cpu", help="where tensors of the tests are: cpu, cuda, mps")


def pytest_configure(config):
    # Some virtual machines announce AMX and then refuse its instructions: a bfloat16 product would end the process.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # A busy machine is no reason to fail, and a checkout that cannot be written is none either.
    fixed = config.getoption("--seed") == 0
    settings.register_profile("relucid", deadline=None, database=None, derandomize=fixed)
    settings.load_profile("relucid")
    if config.pluginmanager.hasplugin("randomly"):  # it shuffles; what tests draw follows --seed alone
        config.option.randomly_reset_seed = False
    device = torch.device(config.getoption("--device"))
    if device.type != "cpu":  # before tests are collected, which make tensors as they are imported
        torch.set_default_device(device)
    config.addinivalue_line("markers", "browser: shows pages in chromium, and is skipped where there is none")
    config.addinivalue_line("markers", "needs(module): of an extra; skipped where it is not installed")


def pytest_collectstart(collector):
    torch.manual_seed(collector.config.getoption("seed"))  # for what a module draws as it is imported


def pytest_runtest_setup(item):
    # Whatever ran before it in its process, a test draws the same numbers.
    torch.manual_seed(item.config.getoption("seed"))
    for mark in item.iter_markers("needs"):
        (module,) = mark.args
        pytest.importorskip(module, reason=f"needs {module}, of the extras in pyproject.toml")


@pytest.fixture
def device():
    """Where new tensors are: what ``pytest --device cuda`` says."""
    return torch.get_default_device()


@pytest.fixture
def dense():
    """A function that forms the matrix W^T, (responses, inputs), of a layer from its responses to a basis."""

    def form(layer, shape):
        basis = torch.eye(math.prod(shape), dtype=torch.float64).unflatten(1, shape)
        return (layer(basis) - layer(torch.zeros_like(basis))).flatten(1).T.detach()

    return form


@pytest.fixture
def forked():
    """A function that runs another in a child process, which has all modules already, and returns the child's id."""

    def fork(function):
        child = os.fork()
        if child:
            return child
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    return fork


@pytest.fixture
def relucid(monkeypatch, capsys):
    """A function that types a command and returns its status, output and complaints."""

    def type_in(*arguments):
        from relucid.cli import main

        monkeypatch.setattr(sys, "argv", ["relucid", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        if isinstance(ended.value.code, str):  # what sys.exit prints
            return 1, shown.out, shown.err + ended.value.code
        return ended.value.code, shown.out, shown.err

    return type_in


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    """Two gloo processes that wait for scripts; starting them takes longer than running one."""
    rendezvous = {"RENDEZVOUS": f"file://{tmp_path_factory.mktemp('ranks')}/rendezvous"}
    command, pipe = [sys.executable, "-c", RANK], subprocess.PIPE
    started = [
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=os.environ | rendezvous | {"RANK": rank}
        )
        for rank in "01"
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def on_two_processes(ranks, tmp_path):
    """Runs a script in two gloo processes, which see `rank` and `world` and set `result`; both results."""

    def run(script: str) -> list:
        (tmp_path / "script.py").write_text(textwrap.dedent(script))
        for process in ranks:
            print(tmp_path, file=process.stdin, flush=True)
        for process in ranks:
            ready, _, _ = select.select([process.stdout], [], [], 300)  # a busy machine takes its time
            assert ready, "a process hangs"
            assert process.stdout.readline() == "done\n"
        return [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]

    return run


@pytest.fixture(scope="session")
def quickstart_store(tmp_path_factory):
    """A store with the smoke test of the quickstart; processes of pytest-xdist share it, and so the work."""
    from relucid.experiments import run
    from relucid.experiments._catalog import find

    own = tmp_path_factory.getbasetemp()
    store = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "quickstart"
    run(find("quickstart"), "smoke", store=store, jobs=1)
    return store


@pytest.fixture(scope="session")
def records():
    """Everything recorded in results/."""
    from relucid.experiments import read

    return read(RESULTS)


@pytest.fixture(scope="session")
def archive(records):
    """The same, with results and findings that are computed once."""
    from relucid.experiments._page import Archive

    return Archive(records)


@pytest.fixture(scope="session")
def ledger(archive):
    """Every claim of a study with its finding, by paper and where it is made there."""
    from relucid.experiments._catalog import rooms, studies
    from relucid.experiments._ledger import ledger

    return {
        f"{room} {entry.claim.where}": entry for room in rooms() for entry in ledger(studies(room), archive)
    }
