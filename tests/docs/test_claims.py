from evidence.claims import SHOWN, claims_page

from relucid.studies import Cell, Claim, Column, Lower, Study, Table
from relucid.studies.ledger import entries

COLUMNS = ("a", "b", "c", "d|e")
STUDY = Study(
    "s",
    "t",
    print,
    rows={"old": {}, "new": {}},
    columns={name: Column("error") for name in COLUMNS},
    paired=True,
    claims=(
        Claim("Table 1", "New errs less.", (Lower("new", than="old", columns=COLUMNS),), erratum="A slip."),
    ),
)


def page():
    values = {"old": (1.0, 2.0, 3.0), "new": (0.5, 1.49, 2.5)}
    cells = {
        (row, column): Cell(dict(zip("xyz", values[row], strict=True)), 3, {"finished": 3})
        for row in values
        for column in COLUMNS
    }
    statement = Claim(
        "Lemma 1", "It holds.", code=("relucid.nn.crelu",), tests=("nn/test_x.py::test_a_lemma_holds",)
    )
    found = entries({"p": (STUDY,)}, {"p": (statement,)}, [Table(STUDY, "full", cells, [])])
    return claims_page(found, {"p": "A paper"})


def test_what_studies_found_comes_before_what_tests_prove():
    text = page()
    places = [text.index(part) for part in ("What studies found", "Table 1", "What tests check", "Lemma 1")]
    assert places == sorted(places)
    assert "| holds | 1 | the effect" in text
    assert "| true | 1 |" in text
    assert "the opposite holds |" not in text.partition("## What studies found")[0]


def test_a_claim_has_its_first_comparisons_and_the_count_of_all():
    (line,) = [line for line in page().splitlines() if line.startswith("| Table 1")]
    assert "New errs less. **Erratum:** A slip. | **holds (4 of 4 hold)** | " in line
    assert line.count("new minus old, ") == SHOWN
    assert line.endswith("and 1 more | `s` |")


def test_a_test_is_shown_as_the_statement_that_it_is():
    assert "| **true** | a lemma holds (`nn/test_x.py`) | `nn.crelu` |" in page()
