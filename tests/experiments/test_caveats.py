"""Caveats by rule: every rule finds what it looks for, and looks at every claim alike."""

import inspect
from dataclasses import fields, replace

import pytest
from relucid.studies import Cell, Claim, Column, Lower, Outcome, Scale, Study, table
from relucid.studies.caveats import RULES, UNDERFITS, Evidence, caveats, choices
from relucid.studies.expect import Derived, Quantity
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


@pytest.fixture
def evidence(tmp_path, fill):
    """A function for the evidence of runs whose held-out error is lowest at a rate of 0.1, if they have one."""

    def evidence(scale="full", of=None, train_error=1.0, metrics=None, rates=None, place="runs"):
        of = of or study()
        history = {} if train_error is None else {"train_error": [50.0, train_error]}

        def outcome(config):
            seed = config["seed"]
            held = abs(config.get("lr", 0.1) - 0.1) * (100 + seed) + seed
            found = {"error": 9.0 + config["x"] + seed, "val_error": held, **(metrics or {})}
            return Outcome("finished", found, history, started="2026-01-01T00:00:00+00:00")

        fill(of, tmp_path / place, outcome, scale)
        return Evidence(of, of.claims[0], table(of, scale, store=tmp_path / place), rates)

    return evidence


def words(found):
    return [each.word for each in caveats(found)]


def test_a_claim_without_trouble_has_no_caveat(evidence):
    assert words(evidence()) == []


@pytest.mark.parametrize("error, found", [(UNDERFITS, []), (UNDERFITS + 1, ["underfit"])])
def test_a_training_error_above_the_limit_is_a_caveat(evidence, error, found):
    assert words(evidence(train_error=error)) == found


def test_below_the_papers_scale_an_unrecorded_training_error_is_one_too(evidence):
    assert "training error unknown" in words(evidence("cpu", train_error=None))
    assert words(evidence("full", train_error=None)) == []


def test_a_training_error_of_zero_is_known(evidence):
    assert "training error unknown" not in words(evidence("cpu", train_error=0.0))


def test_a_measure_of_fit_needs_no_training_error(evidence):
    found = words(evidence("cpu", train_error=None, metrics={"fitted": 40.0}))
    assert "training error unknown" not in found


def test_networks_of_another_depth_are_a_caveat_that_names_both(evidence):
    (found,) = caveats(evidence("cpu"))
    assert (found.word, found.text) == ("other size", "20 layers instead of 110")


def test_a_study_without_the_papers_scale_is_compared_with_the_papers_size(evidence):
    only = {"cpu": study().scales["cpu"]}
    (found,) = caveats(evidence("cpu", of=study(scales=only, paper={"depth": 56})))
    assert (found.word, found.text) == ("other size", "20 layers instead of 56")
    assert caveats(evidence("cpu", of=study(scales=only))) == ()


@pytest.mark.parametrize("grid, found", [((0.1, 0.3), ["rate at edge"]), ((0.03, 0.1, 0.3), [])])
def test_a_rate_at_the_edge_of_its_grid_is_a_caveat(evidence, grid, found):
    assert words(evidence(of=study(choose={"lr": grid}))) == found


def test_a_rate_chosen_by_less_than_the_noise_between_seeds_is_a_caveat(evidence):
    of = study(choose={"lr": (0.03, 0.1, 0.3)}, by="error")  # the error does not depend on the rate
    assert "rate by chance" in words(evidence(of=of))


@pytest.mark.parametrize("row", [{"hidden": (1, 2)}, {"net": {"width": 2}}])
def test_the_rates_of_a_row_with_lists_or_nested_settings_are_found(evidence, row):
    rows = {"old": {"x": 0, **row}, "new": {"x": 1, **row}}
    of = study(choose={"lr": RATES}, rows=rows, config={"net": {"depth": 1}})
    assert {choice.tried for choice in choices(evidence(of=of))} == {RATES}
    assert words(evidence(of=of)) == []


@pytest.mark.parametrize("choose", [{"optimizer": ["sgd", "adam"]}, {"dropout": [[0.2, 0.5], [0, 0]]}])
def test_only_numbers_that_were_chosen_have_an_edge(evidence, choose):
    assert choices(evidence(of=study(choose=choose))) == []


def test_rates_are_those_of_the_setting_that_a_claim_is_about(evidence):
    settings = {f"{rate}, {times}": (rate, times) for times in (1, 4) for rate in RATES}
    columns = {
        label: Column("val_error", {"times": times, "lr": rate}, tries=(f"{times}", rate), examples=5000)
        for label, (rate, times) in settings.items()
    }
    of = study(name="s-rates", columns=columns, claims=(), scales={"cpu": Scale()})
    errors = {1: (35.0, 30.0, 29.98), 4: (35.0, 30.0, 36.0)}  # by one image of 5,000 at the smaller batch
    cells = {
        (row, label): Cell({"0": errors[times][RATES.index(rate)]}, 1, {"finished": 1})
        for row in of.rows
        for label, (rate, times) in settings.items()
    }
    rates = replace(table(of, "cpu", store="nowhere"), cells=cells)
    for times, found in ((1, ["rate at edge", "rate by chance"]), (4, [])):
        shown = study(columns={"error": Column("error", {"times": times})})
        seen = words(evidence("cpu", of=shown, rates=rates, place=f"{times}"))
        assert [word for word in seen if word.startswith("rate")] == found


def test_the_cells_behind_a_quantity_are_those_that_it_is_computed_from(evidence):
    columns = {"error": Column("error"), "other": Column("val_error")}
    for columns_of, found in ((("other",), ["other"]), ((), ["error"])):
        quantity = Quantity("q", lambda _: {}, ("new",), columns_of)
        of = study(columns=columns, claims=(replace(CLAIM, expect=(Derived(quantity, "lower"),)),))
        assert evidence(of=of).places == [("new", column) for column in found]


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
def test_rates_of_another_study_are_judged_by_its_held_out_errors(evidence, errors, found):
    seen = words(evidence("cpu", rates=tuned(errors)))
    assert [word for word in seen if word.startswith("rate")] == found


def test_one_rate_that_another_study_has_tried_so_far_is_no_choice(evidence):
    rates = tuned((35.0, 30.0, 36.0))
    one = {place: replace(cell, states={}) for place, cell in rates.cells.items() if place[1] != "0.1"}
    assert choices(evidence("cpu", rates=replace(rates, cells={**rates.cells, **one}))) == []


def test_runs_that_choose_for_themselves_are_judged_by_what_most_of_them_chose(evidence):
    of = study(tries=RATES)
    assert words(evidence(of=of, metrics={"rate": [0.3, 0.3, 0.1]}, place="edge")) == ["rate at edge"]
    assert words(evidence(of=of, metrics={"rate": 0.3}, place="one each")) == ["rate at edge"]
    assert words(evidence(of=of, metrics={"rate": [0.1, 0.3, 0.1]}, place="middle")) == []


def test_splits_of_one_data_set_are_a_caveat(evidence):
    assert words(evidence(of=study(splits=("old", "new")))) == ["shared splits"]


def test_a_claim_stated_after_its_runs_says_so_with_the_date_and_one_tested_by_later_runs_does_not(evidence):
    after, before = (study(claims=(replace(CLAIM, stated=date),)) for date in ("2999-12-31", "2020-02-02"))
    (found,) = caveats(evidence(of=after))
    assert found.text == "stated on 2999-12-31, after its data"
    assert caveats(evidence(of=before)) == ()


def test_the_rates_are_found_by_the_name_that_the_scale_gives(evidence):
    found = evidence("cpu")
    (entry,) = entries({"p": (found.study,)}, {}, [found.table, tuned((35.0, 30.0, 29.98))])
    assert "rate by chance" in [each.word for each in entry.caveats]


def test_no_claim_has_caveats_of_its_own():
    assert "caveat" not in " ".join(field.name for field in fields(Claim))
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
        places = Evidence(entry.study, entry.claim, entry.table).places
        dates = {run["started"][:10] for place in places for run in entry.table.behind(*place)}
        assert ("post hoc" in found) == (min(dates) <= entry.claim.stated)
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
