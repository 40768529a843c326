from pathlib import Path

import pytest

STUDY = """
from relucid.studies import Column, Scale, Study

def run(config):
    if config["broken"] and config["x"] == 2:
        raise RuntimeError("no [way]")
    return {"value": config["x"] ** 2 + config["seed"]}

study = Study(
    "squares", "How large squares are", run,
    rows={"one": {"x": 1}, "two": {"x": 2}},
    columns={"value": Column("value")},
    scales={"small": Scale({"broken": False}, seconds=60.0), "broken": Scale({"broken": True})},
    published={"two": {"value": (5.5, 0.5)}},
    source="a Table 1",
    protocol="Nothing is chosen on anything.",
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
        text = Path(study).read_text()
        assert old in text
        Path(study).write_text(text.replace(old, new))

    return edit
