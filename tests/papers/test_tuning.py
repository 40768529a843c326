"""The rates of the scale "cpu": those with the lowest held-out error, none of them at the edge of what was tried."""

import math
from pathlib import Path

import pytest

from relucid.papers import built_in, recorded
from relucid.papers.tuning import UNTUNED, chosen
from relucid.studies import plan, run, table
from relucid.studies.compare import detectable_errors

RESULTS = Path(__file__).parents[2] / "results"
RATES = {each.study.name: each for each in recorded(RESULTS) if each.study.name.endswith("-rates")}
TUNED = [name for name in built_in() if f"{name}-rates" in built_in()]


def rate(config):
    return config.get("lr") or config["recipe"]["lr"]


def test_every_study_with_rates_of_its_own_is_known():
    assert set(TUNED) >= {"crelu/convpool", "structure/cifar", "structure/cifar-deeper", "together"}


@pytest.mark.parametrize("name", TUNED)
def test_runs_that_choose_a_rate_are_those_of_the_study_but_for_what_is_held_out(name):
    study, rates = built_in()[name], built_in()[f"{name}-rates"]
    allowed = {"lr", "recipe", "seed", "fold", "protocol", "held_out_only", "share", "dense"}
    here, there = plan(study, "cpu")[0].config, plan(rates, "cpu")[0].config
    assert {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)} <= allowed
    recipes = [config.get("recipe", {}) | {"lr": None, "epochs": None} for config in (here, there)]
    assert recipes[0] == recipes[1]
    epochs = [config["recipe"]["epochs"] for config in (here, there) if "recipe" in config]
    assert not epochs or epochs[1] == epochs[0] or f"in {epochs[1]} epochs" in rates.protocol
    assert {run.key for run in plan(study, "cpu")}.isdisjoint(run.key for run in plan(rates, "cpu"))


@pytest.mark.parametrize("name", TUNED)
def test_a_run_that_chooses_a_rate_measures_nothing_on_the_test_images(name, tmp_path):
    study = built_in()[f"{name}-rates"]
    row = next(iter(study.rows))
    run(study, "smoke", only=row, store=tmp_path, jobs=1)
    found = table(study, "smoke", only=row, store=tmp_path)
    assert {record["state"] for record in found.runs} == {"finished"}
    assert [set(record["metrics"]) for record in found.runs] == [{"val_error"}] * len(study.columns)


@pytest.mark.parametrize("name", [name for name in TUNED if f"{name}-rates" in RATES])
def test_each_row_has_the_rate_of_the_lowest_held_out_error_and_better_rates_were_looked_for_on_both_sides(
    name,
):
    tuned, study = RATES[f"{name}-rates"], built_in()[name]
    tried = sorted(map(float, tuned.study.columns))
    for row, best in chosen(tuned).items():
        assert rate(study.at("cpu").rows[row]) == best, row
        assert tried[0] < best < tried[-1], row


@pytest.mark.parametrize("name", TUNED)
def test_a_protocol_says_so_until_the_rates_have_been_tried(name):
    assert (UNTUNED in built_in()[name].at("cpu").protocol) == (f"{name}-rates" not in RATES)


@pytest.mark.parametrize("name", TUNED)
def test_a_protocol_tells_the_difference_that_its_seeds_detect(name):
    study = built_in()[name]
    seeds = len(study.scales["cpu"].repeat["seed"])
    detectable = 0.5 * math.sqrt(2 / seeds) * detectable_errors(seeds - 1)
    assert f"difference of {detectable:.1f} points" in study.at("cpu").protocol
