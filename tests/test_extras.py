import json
import subprocess
import sys

import pytest

from relucid import extras
from relucid.extras import command, needed

# Packages of the extras, hidden from a new process as if they were not installed.
CORE_ONLY = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sklearn", "plotly", "joblib", "filelock", "typer"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import torch
from torch import nn
"""


@pytest.mark.parametrize(
    "code, what, package",
    [
        ("import relucid; relucid.improve", "relucid.improve", "filelock"),
        ("from relucid.data import digits; digits()", "digits()", "sklearn"),
        (
            "from relucid.inspect import examine; "
            "examine(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), torch.randn(64, 4)).figures()",
            "figures()",
            "plotly",
        ),
    ],
)
def test_the_core_alone_names_the_extra_and_how_to_install_it(code, what, package):
    done = subprocess.run([sys.executable, "-c", CORE_ONLY + code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {what} needs {package}: pip install ")
    assert "studies]" in last


@pytest.mark.parametrize(
    "origin, expected",
    [
        (None, "pip install 'relucid[studies]'"),
        (
            {"url": "file:///a%20b/relucid", "dir_info": {"editable": True}},
            "pip install -e '/a b/relucid[studies]'",
        ),
        (
            {"url": "file:///code/relucid", "dir_info": {}},
            "pip install 'relucid[studies] @ file:///code/relucid'",
        ),
        (
            {"url": "https://host/relucid.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'relucid[studies] @ git+https://host/relucid.git@abc'",
        ),
    ],
)
def test_the_command_installs_from_where_relucid_came_from(monkeypatch, origin, expected):
    class Distribution:
        def read_text(self, name):
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(extras, "distribution", lambda name: Distribution())
    assert command("studies") == expected


def test_a_module_of_relucid_that_is_missing_is_a_bug_and_no_extra():
    with pytest.raises(ModuleNotFoundError), needed("this"):
        import relucid.no_such_module  # noqa: F401
