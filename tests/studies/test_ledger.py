import math
from dataclasses import replace
from typing import get_args

import pytest

from relucid.studies import Cell, Claim, Column, Lower, Scale, Study, Table
from relucid.studies.compare import HOLDS, OPEN, REVERSED, UNABLE, UNTOLD, Outcome
from relucid.studies.expect import Expected, Place
from relucid.studies.judge import Judged
from relucid.studies.ledger import STATES, best, counted, entries, entry, sentence, state

CLAIM = Claim("Table 1", "New errs less.", (Lower("new", than="old", columns=("a", "b")),))


def study(**changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {"old": {}, "new": {}}, "paired": True,
        "columns": {"a": Column("error"), "b": Column("error")}, "claims": (CLAIM,),
        "scales": {"full": Scale(seconds=1e6), "small": Scale(seconds=1), "smoke": Scale()},
    }  # fmt: skip
    return Study(**{**settings, **changes})


def table(new, scale="full", missing=0, **changes):
    values = {"old": (10.0, 10.1, 10.3), "new": new}
    cells = {
        (row, column): Cell(
            dict(zip("xyz", values[row], strict=True)), 3 + missing, {"finished": 3}, (None, None)
        )
        for row in ("old", "new")
        for column in ("a", "b")
    }
    return Table(study(**changes), scale, cells, [])


LOWER, HIGHER, SAME = (5.0, 5.1, 5.2), (15.0, 15.1, 15.2), (9.0, 10.2, 11.2)


@pytest.mark.parametrize(
    "new, scale, stands, counts",
    [
        (LOWER, "full", "reproduced", "of 2 comparisons 2 hold"),
        (LOWER, "small", "reproduced at small scale", "of 2 comparisons 2 hold"),
        (HIGHER, "small", "contradicted at small scale", "of 2 comparisons 2 hold the other way round"),
        (SAME, "full", "no difference found", "of 2 comparisons 2 no difference found"),
        (SAME, "small", "no difference found at small scale", "of 2 comparisons 2 no difference found"),
    ],
)
def test_the_state_of_a_claim_follows_from_the_recorded_results(new, scale, stands, counts):
    found = entry("ours", study(), CLAIM, table(new, scale))
    assert found.stands == stands
    assert counted(found.judged) == counts
    assert sentence(found).startswith(f"Table 1: {stands} ({counts}). new minus old, a: ")


def test_every_state_is_explained():
    outcomes = get_args(Outcome)
    found = {state(judged(one, other)) for one in outcomes for other in outcomes}
    assert found | {state([])} <= set(STATES)


def judged(*outcomes):
    return [Judged(Expected(Place("new", "a"), 0.0, "lower"), None, None, each) for each in outcomes]


@pytest.mark.parametrize(
    "outcomes, word",
    [
        ([HOLDS, HOLDS, UNTOLD], "reproduced in part"),
        ([HOLDS, HOLDS, REVERSED], "reproduced in part"),
        ([HOLDS, REVERSED], "contradicted in part"),
        ([REVERSED, UNTOLD, UNABLE], "contradicted in part"),
        ([REVERSED, REVERSED], "contradicted"),
        ([UNTOLD, UNTOLD], "not told apart"),
        ([UNTOLD, OPEN], "no difference found"),
        ([UNTOLD, OPEN, UNABLE], "cannot be told at this scale"),
        ([], "shown"),
    ],
)
def test_a_state_follows_from_the_outcomes(outcomes, word):
    assert state(judged(*outcomes)) == word


def test_the_largest_complete_scale_decides_and_never_a_smoke_test():
    full, small, smoke = (table(LOWER, scale) for scale in ("full", "small", "smoke"))
    missing = table(HIGHER, "full", missing=1)
    assert best(study(), [small, full]) is full
    assert best(study(), [small, missing]) is small
    assert best(study(), [missing, smoke]) is missing
    assert best(study(), [smoke]) is None


def test_cpu_decides_over_small_and_full_over_cpu_in_whatever_order_they_are_declared():
    tables = {scale: table(LOWER, scale) for scale in ("smoke", "small", "cpu", "full")}
    mine = study(scales={scale: Scale() for scale in tables})
    assert best(mine, [*tables.values()]) is tables["full"]
    assert best(mine, [tables["small"], tables["cpu"]]) is tables["cpu"]
    assert entry("ours", mine, CLAIM, tables["cpu"]).stands == "reproduced at cpu scale"


def test_what_has_not_been_run_is_ready_or_needs_a_gpu():
    assert entry("ours", study(), CLAIM, None).state == "ready to run"
    long = study(scales={"full": Scale(seconds=1e6)})
    assert entry("ours", long, CLAIM, None).state == "needs a GPU"
    assert entry("ours", study(scales={"full": Scale()}), CLAIM, None).state == "needs a GPU"


def test_what_belongs_to_a_claim_is_said_only_of_a_table_without_gaps():
    claim = replace(CLAIM, caveat=lambda table: "it is odd", remark=lambda table: "Look.")
    whole = table(LOWER, claims=(claim,))
    found = entry("ours", whole.study, claim, whole)
    assert (found.stands, found.remark) == ("reproduced; but it is odd", "Look.")
    assert sentence(found).endswith(" Look.")
    cells = {**whole.cells, ("old", "a"): Cell({}, 3, {})}
    found = entry("ours", whole.study, claim, Table(whole.study, "full", cells, []))
    assert (found.caveat, found.remark) == ("", "")


def test_statements_stand_by_their_tests():
    proved, refuted = Claim("Lemma 1", "It holds."), Claim("Lemma 2", "It does not.", holds=False)
    found = entries({"p": (study(),)}, {"p": (proved, refuted)}, [table(LOWER)])
    assert [(each.claim.where, each.state, each.empirical) for each in found] == [
        ("Table 1", "reproduced", True),
        ("Lemma 1", "checked by test", False),
        ("Lemma 2", "contradicted", False),
    ]


def test_every_comparison_is_told_with_effect_and_interval():
    found = table(LOWER)
    for each in found.judged["Table 1"]:
        assert str(each) in found.verdict
        assert math.isfinite(each.found.low)
        assert f"[{each.found.low:.2f}, {each.found.high:.2f}]" in str(each)
