"""Results of made-up values and of smoke scales, and the text of the papers."""

import os
from collections import Counter
from pathlib import Path

import pytest

from relucid.experiments import Results
from relucid.experiments import run as execute
from relucid.experiments._page import findings


@pytest.fixture
def filled():
    """A function that makes results whose cells have these values: `values(row, column, place of the repetition)`."""

    def fill(study, values, scale="full", history=lambda row, column, place: {}, missing=lambda run: False):
        records, places = {}, Counter()
        for planned in study.plan(scale):
            cell = planned.row, planned.column
            place, places[cell] = places[cell], places[cell] + 1
            state = "diverged" if missing(planned.run) else "finished"
            made = {"state": state, "metrics": {}, "history": {}, "started": "2026-01-01", "seconds": 0.0}
            run = planned.run
            record = records.setdefault(
                run.key, {"key": run.key, "runner": run.runner, "config": run.config} | made
            )
            if record["state"] == "finished":
                measured = values(*cell, place)
                measured = (
                    measured if isinstance(measured, dict) else {study.columns[cell[1]].metric: measured}
                )
                record["metrics"] |= measured
                record["history"] |= history(*cell, place)
        return Results(study, scale, records)

    return fill


@pytest.fixture
def found():
    """A function that returns what is found of a claim of a study."""

    def find(results, where):
        return next(finding for finding in findings(results) if finding.claim.where == where)

    return find


@pytest.fixture(scope="session")
def smoked():
    """A function that runs a study's smoke scale, or a row of it, and returns its results; every run must finish."""

    def smoke(study, store, **part):
        results = execute(study, "smoke", store=store, jobs=1, **part)
        assert results.records
        assert [run["error"] for run in results.records.values() if run["state"] != "finished"] == []
        return results

    return smoke


@pytest.fixture(scope="session")
def paper_text():
    """A function that reads the text of a paper."""

    def read(paper):
        if not os.environ.get("RELUCID_PAPERS"):
            pytest.skip("needs the papers' texts: set RELUCID_PAPERS to their directory")
        return (Path(os.environ["RELUCID_PAPERS"]) / f"{paper}.txt").read_text(encoding="utf-8")

    return read
