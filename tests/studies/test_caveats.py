"""Caveats by rule: every rule finds what it looks for, and looks at every claim alike."""

import inspect
from dataclasses import fields, replace

import pytest

from relucid.studies import Cell, Claim, Column, Lower, Outcome, Scale, Store, Study, cells, table
from relucid.studies.caveats import RULES, UNDERFITS, Evidence, caveats
from relucid.studies.expect import Claim as AnyClaim
from relucid.studies.ledger import entries

CLAIM = Claim("Table 1", "New errs less.", (Lower("new", than="old", columns="error"),))
RATES = (0.03, 0.1, 0.3)


def study(**changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {"old": {"x": 0}, "new": {"x": 1}}, "paired": True,
        "columns": {"error": Column("error")}, "claims": (CLAIM,), "repeat": {"seed": range(3)},
        "scales": {"full": Scale({"depth": 110}), "cpu": Scale({"depth": 20}, tuned_by="s-rates"), "smoke": Scale()},
        "config": {"data": "cifar10"},
    }  # fmt: skip
    return Study(**{**settings, **changes})


def evidence(place, scale="full", of=None, train_error=1.0, metrics=None, rates=None):
    """The evidence of runs whose held-out error is lowest at a rate of 0.1, if they have one."""
    of = of or study()
    store = Store(place)
    for runs in cells(of, scale).values():
        for run in runs:
            held = abs(run.config.get("lr", 0.1) - 0.1) * (100 + run.config["seed"]) + run.config["seed"]
            found = {
                "error": 9.0 + run.config["x"] + run.config["seed"],
                "val_error": held,
                **(metrics or {}),
            }
            history = {} if train_error is None else {"train_error": [50.0, train_error]}
            store.put(run, Outcome("finished", found, history))
    store.close()
    return Evidence(of, of.claims[0], table(of, scale, store=place), rates)


def words(found):
    return [each.word for each in caveats(found)]


def test_a_claim_without_trouble_has_no_caveat(tmp_path):
    assert words(evidence(tmp_path)) == []


@pytest.mark.parametrize("error, found", [(UNDERFITS, []), (UNDERFITS + 1, ["underfit"])])
def test_a_training_error_above_the_limit_is_a_caveat(tmp_path, error, found):
    assert words(evidence(tmp_path, train_error=error)) == found


def test_below_the_papers_scale_an_unrecorded_training_error_is_one_too(tmp_path):
    assert "training error unknown" in words(evidence(tmp_path, "cpu", train_error=None))
    assert words(evidence(tmp_path, "full", train_error=None)) == []


def test_a_measure_of_fit_needs_no_training_error(tmp_path):
    found = words(evidence(tmp_path, "cpu", train_error=None, metrics={"fitted": 40.0}))
    assert "training error unknown" not in found


def test_networks_of_another_depth_are_a_caveat_that_names_both(tmp_path):
    (found,) = caveats(evidence(tmp_path, "cpu"))
    assert (found.word, found.text) == ("other size", "20 layers instead of 110")


@pytest.mark.parametrize("grid, found", [((0.1, 0.3), ["rate at edge"]), ((0.03, 0.1, 0.3), [])])
def test_a_rate_at_the_edge_of_its_grid_is_a_caveat(tmp_path, grid, found):
    assert words(evidence(tmp_path, of=study(choose={"lr": grid}))) == found


def test_a_rate_chosen_by_less_than_the_noise_between_seeds_is_a_caveat(tmp_path):
    of = study(choose={"lr": (0.03, 0.1, 0.3)}, by="error")  # the error does not depend on the rate
    assert "rate by chance" in words(evidence(tmp_path, of=of))


def tuned(errors):
    """The table of a study that has tried rates, with these held-out errors for both rows."""
    columns = {f"{rate}": Column("val_error", tries=("", rate), examples=5000) for rate in RATES}
    of = study(name="s-rates", columns=columns, claims=(), scales={"cpu": Scale()})
    made = {
        (row, f"{rate}"): Cell({} if error is None else {"0": error}, 1, {"finished": 1})
        for row in of.rows
        for rate, error in zip(RATES, errors, strict=True)
    }
    return replace(table(of, "cpu", store="nowhere"), cells=made)


@pytest.mark.parametrize(
    "errors, found",
    [
        ((35.0, 30.0, 36.0), []),
        ((35.0, 30.0, 29.98), ["rate at edge", "rate by chance"]),  # by one image of 5,000
        ((35.0, 30.0, None), []),  # a rate that diverged was tried, and is worse
        ((30.0, 35.0, 36.0), ["rate at edge"]),
    ],
)
def test_rates_of_another_study_are_judged_by_its_held_out_errors(tmp_path, errors, found):
    seen = words(evidence(tmp_path, "cpu", rates=tuned(errors)))
    assert [word for word in seen if word.startswith("rate")] == found


def test_runs_that_choose_for_themselves_are_judged_by_what_most_of_them_chose(tmp_path):
    of = study(tries=RATES)
    assert words(evidence(tmp_path / "edge", of=of, metrics={"rate": [0.3, 0.3, 0.1]})) == ["rate at edge"]
    assert words(evidence(tmp_path / "middle", of=of, metrics={"rate": [0.1, 0.3, 0.1]})) == []


def test_splits_of_one_data_set_are_a_caveat(tmp_path):
    assert words(evidence(tmp_path, of=study(splits=("old", "new")))) == ["shared splits"]


def test_a_claim_stated_after_its_data_says_so_with_the_date(tmp_path):
    of = study(claims=(replace(CLAIM, stated="2020-02-02"),))
    (found,) = caveats(evidence(tmp_path, of=of))
    assert found.text == "stated on 2020-02-02, after its data"


def test_the_rates_are_found_by_the_name_that_the_scale_gives(tmp_path):
    found = evidence(tmp_path, "cpu")
    (entry,) = entries({"p": (found.study,)}, {}, [found.table, tuned((35.0, 30.0, 29.98))])
    assert "rate by chance" in [each.word for each in entry.caveats]


def test_no_claim_has_caveats_of_its_own():
    assert "caveat" not in " ".join(field.name for field in fields(AnyClaim))
    assert all(list(inspect.signature(rule).parameters) == ["evidence"] for rule in RULES.values())


def test_every_rule_is_applied_to_every_claim_of_the_ledger(ledger):
    """Each rule once more, as plainly as can be, for every experiment that was judged."""
    seen = 0
    for entry in ledger.values():
        if not entry.counts:
            assert entry.caveats == ()
            continue
        seen += 1
        found = {each.word for each in entry.caveats}
        assert ("post hoc" in found) == bool(entry.claim.stated)
        rows = Evidence(entry.study, entry.claim, entry.table).rows
        assert ("shared splits" in found) == any(row in entry.study.splits for row in rows)
        errors = [
            run["metrics"].get("train_error") or run["history"]["train_error"][-1]
            for row in rows
            for column in entry.table.study.columns
            for run in entry.table.behind(row, column)
            if "train_error" in run["metrics"] or run.get("history", {}).get("train_error")
        ]
        if errors and min(errors) > UNDERFITS:
            assert "underfit" in found
        if not errors or max(errors) <= UNDERFITS:
            assert "underfit" not in found
        if entry.table.scale == "full":
            assert "other size" not in found
    assert seen > 40
