"""Rates that a study fixes are those with the lowest held-out error, none of them at the edge of what was tried."""

from collections.abc import Mapping

import pytest

from relucid.experiments import Results
from relucid.experiments._catalog import built_in

TUNED = [(study, scale) for study in built_in().values() for scale in study.tuning]
TRIED = {tuning.name: tuning for study, _ in TUNED for tuning in study.tuning.values()}
HELD_OUT = {
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
    "times",
}
HELD_OUT |= {"train"}  # crelu/convpool-whole trains on all images, with the rates of a part


def rate_of(config):
    """The rate of a run; gmp's may have one per multiple of the batch size."""
    rate = config.get("rate") or config.get("lr") or config["recipe"]["lr"]
    return rate[str(config["times"])] if isinstance(rate, Mapping) else rate


def is_of(row, tuned):
    """Whether a row takes its rate from a tuned one: the same, or "Baseline, 2,560 images" from "Baseline"."""
    return row == tuned or row.startswith(f"{tuned}, ")


def means(results):
    """(row, setting) -> {rate: mean held-out error}."""
    errors = {}
    for row, label in results.cells:
        setting, rate = results.study.columns[label].tries
        if len(results[row, label]):
            errors.setdefault((row, setting), {})[rate] = results[row, label].mean()
    return errors


@pytest.mark.parametrize("study, scale", TUNED, ids=[f"{study.name} {scale}" for study, scale in TUNED])
def test_each_row_has_the_rate_of_the_lowest_held_out_error_and_others_were_tried_on_both_sides(
    study, scale, records
):
    tried = means(Results(study.tuning[scale], scale, records))
    assert tried
    plan = list(study.plan(scale))
    for (row, setting), errors in tried.items():
        columns = study.tuning[scale].columns.values()
        rates = [column.tries[1] for column in columns if column.tries[0] == setting]
        used = {
            rate_of(each.run.config)
            for each in plan
            if is_of(each.row, row) and each.column.endswith(setting)
        }
        assert used <= {min(errors, key=errors.get)}
        assert all(min(rates) < rate < max(rates) for rate in used)
    assert all(any(is_of(each.row, row) for row, _ in tried) for each in plan)


@pytest.mark.parametrize("study, scale", TUNED, ids=[f"{study.name} {scale}" for study, scale in TUNED])
def test_runs_that_choose_a_rate_are_those_of_the_study_but_for_what_is_held_out(study, scale):
    tuning, row = study.tuning[scale], next(planned.row for planned in study.plan(scale))
    here, there = (
        study.runs(scale, only=row),
        tuning.runs(scale, only=next(of for of in tuning.rows if is_of(row, of))),
    )
    config, tried = here[0].config, there[0].config
    assert {name for name in config.keys() | tried.keys() if config.get(name) != tried.get(name)} <= HELD_OUT
    recipes = [{**of.get("recipe", {}), "lr": None, "epochs": None} for of in (config, tried)]
    assert recipes[0] == recipes[1]
    assert {run.key for run in here}.isdisjoint(run.key for run in there)


@pytest.mark.parametrize("tuning", TRIED.values(), ids=TRIED)
def test_a_run_that_chooses_a_rate_measures_nothing_on_the_test_images(tuning, tmp_path, smoked):
    results = smoked(tuning, tmp_path, only=next(iter(tuning.rows)))
    assert {tuple(record["metrics"]) for record in results.records.values()} == {("val_error",)}
