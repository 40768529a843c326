"""What every table of a room must be: a .py with studies, and an .md beside it that shows all of them."""

import re
from pathlib import Path

import pytest

from relucid.experiments import read
from relucid.experiments._catalog import built_in, rooms, statements, tables
from relucid.experiments._page import Archive

ROOT = Path(__file__).parents[2]
TABLES = [(room, table) for room in rooms() for table in tables(room)]
OUTCOMES = re.compile(r"\b(confirmed|reversed|absent|inconclusive|no detectable difference)\b", re.IGNORECASE)
EXPRESSIONS = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


@pytest.fixture(scope="module")
def records():
    return read(ROOT / "results")


def prose(table):
    return Path(table.__file__).with_suffix(".md").read_text(encoding="utf-8")


each_table = pytest.mark.parametrize(
    "table", [table for _, table in TABLES], ids=[f"{room}/{table.__name__.split('.')[-1]}" for room, table in TABLES]
)  # fmt: skip


@each_table
def test_every_page_renders(table, records):
    page = Archive(records).render(table)
    assert page.startswith("# ")
    assert "nan" not in re.findall(r"\w+", page)


@each_table
def test_every_study_of_a_table_is_shown(table):
    shown = set(re.findall(r"""show\(\s*["']([^"']+)""", prose(table)))
    assert {study.name for study in table.STUDIES} <= shown


@each_table
def test_no_outcome_is_typed_by_hand(table):
    assert not OUTCOMES.findall(EXPRESSIONS.sub("", prose(table)))


def test_no_two_studies_have_the_same_name():
    names = [study.name for _, table in TABLES for study in table.STUDIES]
    assert len(names) == len(set(names)) == len(built_in())


def test_what_checks_a_statement_exists():
    for room in rooms():
        for statement in statements(room):
            for test in statement.tests:
                file, _, function = test.partition("::")
                assert re.search(
                    rf"^def {function}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE
                ), test
