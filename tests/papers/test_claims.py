"""What the claims name exists, and nothing that a paper numbers is left out."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from relucid.papers import PAPERS, statements, studies

TESTS = Path(__file__).parents[1]
CLAIMS = {
    f"{paper} {claim.where}": (claim, study)
    for paper in PAPERS
    for claim, study in [
        *((claim, study) for study in studies()[paper] for claim in study.claims),
        *((claim, None) for claim in statements()[paper]),
    ]
}


@cache
def functions(file):
    return {node.name for node in ast.parse((TESTS / file).read_text()).body if hasattr(node, "name")}


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


@pytest.mark.parametrize("place", CLAIMS)
def test_what_a_claim_names_exists(place):
    claim, study = CLAIMS[place]
    assert claim.code
    assert claim.tests or study, "nothing checks it"
    for name in claim.code:
        resolve(name)
    for test in claim.tests:
        file, _, function = test.partition("::")
        assert function in functions(file)


def test_places_are_listed_once():
    count = sum(len(study.claims) for found in studies().values() for study in found)
    assert len(CLAIMS) == count + sum(map(len, statements().values()))


@pytest.mark.parametrize("paper", ["crelu", "gmp", "structure"])
def test_every_numbered_statement_table_and_figure_of_a_paper_is_listed(paper, paper_text):
    kinds = "Theorem|Lemma|Proposition|Corollary|Definition|Algorithm|Table|Figure"
    text = paper_text(paper)
    found = set(re.findall(rf"^\**({kinds}) ((?:[A-Z]\.?)?\d+(?:\.\d+)?)\b", text, re.MULTILINE))
    found |= {
        ("Eq.", number) for number in re.findall(r"(?:\\tag\{|^ ?\()(\d+)[)}]\$*\$*$", text, re.MULTILINE)
    }
    listed = {
        (kind.removesuffix("s").replace("Fig.", "Figure"), number)
        for place in CLAIMS
        if place.startswith(paper)
        for kind, numbers in re.findall(r"([A-Z][a-z]+\.?) ((?:[A-Z]?\.?\d+(?:\.\d+)?(?:, )?)+)", place)
        for number in numbers.rstrip(", ").split(", ")
    }
    assert len(found) > 10
    assert found <= listed
