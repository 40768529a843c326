import os
import subprocess
import sys

import pytest
import typer

from relucid.cli import options
from relucid.cli.app import app
from relucid.cli.export import WRITERS
from relucid.experiments._executors import EXECUTORS

RUN = """
import sys
from relucid.cli import main
sys.argv[0] = "relucid"
try:
    main()
except SystemExit as ended:
    heavy = [name for name in ("torch", "numpy", "pandas", "plotly", "lightning") if name in sys.modules]
    sys.exit(f"{ended.code} {heavy}")
"""


def test_the_names_in_help_texts_are_those_of_the_packages():
    assert options.EXECUTORS == EXECUTORS
    assert tuple(WRITERS) == options.EXPORTS


@pytest.mark.parametrize(
    "arguments, completed",
    [
        (["--help"], None),
        (["--version"], None),
        (["convert", "--help"], None),
        ([], "relucid show --sca"),
        ([], "relucid convert net.py:build --to cr"),
    ],
)
def test_help_and_completion_do_not_import_torch(arguments, completed):
    environment = dict(os.environ)
    if completed is not None:
        words = {"COMP_WORDS": completed, "COMP_CWORD": str(len(completed.split()) - 1)}
        environment |= {"_RELUCID_COMPLETE": "complete_bash", **words}
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr == "0 []\n"


@pytest.fixture
def complete(relucid, monkeypatch, tmp_path):
    """What bash is offered after a TAB."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()

    def after(line):
        words = line.split(" ")
        monkeypatch.setenv("_RELUCID_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        return relucid()[1].split()

    return after


@pytest.mark.parametrize(
    "line, offered",
    [
        ("relucid run quick", ["quickstart"]),
        ("relucid show structure/cifar100", ["structure/cifar100", "structure/cifar100-deeper"]),
        ("relucid report mi", ["mine.py"]),
        ("relucid examine resnet11", ["resnet110"]),
        ("relucid examine mi", ["mine.py:"]),
        ("relucid convert crelu/convpool-h", ["crelu/convpool-half", "crelu/convpool-half-printed"]),
        ("relucid run quickstart --scale sm", ["smoke", "small"]),
        ("relucid run quickstart --executor d", ["dask"]),
        ("relucid show quickstart --format l", ["latex"]),
        ("relucid convert my_net:build --to he", ["heavy-ball"]),
        ("relucid exa", ["examine"]),
    ],
)
def test_names_complete(complete, line, offered):
    assert complete(line) == offered


def parameters():
    for name, command in typer.main.get_command(app).commands.items():
        for parameter in command.params:
            yield pytest.param(parameter, id=f"{name} {parameter.name}")


@pytest.mark.parametrize("parameter", list(parameters()))
def test_every_argument_and_option_says_what_it_is(parameter):
    assert parameter.help
    assert parameter.help.endswith(".")


@pytest.mark.parametrize("command", list(typer.main.get_command(app).commands.values()), ids=lambda c: c.name)
def test_every_command_says_what_it_does(command):
    assert command.help.endswith(".")
