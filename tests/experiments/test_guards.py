"""What the laboratory said of every recorded table before it was redesigned, at 22e8fad: it says the same today."""

import hashlib
import json
import lzma
import math
from collections import Counter
from pathlib import Path

import pytest

from relucid.experiments import Results, read
from relucid.experiments._catalog import built_in
from relucid.experiments._ledger import ledger
from relucid.experiments._page import Archive, findings

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
PLANNED = json.loads((HERE / "planned-22e8fad.json").read_text(encoding="utf-8"))
JUDGED = [
    json.loads(line) for line in lzma.decompress((HERE / "judged-22e8fad.jsonl.xz").read_bytes()).splitlines()
]


@pytest.fixture(scope="session")
def studies():
    return built_in()


@pytest.fixture(scope="session")
def records():
    return read(RESULTS)


@pytest.fixture(scope="session")
def found(studies, records):
    """Every finding by study, scale and claim."""
    results = [
        Results(study, scale, records)
        for study in studies.values()
        for scale in study.scales
        if scale != "smoke"
    ]
    return {
        (of.study.name, of.scale, each.claim.where): each
        for of in results
        if of.records
        for each in findings(of)
    }


@pytest.mark.parametrize("place", PLANNED)
def test_each_study_plans_the_same_runs_in_the_same_cells(studies, place):
    name, scale = place.rsplit(" ", 1)
    cells = {}
    for planned in studies[name].plan(scale):
        cells.setdefault((planned.row, planned.column), []).append(planned.run.key)
    written = [[*cell, keys] for cell, keys in cells.items()]
    digest = hashlib.sha256(json.dumps(written).encode()).hexdigest()[:16]
    assert [sum(map(len, cells.values())), digest] == PLANNED[place]


def test_no_study_and_no_scale_is_lost(studies):
    assert {f"{name} {scale}" for name, study in studies.items() for scale in study.scales} >= PLANNED.keys()


def test_no_recorded_run_is_lost(records):
    assert len([key for key, record in records.items() if record["runner"] != "vote"]) >= 2037


def close(one, other, digits=1e-9):
    return one == other or math.isclose(one, other, rel_tol=digits, abs_tol=1e-12)


# Jeffreys' interval came from 10,000 quantiles and is exact now: it agrees to three digits.
ROUGH = ("share", "better, %")


@pytest.mark.parametrize(
    "was",
    JUDGED,
    ids=lambda was: " ".join(map(str.strip, (was["study"], was["scale"], was["where"], was["contrast"]))),
)
def test_each_contrast_is_judged_the_same(found, was):
    finding = found[was["study"], was["scale"], was["where"]]
    verdict = next(each for each in finding.verdicts if each.contrast.label == was["contrast"])
    comparison, rough = verdict.comparison, any(word in was["contrast"] for word in ROUGH)
    assert (verdict.outcome, finding.outcome) == (was["outcome"], was["claim"])
    assert (comparison is None) == ("effect" not in was)
    if comparison is not None:
        assert close(comparison.effect, was["effect"])
        assert rough or close(comparison.p, was["p"])
        if comparison.spread:
            low, high = comparison.interval(1 - was["level"])
            assert verdict.level == was["level"]
            assert close(low, was["low"], 2e-3)
            assert close(high, was["high"], 2e-3)


def test_no_claim_is_lost(found):
    assert {(was["study"], was["scale"], was["where"]) for was in JUDGED} <= found.keys()


def test_the_ledger_counts_as_before(studies, records):
    known = {(was["study"], was["where"]) for was in JUDGED}
    entries = [
        entry
        for entry in ledger(studies.values(), Archive(records))
        if entry.claim.kind == "experiment"
        and entry.finding
        and (entry.study.name, entry.claim.where) in known
    ]
    assert Counter(entry.finding.outcome for entry in entries) == {
        "confirmed": 39, "reversed": 11, "absent": 2, "inconclusive": 14, "no detectable difference": 23,
    }  # fmt: skip
