"""Caveats by rule: every rule sees what it looks for, and looks at every claim alike."""

import inspect

import pytest

from relucid.experiments import Cell, Claim, Column, Contrast, Quantity, Scale, Study, _caveats, lower
from relucid.experiments._catalog import built_in
from relucid.experiments._caveats import UNDERFITS, caveats

CLAIM = Claim("Table 1", "New has a lower error.", lower("new", "old", "error"))
RATES = (0.03, 0.1, 0.3)


def study(**changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {"old": {"x": 0}, "new": {"x": 1}},
        "columns": {"error": Column("error")}, "claims": [CLAIM], "repeat": {"seed": range(3)},
        "scales": {"full": Scale({"depth": 110}), "cpu": Scale({"depth": 20}), "smoke": Scale()},
        "config": {"data": "cifar10"},
    }  # fmt: skip
    return Study(**{**settings, **changes})


@pytest.fixture
def words(filled):
    """A function for the caveats of runs whose held-out error is lowest at a rate of 0.1, if they have one."""

    def words(scale="full", of=None, train_error=1.0, metrics=None):
        of = of or study()

        def outcome(config):
            seed = config["seed"]
            held = abs(config.get("lr", 0.1) - 0.1) * (100 + seed) + seed
            measured = {"error": 9.0 + config["x"] + seed, "val_error": held, **(metrics or {})}
            history = {} if train_error is None else {"train_error": [50.0, train_error]}
            return {"metrics": measured, "history": history}

        results = filled(of, outcome, scale)
        return caveats(of.claims[0], results)

    return words


def test_a_claim_without_trouble_has_no_caveat(words):
    assert words() == {}


@pytest.mark.parametrize("error, expected", [(UNDERFITS, []), (UNDERFITS + 1, ["underfit"])])
def test_a_training_error_above_the_limit_is_a_caveat(words, error, expected):
    assert list(words(train_error=error)) == expected


def test_below_the_papers_scale_an_unrecorded_training_error_is_one_too(words):
    assert "training error unknown" in words("cpu", train_error=None)
    assert words("full", train_error=None) == {}
    assert "training error unknown" not in words("cpu", train_error=0.0)
    assert "training error unknown" not in words("cpu", train_error=None, metrics={"fitted": 40.0})


def test_networks_of_another_depth_are_a_caveat_that_names_both(words):
    assert words("cpu") == {"other size": "Smaller than published: 20 layers instead of 110."}
    only = {"cpu": Scale({"depth": 20})}
    against = words("cpu", of=study(scales=only, paper={"depth": 56}))
    assert against == {"other size": "Smaller than published: 20 layers instead of 56."}
    assert words("cpu", of=study(scales=only)) == {}


@pytest.mark.parametrize("grid, expected", [((0.1, 0.3), ["rate at edge"]), (RATES, [])])
def test_a_rate_at_the_edge_of_its_grid_is_a_caveat(words, grid, expected):
    assert list(words(of=study(choose={"lr": grid}))) == expected


def test_a_rate_chosen_by_less_than_the_noise_between_seeds_is_a_caveat(words):
    of = study(choose={"lr": RATES}, by="error")  # the error does not depend on the rate
    assert "rate by chance" in words(of=of)


@pytest.mark.parametrize("choose", [{"optimizer": ["sgd", "adam"]}, {"dropout": [[0.2, 0.5], [0, 0]]}])
def test_only_numbers_that_were_chosen_have_an_edge(words, choose):
    assert words(of=study(choose=choose)) == {}


@pytest.mark.parametrize("times, expected", [(1, ["rate at edge", "rate by chance"]), (4, [])])
def test_rates_are_those_that_another_study_tried_in_the_setting_of_the_claim(filled, times, expected):
    settings = {f"{rate}, {many}": (rate, many) for many in (1, 4) for rate in RATES}
    columns = {
        label: Column("val_error", {"times": many, "lr": rate}, tries=(f"{many}", rate), examples=5000)
        for label, (rate, many) in settings.items()
    }
    tuning = study(name="s-rates", columns=columns, claims=[], scales={"cpu": Scale()}, repeat={"seed": [0]})
    of = study(columns={"error": Column("error", {"times": times})}, tuning={"cpu": tuning})
    errors = {1: (35.0, 30.0, 29.98), 4: (35.0, 30.0, 36.0)}  # by one image of 5,000 in the first setting
    tried = filled(tuning, lambda at: {"val_error": errors[at["times"]][RATES.index(at["lr"])]}, "cpu")
    shown = filled(of, lambda at: {"metrics": {"error": 1.0}, "history": {"train_error": [1.0]}}, "cpu")
    results = type(shown)(of, "cpu", {**shown.records, **tried.records})
    found = caveats(of.claims[0], results)
    assert [word for word in found if word.startswith("rate")] == expected


def test_every_run_may_choose_its_rate_by_itself(filled):
    of = study(tries=RATES)
    results = filled(of, lambda at: {"error": 1.0, "rate": [0.3, 0.3, 0.1]}, "full")
    assert caveats(CLAIM, results) == {"rate at edge": "Rates at the edge of those tried: 0.3 (new; old)."}


def test_splits_of_one_data_set_and_late_claims_are_caveats(words):
    assert list(words(of=study(splits=["new"]))) == ["shared splits"]
    late = Claim("late", "", lower("new", "old", "error"), stated="2026-01-01")
    assert words(of=study(claims=[late])) == {"post hoc": "Stated on 2026-01-01, with the data in view."}
    early = Claim("early", "", lower("new", "old", "error"), stated="2025-12-31")
    assert words(of=study(claims=[early])) == {}


def test_the_cells_behind_a_quantity_are_those_that_it_names(filled):
    of = study(tries=RATES, columns={"error": Column("error"), "other": Column("error", {"more": 1})})
    quantity = Quantity("q", [Cell("new", "other")], lambda other: other)
    results = filled(of, lambda at: {"error": 1.0, "rate": 0.3 if "more" in at else 0.03})
    found = caveats(Claim("", "", [Contrast(quantity, 0.0, "lower")]), results)
    assert found["rate at edge"] == "Rates at the edge of those tried: 0.3 (new)."


def test_no_rule_knows_a_study_by_its_name():
    source = inspect.getsource(_caveats)
    assert not [name for name in built_in() if f'"{name}"' in source]
