"""Tables of made-up figures, and the text of the papers."""

import os
from pathlib import Path

import pytest

from relucid.studies import Cell, Table, run, table
from relucid.studies import cells as plan_of
from relucid.studies.ledger import entry


@pytest.fixture
def filled():
    """A function that makes a table of a study with these values, by row and column, beside the published ones."""

    def fill(study, values, scale="small", runs=()):
        cells = {}
        for row in study.rows:
            for column in study.columns:
                found = {f"seed {seed}": float(value) for seed, value in enumerate(values(row, column))}
                figure = study.published.get(row, {}).get(column, (None, None))
                published = figure if isinstance(figure, tuple) else (figure, None)
                cells[row, column] = Cell(found, len(found), {"finished": len(found)}, published)
        return Table(study, scale, cells, with_keys(study, scale, runs))

    return fill


@pytest.fixture(scope="session")
def smoke_tested():
    """A function that runs a study's smoke test, or some of it, and returns its table; every run must finish."""

    def test(study, store, **part):
        run(study, "smoke", store=store, jobs=1, **part)
        found = table(study, "smoke", store=store, **part)
        assert found.runs
        assert [record["error"] for record in found.runs if record["state"] != "finished"] == []
        return found

    return test


def with_keys(study, scale, runs):
    """Made-up runs, each with the key of a planned run whose configuration agrees with what is given of its own."""
    planned = (
        {each.key: each.config for cell in plan_of(study, scale).values() for each in cell} if runs else {}
    )
    found = {}
    for number, record in enumerate(runs):
        keys = (
            key
            for key, config in planned.items()
            if key not in found and record["config"].items() <= config.items()
        )
        key = next(keys, f"made up {number}")
        config = planned.get(key, record["config"])
        found[key] = {"state": "finished", "metrics": {}, **record, "key": key, "config": config}
    return list(found.values())


@pytest.fixture
def standing():
    """A function that says how a claim of a table's study stands."""

    def stand(table, where):
        (claim,) = [claim for claim in table.study.claims if claim.where == where]
        return entry("", table.study, claim, table)

    return stand


@pytest.fixture(scope="session")
def paper_text():
    """A function that reads the text of a paper."""

    def read(paper):
        if not os.environ.get("RELUCID_PAPERS"):
            pytest.skip("needs the papers' texts: set RELUCID_PAPERS to their directory")
        return (Path(os.environ["RELUCID_PAPERS"]) / f"{paper}.txt").read_text()

    return read
