"""What the tutorial on studies shows of a command is what the command prints."""

import re
from pathlib import Path

from relucid.cli.tables import print_results
from relucid.experiments import Claim, Column, Scale, Study, lower, run

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "study.md").read_text(encoding="utf-8")


def shape(line):
    """A line without its numbers."""
    return re.sub(r"-?\d[\d.]*", "#", line)


def test_a_claim_is_shown_as_the_command_prints_it(tmp_path, capsys, monkeypatch):
    (block,) = re.findall(r"^```\n(error: .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.setenv("COLUMNS", "200")
    study = Study(
        "activations",
        "",
        lambda x, seed: {"error": (7 * x + 3 * seed) % 5},
        rows={"ReLU": {"x": 1}, "CReLU": {"x": 2}},
        columns={"test error %": Column("error")},
        scales={"small": Scale()},
        repeat={"seed": range(4)},
        claims=[Claim("error", "CReLU has a lower error than ReLU.", lower("CReLU", "ReLU", "test error %"))],
    )
    print_results(run(study, store=tmp_path, jobs=1), "activations", None)
    printed = [shape(line.rstrip()) for line in capsys.readouterr().out.splitlines()]
    shown = [shape(line.rstrip()) for line in block.splitlines()]
    begin = printed.index(shown[0])
    assert printed[begin : begin + len(shown)] == shown
