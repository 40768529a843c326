import pytest

from relucid.cli.app import app
from relucid.cli.foreign import OURS, ForeignError, foreign

USER = """
import sys
from torch import nn
from relucid.models import create

def divide():
    return 1 / 0

def leave():
    sys.exit(3)

def leave_without_a_word():
    sys.exit()

def misspell():
    return create("resnte20", num_classes=10)

def library():
    return nn.Linear(-1, "a")

def ask():
    return input()

def chatty():
    print("building")
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU())

class Picky(nn.Module):
    def forward(self, x):
        assert x.shape[1] == 4, "four features"
        return x

class Leaving(nn.Module):
    def forward(self, x):
        sys.exit("done")

def batches():
    yield {}["missing"]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user.py").write_text(USER)


@pytest.mark.parametrize(
    "factory, sentence",
    [
        (
            "divide",
            "user.py:divide fails: ZeroDivisionError: division by zero (user.py, line 7: return 1 / 0)",
        ),
        ("leave", "user.py:leave fails: it calls sys.exit(3) (user.py, line 10: sys.exit(3))"),
        (
            "leave_without_a_word",
            "user.py:leave_without_a_word fails: it calls sys.exit() (user.py, line 13: sys.exit())",
        ),
        (
            "misspell",
            "user.py:misspell fails: ValueError: no model in `relucid.models.names()` is called 'resnte20'; "
            "did you mean 'resnet20' or 'resnet1202' or 'resnet50'? "
            '(user.py, line 16: return create("resnte20", num_classes=10))',
        ),
        (
            "Picky",
            "the network fails on these inputs: AssertionError: four features "
            '(user.py, line 30: assert x.shape[1] == 4, "four features")',
        ),
        (
            "Leaving",
            "the network fails on these inputs: it calls sys.exit('done') "
            '(user.py, line 35: sys.exit("done"))',
        ),
    ],
)
def test_what_fails_in_the_users_file_is_said_with_its_line(relucid, factory, sentence):
    status, shown, told = relucid("examine", f"user.py:{factory}", "--example", "1,3")
    assert (status, shown, told) == (1, "", f"relucid: {sentence}")


@pytest.mark.parametrize(
    "text, sentence",
    [
        (
            "def build(:\n",
            "mine.py cannot be imported: SyntaxError: invalid syntax (mine.py, line 1: def build(:)",
        ),
        ("import sys\nsys.exit()\n", "it calls sys.exit() (mine.py, line 2: sys.exit())"),
        (
            "import nowhere\n",
            "ModuleNotFoundError: No module named 'nowhere' (mine.py, line 1: import nowhere)",
        ),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n",
            "sys.exit(2) (mine.py, line 2: ",
        ),
        ("\0", "mine.py cannot be imported"),
    ],
)
@pytest.mark.parametrize(
    "command", ["examine mine.py:build --example 1,3", "examine mine:build --example 1,3"]
)
def test_a_file_that_cannot_be_imported_is_said_with_its_line(
    relucid, tmp_path, monkeypatch, text, sentence, command
):
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    status, _, told = relucid(*command.split())
    assert status == 1
    assert sentence.removeprefix("mine.py ") in told
    assert told.splitlines()[-1].startswith("relucid: mine")


@pytest.mark.parametrize("command", ["run", "show", "logs", "report"])
def test_a_study_that_ends_the_program_is_said(relucid, tmp_path, command):
    (tmp_path / "study.py").write_text("import sys\nsys.exit(0)\n")
    status, _, told = relucid(command, "study.py")
    assert status == 1
    assert told.startswith("relucid: study.py calls sys.exit() when it is loaded")


def test_data_that_fails_while_it_is_read_is_said_with_its_line(relucid):
    status, _, told = relucid("examine", "user.py:chatty", "--data", "user.py:batches")
    assert status == 1
    assert told.endswith("""KeyError: 'missing' (user.py, line 38: yield {}["missing"])""")


def test_what_a_network_prints_does_not_mix_with_json(relucid):
    status, shown, told = relucid("examine", "user.py:chatty", "--example", "1,3", "--json")
    assert (status, told) == (0, "building\n")
    assert shown.startswith("{")


def test_what_fails_in_a_library_is_said_too(relucid):
    status, _, told = relucid("examine", "user.py:library", "--example", "1,3")
    assert status == 1
    assert '(user.py, line 19: return nn.Linear(-1, "a"))' in told


def test_faults_of_relucid_are_not_taken_for_the_users(monkeypatch):
    broken = compile("lambda *_, **__: {}['missing']", str(OURS / "inspect" / "broken.py"), "eval")
    monkeypatch.setattr("relucid.inspect.examine", eval(broken))
    with pytest.raises(KeyError, match="missing"):
        app(["examine", "user.py:chatty", "--example", "1,3"])


def test_errors_in_our_own_words_pass():
    with pytest.raises(LookupError, match=r"^ours$"), foreign("it fails", LookupError):
        raise LookupError("ours")
    with pytest.raises(ForeignError, match=r"^it fails: LookupError: theirs"), foreign("it fails"):
        raise LookupError("theirs")
