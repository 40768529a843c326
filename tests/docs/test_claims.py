import ast
import json
import os
import re
import runpy
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from relucid.studies import Cell, Table, built_in

ROOT = Path(__file__).parents[2]
ledger = runpy.run_path(str(ROOT / "docs" / "claims.py"))
CLAIMS = ledger["claims"]()
BY_PLACE = {f"{claim.paper} {claim.where}": claim for claim in CLAIMS}
FILES = {
    "crelu": "001_d60dd8562174290f.txt",
    "gmp": "003_a4641e8a1a0c71b3.txt",
    "structure": "004_605766797e3c4bb5.txt",
}


def test_the_page_is_what_the_ledger_and_the_results_say():
    assert (ROOT / "docs" / "claims.md").read_text() == ledger["page"](), "run python docs/claims.py"


@cache
def functions(file):
    return {
        node.name for node in ast.parse((ROOT / "tests" / file).read_text()).body if hasattr(node, "name")
    }


def resolve(name):
    """What a dotted name means: a module's attribute, or an attribute of that."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("place", BY_PLACE)
def test_what_an_entry_names_exists(place):
    claim = BY_PLACE[place]
    assert claim.paper in ledger["PAPERS"]
    assert claim.code
    assert claim.tests or claim.studies, "nothing checks it"
    for name in claim.code:
        resolve(name)
    for test in claim.tests:
        file, _, function = test.partition("::")
        assert function in functions(file)
    studies = [built_in()[name] for name in claim.studies]
    for each in ledger["comparisons"](claim):
        places = [(each.row, each.column), *([each.than] if isinstance(each.than, tuple) else [])]
        assert all(row in studies[0].rows and column in studies[0].columns for row, column in places)


def test_every_entry_has_a_state_that_is_explained():
    assert {ledger["state"](claim)[0] for claim in CLAIMS} <= set(ledger["STATES"])


def test_places_are_listed_once():
    assert len(BY_PLACE) == len(CLAIMS)


@pytest.mark.parametrize("paper", FILES)
def test_every_numbered_statement_table_and_figure_of_a_paper_is_listed(paper):
    if not os.environ.get("RELUCID_PAPERS"):
        pytest.skip("needs the papers: set RELUCID_PAPERS to their directory")
    text = (Path(os.environ["RELUCID_PAPERS"]) / FILES[paper]).read_text()
    kinds = "Theorem|Lemma|Proposition|Corollary|Definition|Algorithm|Table|Figure"
    found = set(re.findall(rf"^\**({kinds}) ((?:[A-Z]\.?)?\d+(?:\.\d+)?)\b", text, re.MULTILINE))
    found |= {
        ("Eq.", number) for number in re.findall(r"(?:\\tag\{|^ ?\()(\d+)[)}]\$*\$*$", text, re.MULTILINE)
    }
    listed = {
        (kind.removesuffix("s").replace("Fig.", "Figure"), number)
        for claim in CLAIMS
        if claim.paper == paper
        for kind, numbers in re.findall(r"([A-Z][a-z]+\.?) ((?:[A-Z]?\.?\d+(?:\.\d+)?(?:, )?)+)", claim.where)
        for number in numbers.rstrip(", ").split(", ")
    }
    assert len(found) > 10
    assert found <= listed


def filled(study, scale, values):
    cells = {
        (row, column): Cell(values[row], len(values[row]), {"finished": len(values[row])})
        for row in study.rows
        for column in study.columns
    }
    return Table(study, scale, cells, [])


def recorded(study, scale, values):
    return filled(study, scale, values).to_dict()


@pytest.mark.parametrize(
    "half, scale, state, figures",
    [
        ((5.0, 5.1), "full", "reproduced", "of 2 comparisons 2 hold"),
        ((5.0, 5.1), "small", "reproduced at small scale", "of 2 comparisons 2 hold"),
        (
            (15.0, 15.1),
            "small",
            "contradicted",
            "of 2 comparisons 2 hold the other way round, at small scale",
        ),
        ((5.0, 15.0), "small", "not told apart", "of 2 comparisons 2 cannot be told, at small scale"),
    ],
)
def test_the_state_of_a_claim_follows_from_the_recorded_results(
    tmp_path, monkeypatch, half, scale, state, figures
):
    monkeypatch.setitem(ledger["state"].__globals__, "RESULTS", tmp_path)
    claim, study = BY_PLACE["crelu Table 1"], built_in()["crelu/convpool"]
    assert ledger["state"](claim) == ("not run yet", "")
    values = dict.fromkeys(study.rows, (10.0, 10.1)) | {"CReLU (half)": half}
    (tmp_path / "crelu-convpool.json").write_text(json.dumps(recorded(study, scale, values)))
    assert ledger["state"](claim) == (state, figures)


def test_a_scale_of_which_runs_are_missing_does_not_decide(tmp_path, monkeypatch):
    monkeypatch.setitem(ledger["state"].__globals__, "RESULTS", tmp_path)
    claim, study = BY_PLACE["crelu Table 1"], built_in()["crelu/convpool"]
    lower, higher = (
        dict.fromkeys(study.rows, (10.0, 10.1)) | {"CReLU (half)": (x, x + 0.1)} for x in (5.0, 15.0)
    )
    full = recorded(study, "full", higher)
    (tmp_path / "crelu-convpool-small.json").write_text(json.dumps(recorded(study, "small", lower)))
    (tmp_path / "crelu-convpool.json").write_text(json.dumps(full))
    assert ledger["state"](claim)[0] == "contradicted"
    full["cells"][0]["runs"] += 1
    (tmp_path / "crelu-convpool.json").write_text(json.dumps(full))
    assert ledger["state"](claim)[0] == "reproduced at small scale"


@pytest.mark.parametrize("paired, outcome", [(False, None), (True, True)])
def test_paired_cells_are_compared_seed_by_seed(paired, outcome):
    study = built_in()["structure/depth"]
    values = dict.fromkeys(study.rows, (1.0, 2.0, 3.1)) | {"HB (11)": (0.9, 1.9, 2.99)}
    comparison = ledger["Comparison"]("HB (11)", "depth 30", "<", ("GD (7)", "depth 30"))
    assert comparison.outcome(filled(study, "small", values), paired) is outcome


def test_cells_of_which_a_seed_diverged_are_not_paired():
    study = built_in()["structure/depth"]
    table = filled(study, "small", dict.fromkeys(study.rows, (1.0, 2.0)) | {"HB (11)": (0.9, 1.9)})
    comparison = ledger["Comparison"]("HB (11)", "depth 30", "<", ("GD (7)", "depth 30"))
    assert comparison.outcome(table, paired=True)
    cells = {place: replace(cell, runs=3) for place, cell in table.cells.items()}
    assert comparison.outcome(replace(table, cells=cells), paired=True) is None


def test_some_that_hold_and_fewer_that_do_not_are_a_part():
    judged = ledger["_judged"]
    assert judged(Counter({True: 2, None: 1}), "full") == "reproduced in part"
    assert judged(Counter({True: 2, False: 1}), "small") == "reproduced in part"
    assert judged(Counter({True: 1, False: 1}), "full") == "contradicted in part"
    assert judged(Counter({False: 1, None: 6}), "small") == "contradicted in part"
    assert judged(Counter({False: 2}), "small") == "contradicted"


def test_what_takes_days_needs_a_gpu():
    assert ledger["state"](BY_PLACE["crelu Table 4"])[0] == "needs a GPU"
