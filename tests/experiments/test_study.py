import json
import pickle

import pytest

from relucid.experiments import Claim, Column, Run, Scale, Study, lower, merge, runner
from relucid.experiments._study import plain


def study(**changes):
    settings = {
        "name": "s",
        "title": "",
        "run": print,
        "rows": {"a": {"model": {"name": "mlp", "width": 2}}, "b": {"model": {"width": 1}}},
        "columns": {
            "error": Column("error"),
            "top5": Column("error5"),
            "fast": Column("error", {"epochs": 3}),
        },
        "config": {"epochs": 9, "model": {"name": "vgg"}},
        "repeat": {"seed": range(2)},
    }
    return Study(**{**settings, **changes})


def cells(study, scale=None, **part):
    runs = {}
    for planned in study.plan(scale, **part):
        runs.setdefault((planned.row, planned.column), []).append(planned.run)
    return runs


def test_later_settings_win_the_study_s_the_scale_s_the_column_s_the_row_s_the_repetition_s():
    planned = cells(study(scales={"small": Scale({"epochs": 5, "batch": 8})}))
    assert [run.config for run in planned["a", "fast"]] == [
        {"epochs": 3, "batch": 8, "model": {"name": "mlp", "width": 2}, "seed": seed} for seed in (0, 1)
    ]
    assert planned["b", "error"][0].config == {
        "epochs": 5, "batch": 8, "model": {"name": "vgg", "width": 1}, "seed": 0
    }  # fmt: skip


def test_columns_of_the_same_runs_share_them_and_every_cell_is_begun_before_any_is_repeated():
    planned = cells(study())
    assert [run.key for run in planned["a", "error"]] == [run.key for run in planned["a", "top5"]]
    runs = study().runs()
    assert len(runs) == 2 * 2 * 2  # rows, seeds, and two of three columns
    assert [run.config["seed"] for run in runs] == [0] * 4 + [1] * 4


def test_a_scale_shortens_what_is_repeated_and_seeds_can_be_asked_for():
    scales = {"full": Scale(), "smoke": Scale(repeat={"fold": [0], "lr": [0.1], "unused": [1]})}
    columns = {"average": Column("error", repeat={"fold": range(10)}), "single": Column("error")}
    tried = study(scales=scales, columns=columns, choose={"lr": [0.1, 0.01]})
    assert len(cells(tried)["a", "average"]) == 20
    assert len(cells(tried, "smoke")["a", "average"]) == 1
    assert len(cells(tried, "smoke")["a", "single"]) == 2
    assert len(cells(tried, "smoke", seeds=7)["a", "single"]) == 7
    assert len(cells(tried, "smoke", seeds=7)["a", "average"]) == 1


@pytest.mark.parametrize("asked, seeds", [(2, [10, 11]), (4, [10, 11, 21, 22])])
def test_fewer_seeds_are_the_first_and_more_continue_the_list(asked, seeds):
    planned = cells(study(repeat={"seed": [10, 11, 20]}), seeds=asked)["a", "error"]
    assert [run.config["seed"] for run in planned][:2] == seeds[:2]
    assert len({run.config["seed"] for run in planned}) == asked


def test_only_one_row_can_be_asked_for():
    assert {row for row, _ in cells(study(), only="b")} == {"b"}


def test_the_default_scale_is_small_else_cpu_else_the_first():
    assert study(scales={"full": Scale(), "small": Scale()}).default_scale == "small"
    assert study(scales={"full": Scale(), "cpu": Scale(), "smoke": Scale()}).default_scale == "cpu"
    assert study(scales={"full": Scale(), "smoke": Scale()}).default_scale == "full"
    named = {"smoke": Scale(), "small": Scale(), "cpu-four": Scale(), "full": Scale()}
    assert study(scales=named).largest_first() == ["full", "cpu-four", "small", "smoke"]


def test_a_scale_may_have_rows_of_its_own_with_their_settings_and_fewer_columns():
    scales = {"full": Scale(), "cpu": Scale(rows={"b": {"lr": 0.3}}, columns=["error"])}
    planned = cells(study(scales=scales), "cpu")
    assert list(planned) == [("b", "error")]
    assert planned["b", "error"][0].config["lr"] == 0.3


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"published": {("c", "error"): 1.0}}, "there is no row 'c' in what study 's' publishes; there are a, b"),
        ({"published": {("a", "eror"): 1.0}}, "did you mean 'error'"),
        ({"claims": [Claim("Table 1", "", lower("c", "a", "error"))]}, "no row 'c' in claim 'Table 1' of study 's'"),
        ({"scales": {"cpu": Scale(rows={"c": {}})}}, "no row 'c' in a scale of study 's'"),
        ({"scales": {"cpu": Scale(columns=["eror"])}}, "no column 'eror' in a scale of study 's'"),
        ({"name": ""}, "has no name"),
        ({"rows": {}}, "has no rows"),
        ({"columns": {}}, "has no columns"),
    ],
)  # fmt: skip
def test_a_wrong_study_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        study(**wrong)


def test_a_wrong_row_or_scale_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match="did you mean 'full'"):
        list(study().plan("ful"))
    with pytest.raises(ValueError, match="there are a, b"):
        list(study().plan(only="c"))


def test_what_runs_a_study_must_be_a_function():
    with pytest.raises(TypeError, match="it must be a function"):
        study(run="package.module:function")


def test_settings_must_be_arguments_and_arguments_must_be_set():
    def function(model, epochs, seed, lr=0.1, machine=None):
        return {}

    study(run=function).check()
    with pytest.raises(
        ValueError, match="row 'a' of study 's' has no argument 'epoch'; did you mean 'epochs'"
    ):
        study(run=function, config={"epoch": 1}).check()
    with pytest.raises(
        ValueError, match="row 'a' of study 's' has no setting 'epochs', which its function needs"
    ):
        study(run=function, config={}, columns={"error": Column("error")}).check()
    study(run=lambda **anything: {}).check()


def test_equal_configurations_are_the_same_run_however_they_are_written():
    one = Run("f", {"a": 1, "b": (1, 2.5), "c": {"x": None, "y": True}})
    assert one.key == Run("f", {"c": {"y": True, "x": None}, "b": [1.0, 2.5], "a": 1.0}).key
    # Keys name recorded runs: this one must never change.
    assert one.key == "aaee7906e9769bb3b923c3c0b9e4a7d2507919d05dccd6ba6916f04d2f251a5e"
    keys = {
        Run("f", {"a": 1}).key,
        Run("g", {"a": 1}).key,
        Run("f", {"a": 1}, 2).key,
        Run("f", {"a": 1.5}).key,
    }
    assert len(keys) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, {1, 2}, object(), b"bytes", int])
def test_values_that_json_lacks_are_refused_by_their_place(value):
    with pytest.raises(TypeError, match=r"config\.model\.width is "):
        _ = Run("f", {"model": {"width": [value]}}).key


def test_dataclasses_are_dictionaries_in_a_configuration():
    from relucid.train import Recipe

    recipe = plain({"recipe": Recipe(epochs=3, steps=(0.5,))})["recipe"]
    assert json.loads(json.dumps(recipe))["epochs"] == 3
    assert Recipe(**recipe).steps == [0.5]


def test_merging_leaves_what_it_merges_alone():
    one, other = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(one, other) == {"a": {"b": 1, "c": 2}}
    assert one == {"a": {"b": 1}}


@runner("lab/one")
def first(**config):
    return {"error": 1.0}


def test_runs_carry_the_runner_s_name_and_version_wherever_its_function_lives():
    def second(**config):
        return {"error": 2.0}

    one, moved, changed = (
        {run.key for run in study(run=made).runs()}
        for made in (first, runner("lab/one")(second), runner("lab/one", 2)(second))
    )
    assert one == moved
    assert not one & changed


def test_a_runner_and_a_study_with_it_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(first)).function is first.function
    assert pickle.loads(pickle.dumps(study(run=first))).runs() == study(run=first).runs()


def test_a_variant_keeps_what_is_published_of_its_rows_and_columns():
    whole = study(published={("a", "error"): 1.0, ("b", "error"): 2.0, ("a", "top5"): 3.0})
    part = whole.variant("t", rows={"a": {}}, columns={"error": Column("error")})
    assert (part.name, part.title, dict(part.published)) == ("t", whole.title, {("a", "error"): 1.0})
