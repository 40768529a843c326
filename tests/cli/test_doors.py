"""Commands refuse at the door what could only come to nothing, and say what would be right."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from relucid.cli import main


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


def empty_first():
    return (torch.zeros(0, 8), torch.zeros(0, dtype=torch.long)), _pair(100, 2)


BUILD, SINGLE = f"{__file__}:build", f"{__file__}:single"
DATA = f"{__file__}:data"
IMPROVE = ("improve", BUILD, "--data", DATA, "--epochs", "1", "--seeds", "2", "-q")
CONVERT = ("convert", BUILD, "--to", "crelu", "--example", "1,8", "-o", "out")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("row.npy", np.zeros(8))
    np.save("x.npy", np.random.default_rng(0).normal(size=(64, 8)))
    torch.save(build().state_dict(), "weights.pt")
    (tmp_path / "file").touch()


@pytest.mark.parametrize(
    "command, said",
    [
        (
            ("improve", f"{__file__}:without_relu", *IMPROVE[2:], "-o", "out"),
            "CReLU: to_crelu changes no layer of",
        ),
        ((*IMPROVE, "-o", "out", "--try", "heavy-ball"), "nothing to compare with further training"),
        ((*IMPROVE, "-o", "file/out"), "file is a file, not a directory"),
        ((*IMPROVE, "-o", "out", "--target", "price"), "only a CSV file has"),
        ((*CONVERT, "--tolerance", "-1"), "tolerance=-1.0 must be 0 or more"),
        ((*CONVERT, "--tolerance", "nan"), "tolerance=nan must be 0 or more"),
        (
            ("convert", BUILD, "--to", "merge", *CONVERT[4:], "--budget", "-1"),
            "budget=-1.0 must be 0 or more",
        ),
        (("examine", BUILD, "--data", "row.npy"), "holds one row of 8 numbers, not a batch"),
        (("examine", BUILD, "--data", "nowhere"), "there are no data nowhere"),
        (("examine", SINGLE, "--data", "x.npy", "--checkpoint", "weights.pt"), "does not fit this network"),
        (("report", "--all", "--scale", "smoke"), "--scale is for one study"),
        (("report", "--all", "--seeds", "2"), "--seeds is for one study"),
        (("report", "quickstart", "--results", "."), "--results is for --all"),
        (("logs", "quickstart", "--store", "elsewhere"), "there is no store elsewhere"),
    ],
)
def test_what_could_only_come_to_nothing_is_refused(relucid, command, said):
    status, _, complaint = relucid(*command)
    assert status == 1
    assert said in complaint


def test_a_pickled_network_is_not_taken_for_the_one_that_was_named(relucid, tmp_path):
    torch.save(build(), tmp_path / "whole.pt")
    status, _, complaint = relucid(
        "examine", SINGLE, "--data", "x.npy", "--checkpoint", "whole.pt", "--unsafe-pickle"
    )
    assert status == 1
    assert "whole.pt does not fit this network" in complaint


@pytest.mark.parametrize("name, inputs", [("empty_first", 100), ("sets", 300), ("data", 300)])
def test_examine_takes_what_improve_takes(relucid, name, inputs):
    status, shown, _ = relucid("examine", BUILD, "--data", f"{__file__}:{name}", "--json")
    assert status == 0
    assert f'"inputs": {inputs}' in shown


def test_a_page_without_runs_is_not_written(relucid, tmp_path):
    study = tmp_path / "mine.py"
    text = (
        "from relucid.studies import Column, Scale, Study\n"
        "def run(config):\n    return {'error': FACTOR * config['seed']}\n"
        "study = Study(name='mine', title='Mine', run=run, rows={'only': {}}, columns={'error': Column('error')},\n"
        "    scales={'small': Scale({}, {'seed': range(2)}, seconds=1)})\n"
    )
    study.write_text(text.replace("FACTOR", "1.0"))
    assert relucid("run", str(study), "--store", "store", "--jobs", "1", "-q")[0] == 0
    study.write_text(text.replace("FACTOR", "2.0"))
    status, _, complaint = relucid("report", str(study), "--store", "store", "-o", "page.html")
    assert status == 1
    assert "--rerun" in complaint
    assert not (tmp_path / "page.html").exists()


def test_the_page_of_a_part_of_a_study_is_that_of_its_runs(relucid, tmp_path):
    study = tmp_path / "mine.py"
    study.write_text(
        "from relucid.studies import Column, Scale, Study\n"
        "def run(config):\n    return {'error': 1.0 * config['seed']}\n"
        "study = Study(name='mine', title='Mine', run=run, rows={'one': {'a': 1}, 'two': {'a': 2}},\n"
        "    columns={'error': Column('error')}, scales={'small': Scale({}, {'seed': range(2)}, seconds=1)})\n"
    )
    assert relucid("run", str(study), "--seeds", "3", "--store", "store", "--jobs", "1", "-q")[0] == 0
    for options, runs in ((), 4), (("--seeds", "3"), 6), (("--only", "one", "--seeds", "3"), 3):
        status, _, told = relucid("report", str(study), *options, "--store", "store", "--force")
        assert status == 0
        assert f"{runs} runs" in told
        page = (tmp_path / "page.html").read_text()
        assert "more are missing" not in page
        command = ["relucid run", str(study), "--scale small", *options]
        assert " ".join(command) in page


def test_an_interrupt_while_the_command_starts_is_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("relucid.cli.app.start", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Aborted.\n"
