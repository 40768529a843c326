import io
import re

import pytest
from rich.console import Console

from relucid.cli.tables import print_grid, wrapped
from relucid.experiments._catalog import built_in

STUDY = """
from relucid.experiments import Column, Study

study = Study("wide", "A table that is wider than any terminal", lambda x, size, seed: {"value": 1.0 + x},
    rows={"geometric weights and heavy ball": {"x": 1}, "standard": {"x": 2}},
    columns={f"batch size {size}": Column("value", {"size": size}) for size in (128, 256, 512, 1024, 2048)},
    published={("standard", "batch size 2048"): (93.25, 0.25)})
"""
NETWORK = """
from torch import nn

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.a_rather_long_name_of_a_stage = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.another_rather_long_name = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x):
        return self.another_rather_long_name(self.a_rather_long_name_of_a_stage(x))
"""


@pytest.fixture
def terminal(relucid, tmp_path, monkeypatch):
    """A function that types a command into a terminal of 80 columns and returns the lines that it shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    (tmp_path / "wide.py").write_text(STUDY)
    (tmp_path / "my_net.py").write_text(NETWORK)

    def type_in(*arguments):
        status, shown, err = relucid(*arguments)
        assert status == 0, err
        return re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()

    return type_in


def is_cut(line):
    return "…" in line or re.search(r"\w\.\.\.", line)


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "list",
        "run --help",
        "convert --help",
        "run wide.py --jobs 1",
        "show wide.py",
        "examine my_net.py:Deep --example 40,3,12,12",
        "examine my_net.py:Deep --example 40,3,12,12 --against my_net.py:Deep",
    ],
)
def test_everything_fits_80_columns_and_nothing_is_cut(terminal, command):
    if command.startswith("show"):
        terminal("run", "wide.py", "--jobs", "1", "-q")
    lines = terminal(*command.split())
    assert [line for line in lines if is_cut(line)] == []
    tables = [line for line in lines if set(line) & set("│┃|")] or lines
    assert [line for line in tables if len(line.rstrip()) > 80] == []


def test_columns_that_do_not_fit_go_on_below_beside_the_names_of_the_rows(terminal):
    terminal("run", "wide.py", "--jobs", "1")
    lines = terminal("show", "wide.py")
    assert sum("geometric weights and heavy ball" in line for line in lines) > 1
    for size in (128, 256, 512, 1024, 2048):
        assert sum(f"batch size {size} " in line for line in lines) == 1
    assert any("[93.25±0.25]" in line for line in lines)


def test_an_examination_names_every_layer_and_column_in_full(terminal):
    shown = "\n".join(terminal("examine", "my_net.py:Deep", "--example", "40,3,12,12"))
    for name in (
        "a_rather_long_name_of_a_stage.0",
        "another_rather_long_name.0",
        "always on",
        "outside the data",
    ):
        assert name in shown


@pytest.mark.parametrize("name", built_in())
def test_the_table_of_every_study_folds_without_cutting_a_name(name):
    study = built_in()[name]
    head = ["", *study.columns]
    rows = [[row, *("12.34±5.67 + (lr 0.003)" for _ in study.columns)] for row in study.rows]
    console = Console(width=80, file=io.StringIO())
    print_grid(console, head, rows)
    shown = console.file.getvalue()
    assert not is_cut(shown)
    assert max(map(len, shown.splitlines())) <= 80
    words = {word for label in (*study.columns, *study.rows) for word in label.split()}
    assert words <= set(shown.split())


def test_each_column_is_in_one_part_and_the_first_in_all():
    head = ["row", *(f"column {number}" for number in range(9))]
    parts = list(wrapped(40, head, []))
    assert [part[0] for part in parts] == [0] * len(parts)
    assert [number for part in parts for number in part[1:]] == list(range(1, 10))


def test_no_table_of_the_quickstart_has_an_empty_row_or_column(quickstart_store, terminal):
    lines = terminal("show", "quickstart", "--scale", "smoke", "--store", str(quickstart_store))
    rows = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    assert rows
    assert [row for row in rows if not "".join(row[1:]).strip()] == []
