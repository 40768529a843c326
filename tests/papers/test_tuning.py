"""The rates of the scale "cpu": those with the lowest held-out error, none of them at the edge of what was tried."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from relucid.papers import built_in, recorded
from relucid.papers.gmp.images import learning_rate
from relucid.papers.tuning import chosen
from relucid.studies import plan
from relucid.studies.compare import detectable_errors

RESULTS = Path(__file__).parents[2] / "results"
RATES = [each for each in recorded(RESULTS) if each.study.name.endswith("-rates")]
TUNED = [name for name in built_in() if f"{name}-rates" in built_in()]


TIMES = {"batch B": 1, "batch 4B": 4}


def rate(config, setting=""):
    if setting:
        return learning_rate({**config, "times": TIMES[setting]})
    return config.get("lr") or config["recipe"]["lr"]


def test_every_study_with_rates_of_its_own_is_known():
    known = {
        "crelu/convpool",
        "crelu/vgg",
        "gmp/vgg6",
        "structure/cifar",
        "structure/cifar-deeper",
        "together",
    }
    assert set(TUNED) >= known


@pytest.mark.parametrize("name", TUNED)
def test_runs_that_choose_a_rate_are_those_of_the_study_but_for_what_is_held_out(name):
    study, rates = built_in()[name], built_in()[f"{name}-rates"]
    allowed = {
        "lr",
        "rate",
        "epochs",
        "recipe",
        "seed",
        "fold",
        "protocol",
        "held_out_only",
        "share",
        "dense",
    }
    here, there = plan(study, "cpu")[0].config, plan(rates, "cpu")[0].config
    assert {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)} <= allowed
    recipes = [config.get("recipe", {}) | {"lr": None, "epochs": None} for config in (here, there)]
    assert recipes[0] == recipes[1]
    epochs = [config.get("recipe", config)["epochs"] for config in (here, there)]
    assert epochs[1] == epochs[0] or f"in {epochs[1]} epochs" in rates.protocol
    assert {run.key for run in plan(study, "cpu")}.isdisjoint(run.key for run in plan(rates, "cpu"))


@pytest.mark.parametrize("name", TUNED)
def test_a_run_that_chooses_a_rate_measures_nothing_on_the_test_images(name, tmp_path, smoke_tested):
    study = built_in()[f"{name}-rates"]
    found = smoke_tested(study, tmp_path, only=next(iter(study.rows)))
    assert [set(record["metrics"]) for record in found.runs] == [{"val_error"}] * len(study.columns)


@pytest.mark.parametrize("tuned", RATES, ids=lambda tuned: f"{tuned.study.name} {tuned.scale}")
def test_each_row_has_the_rate_of_the_lowest_held_out_error_and_better_rates_were_looked_for_on_both_sides(
    tuned,
):
    study = built_in()[tuned.study.name.removesuffix("-rates")]
    rates = sorted(column.tries[1] for column in tuned.study.columns.values())
    for (row, setting), best in chosen(tuned).items():
        assert rate(study.at(tuned.scale).rows[row], setting) == best, (row, setting)
        assert rates[0] < best < rates[-1], (row, setting)


def test_every_row_and_setting_has_the_rate_of_its_lowest_error(tmp_path, smoke_tested):
    study = replace(built_in()["gmp/vgg6-rates"], run=held_out, claims=())
    best = chosen(smoke_tested(study, tmp_path))
    rows = ("SP", "BN", "GmP+IMN")
    assert best == {(row, batch): 0.03 * 10 ** (batch == "batch 4B") for row in rows for batch in TIMES}


def held_out(config):
    """Lowest at 0.03 with the smaller batches, at 0.3 with the larger."""
    return {"val_error": abs(math.log(config["rate"] / (0.3 if config["times"] == 4 else 0.03)))}


def test_the_protocol_of_together_quotes_the_held_out_error_of_its_baseline():
    study = built_in()["together"].at("cpu")
    (tuned,) = [each for each in RATES if each.study.name == "together-rates"]
    (best,) = (
        cell.mean for (row, column), cell in tuned.cells.items() if (row, column) == (study.baseline, "0.1")
    )
    assert f"a held-out error of {best:.0f}%" in study.protocol


def test_every_study_whose_rates_are_chosen_has_the_runs_that_chose_them():
    assert {f"{name}-rates" for name in TUNED} == {each.study.name for each in RATES}


@pytest.mark.parametrize("name", [*TUNED, "gmp/vgg6-bn"])
def test_a_protocol_has_the_difference_that_its_seeds_detect(name):
    study = built_in()[name]
    seeds = len(study.scales["cpu"].repeat["seed"])
    detectable = 0.5 * math.sqrt(2 / seeds) * detectable_errors(seeds - 1)
    assert f"difference of {detectable:.1f} points" in study.at("cpu").protocol
