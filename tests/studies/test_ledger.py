import math
from dataclasses import replace
from typing import get_args

import pytest

from relucid.studies import Cell, Claim, Column, Lower, Scale, Study, Table
from relucid.studies.compare import HOLDS, NO_DIFFERENCE, NO_EFFECT, REVERSED, UNDECIDED, Verdict
from relucid.studies.expect import Expected, Place
from relucid.studies.judge import Judged
from relucid.studies.ledger import STATES, best, counted_outcomes, entries, entry, sentence, state

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
    "new, scale, stands",
    [
        (LOWER, "full", "holds (2 of 2 hold)"),
        (LOWER, "small", "holds (2 of 2 hold) at small scale"),
        (HIGHER, "small", "the opposite holds (2 of 2 the opposite) at small scale"),
        (SAME, "full", "no difference found (2 of 2 no difference found)"),
        (SAME, "small", "no difference found (2 of 2 no difference found) at small scale"),
    ],
)
def test_the_state_of_a_claim_follows_from_the_recorded_results(new, scale, stands):
    found = entry("ours", study(), CLAIM, table(new, scale))
    assert found.stands == stands
    assert sentence(found).startswith(f"Table 1: {stands}. new minus old, a: ")


def test_every_state_is_explained():
    outcomes = get_args(Verdict)
    found = {state(judged(one, other)) for one in outcomes for other in outcomes}
    assert found | {state([])} <= set(STATES)


def judged(*outcomes):
    return [Judged(Expected(Place("new", "a"), 0.0, "lower"), None, each) for each in outcomes]


@pytest.mark.parametrize(
    "outcomes, word, counts",
    [
        ([HOLDS, HOLDS, NO_EFFECT], HOLDS, "2 of 3 hold, 1 no such effect"),
        ([HOLDS, REVERSED], UNDECIDED, "1 of 2 hold, 1 the opposite"),
        ([REVERSED, NO_EFFECT, UNDECIDED], UNDECIDED, "1 of 3 the opposite, 1 no such effect, 1 undecided"),
        ([REVERSED, REVERSED], REVERSED, "2 of 2 the opposite"),
        ([HOLDS] * 3 + [NO_DIFFERENCE] * 15, NO_DIFFERENCE, "3 of 18 hold, 15 no difference found"),
        (
            [HOLDS] * 7 + [REVERSED] * 5 + [NO_DIFFERENCE] * 36,
            NO_DIFFERENCE,
            "7 of 48 hold, 5 the opposite, 36 no difference found",
        ),
        ([], "shown", ""),
    ],
)
def test_the_state_is_what_most_comparisons_support_and_all_are_counted(outcomes, word, counts):
    assert state(judged(*outcomes)) == word
    assert counted_outcomes(judged(*outcomes)) == counts


def test_the_largest_complete_scale_decides_and_never_a_smoke_test():
    full, small, smoke = (table(LOWER, scale) for scale in ("full", "small", "smoke"))
    missing = table(HIGHER, "full", missing=1)
    assert best(study(), [small, full]) is full
    assert best(study(), [small, missing]) is small
    assert best(study(), [missing, smoke]) is missing
    assert best(study(), [smoke]) is None


def test_cpu_decides_over_small_and_full_over_cpu_in_whatever_order_they_are_declared():
    scales = {scale: Scale() for scale in ("smoke", "small", "cpu", "full")}
    mine, tables = study(scales=scales), {scale: table(LOWER, scale, scales=scales) for scale in scales}
    assert best(mine, [*tables.values()]) is tables["full"]
    assert best(mine, [tables["small"], tables["cpu"]]) is tables["cpu"]
    assert entry("ours", mine, CLAIM, tables["cpu"]).stands == "holds (2 of 2 hold) at cpu scale"


def test_a_claim_without_results_is_not_run_or_needs_a_gpu():
    assert entry("ours", study(), CLAIM, None).state == "not run"
    long = study(scales={"full": Scale(seconds=1e6)})
    assert entry("ours", long, CLAIM, None).state == "needs a GPU"
    assert entry("ours", study(scales={"full": Scale()}), CLAIM, None).state == "needs a GPU"


def test_a_remark_belongs_to_a_table_without_gaps():
    claim = replace(CLAIM, remark=lambda table: "Look.")
    whole = table(LOWER, claims=(claim,))
    found = entry("ours", whole.study, claim, whole)
    assert (found.stands, found.remark) == ("holds (2 of 2 hold)", "Look.")
    assert sentence(found).endswith(" Look.")
    cells = {**whole.cells, ("old", "a"): Cell({}, 3, {})}
    found = entry("ours", whole.study, claim, Table(whole.study, "full", cells, []))
    assert found.remark == ""


@pytest.mark.parametrize("kind", ["mathematics", "construction"])
def test_a_theorem_or_a_construction_is_true_or_false_and_is_not_counted(kind):
    claim = replace(CLAIM, kind=kind)
    true, false = (
        entry("ours", study(claims=(claim,)), claim, table(new, claims=(claim,))) for new in (LOWER, HIGHER)
    )
    assert (true.state, false.state) == ("true", "false as stated")
    assert not true.counts
    assert entry("ours", study(), CLAIM, table(LOWER)).counts


def test_a_scale_that_cannot_answer_a_claim_does_not_judge_it():
    without = table(LOWER, "small")
    empty = {place: Cell({}, 3, {"finished": 3}) for place in without.cells}
    found = entries({"p": (study(),)}, {}, [Table(without.study, "small", empty, [])])
    assert found[0].state == "not run"


def test_a_claim_that_no_scale_can_answer_any_more_is_undecided_and_has_been_run():
    only = {"scales": {"small": Scale(seconds=1), "smoke": Scale()}}
    found = table(LOWER, "small", **only)
    diverged = {
        place: replace(cell, samples={"x": 5.0}, states={"finished": 1, "diverged": 2})
        if place[0] == "new"
        else cell
        for place, cell in found.cells.items()
    }
    lost = replace(found, cells=diverged)
    (undecided,) = entries({"ours": [study(**only)]}, {}, [lost])
    assert (undecided.state, undecided.table) == (UNDECIDED, lost)
    (left,) = entries({"ours": [study()]}, {}, [replace(lost, study=study())])
    assert left.table is None


def test_statements_stand_by_their_tests():
    proved, refuted = Claim("Lemma 1", "It holds."), Claim("Lemma 2", "It does not.", holds=False)
    found = entries({"p": (study(),)}, {"p": (proved, refuted)}, [table(LOWER)])
    assert [(each.claim.where, each.state, each.empirical) for each in found] == [
        ("Table 1", "holds", True),
        ("Lemma 1", "true", False),
        ("Lemma 2", "false as stated", False),
    ]


def test_every_comparison_has_its_effect_and_interval():
    found = table(LOWER)
    for each in found.judged["Table 1"]:
        assert str(each) in found.verdict
        assert math.isfinite(each.found.low)
        assert f"[{each.found.low:.2f}, {each.found.high:.2f}]" in str(each)
