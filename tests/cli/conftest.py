from pathlib import Path

import pytest

STUDY = """
from relucid.experiments import Claim, Column, Scale, Study, lower

def run(x, seed, broken=False):
    if broken and x == 2:
        raise RuntimeError("no [way]")
    return {"value": x ** 2 + seed}

study = Study(
    "squares", "How large squares are", run,
    rows={"one": {"x": 1}, "two": {"x": 2}},
    columns={"value": Column("value")},
    scales={"small": Scale({"broken": False}), "broken": Scale({"broken": True})},
    published={("two", "value"): (5.5, 0.5)},
    claims=[Claim("against two", "One is lower.", lower("one", "two", "value", paired=False))],
)
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The name of a file with a study, in the working directory; there is no store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELUCID_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    Path("squares.py").write_text(STUDY)
    return "squares.py"


@pytest.fixture
def edit(study):
    """A function that replaces something in the file of the study."""

    def edit(old, new):
        text = Path(study).read_text(encoding="utf-8")
        assert old in text
        Path(study).write_text(text.replace(old, new))

    return edit
