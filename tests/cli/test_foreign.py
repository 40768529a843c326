import sys

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
        ("divide", "ZeroDivisionError: division by zero (user.py, line 7: return 1 / 0)"),
        ("leave", "it calls sys.exit(3) (user.py, line 10: sys.exit(3))"),
        ("leave_without_a_word", "it calls sys.exit() (user.py, line 13: sys.exit())"),
        ("misspell", '(user.py, line 16: return create("resnte20", num_classes=10))'),
        ("library", '(user.py, line 19: return nn.Linear(-1, "a"))'),
        (
            "Picky",
            'AssertionError: four features (user.py, line 30: assert x.shape[1] == 4, "four features")',
        ),
        ("Leaving", "it calls sys.exit('done') (user.py, line 35: sys.exit(\"done\"))"),
    ],
)
def test_an_error_in_the_users_file_is_reported_with_its_line(relucid, factory, sentence):
    status, out, err = relucid("examine", f"user.py:{factory}", "--example", "1,3")
    assert (status, out) == (1, "")
    assert err.startswith("relucid: ")
    assert err.endswith(sentence)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("def build(:\n", "SyntaxError: invalid syntax (mine.py, line 1: def build(:)"),
        ("import sys\nsys.exit()\n", "it calls sys.exit() (mine.py, line 2: sys.exit())"),
        ("import nowhere\n", "No module named 'nowhere' (mine.py, line 1: import nowhere)"),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n",
            "sys.exit(2) (mine.py, line 2: ",
        ),
        ("\0", "cannot be imported"),
    ],
)
@pytest.mark.parametrize("module", ["mine.py", "mine"])
def test_a_file_that_cannot_be_imported_is_reported_with_its_line(
    relucid, tmp_path, monkeypatch, text, sentence, module
):
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    status, _, err = relucid("examine", f"{module}:build", "--example", "1,3")
    assert status == 1
    assert sentence in err
    assert err.splitlines()[-1].startswith("relucid: mine")


@pytest.mark.parametrize("command", ["run", "show", "logs", "report"])
def test_a_study_that_ends_the_program_is_refused(relucid, tmp_path, command):
    (tmp_path / "study.py").write_text("import sys\nsys.exit(0)\n")
    status, _, err = relucid(command, "study.py")
    assert status == 1
    assert err.startswith("relucid: study.py cannot be read: it calls sys.exit(0) (study.py, line 2")


def test_an_error_while_data_are_read_is_reported_with_its_line(relucid):
    status, _, err = relucid("examine", "user.py:chatty", "--data", "user.py:batches")
    assert status == 1
    assert err.endswith("""KeyError: 'missing' (user.py, line 38: yield {}["missing"])""")


def test_output_of_a_network_does_not_mix_with_json(relucid):
    status, out, err = relucid("examine", "user.py:chatty", "--example", "1,3", "--json")
    assert (status, err) == (0, "building\n")
    assert out.startswith("{")


def test_bugs_of_relucid_are_not_blamed_on_the_user(monkeypatch):
    broken = compile("lambda *_, **__: {}['missing']", str(OURS / "inspect" / "broken.py"), "eval")
    monkeypatch.setattr("relucid.inspect.examine", eval(broken))
    with pytest.raises(KeyError, match="missing"):
        app(["examine", "user.py:chatty", "--example", "1,3"])


def test_errors_in_our_own_words_pass():
    with pytest.raises(LookupError, match=r"^ours$"), foreign("it fails", LookupError):
        raise LookupError("ours")
    with pytest.raises(ForeignError, match=r"^it fails: LookupError: theirs"), foreign("it fails"):
        raise LookupError("theirs")
