import subprocess
import sys

import pytest

from relucid import __version__
from relucid.cli import main


def test_the_version_is_printed(relucid):
    assert relucid("--version") == (0, f"relucid {__version__}\n", "")


def test_an_unknown_command_is_refused_with_the_nearest_one(relucid):
    status, _, err = relucid("shwo")
    assert status == 2
    assert "Did you mean 'show'?" in err


def test_without_the_extra_the_error_names_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("relucid.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install .*\[studies\]"):
        main()


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "relucid", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "relucid: No space left on device\n")


def test_a_closed_pipe_is_not_an_error():
    command = f"{sys.executable} -m relucid list --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_an_interrupt_at_startup_prints_one_word(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("relucid.cli.app.start", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Aborted.\n"


def test_without_arguments_it_shows_three_things_to_do_first_in_80_columns(relucid):
    status, shown, complaints = relucid()
    commands = [line.split()[1] for line in shown.splitlines() if line.startswith("  relucid ")]
    assert (status, complaints, commands) == (0, "", ["examine", "improve", "run"])
    assert max(map(len, shown.splitlines())) <= 80
    _, help_, _ = relucid("--help")
    assert all(command in help_ for command in commands)
