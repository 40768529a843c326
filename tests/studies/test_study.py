import pytest

from relucid.studies import Claim, Column, Lower, Runner, Scale, Study, cells, plan
from relucid.studies.plan import Run, merge


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


def test_a_run_has_the_study_s_configuration_then_the_scale_s_the_column_s_the_row_s_and_its_place_in_the_grid():
    scales = {"small": Scale({"epochs": 5, "batch": 8})}
    found = cells(study(scales=scales))
    assert [run.config for run in found["a", "fast"]] == [
        {"epochs": 3, "batch": 8, "model": {"name": "mlp", "width": 2}, "seed": seed} for seed in (0, 1)
    ]
    assert found["b", "error"][0].config == {
        "epochs": 5, "batch": 8, "model": {"name": "vgg", "width": 1}, "seed": 0
    }  # fmt: skip


def test_columns_that_look_at_the_same_runs_share_them():
    found = cells(study())
    assert [run.key for run in found["a", "error"]] == [run.key for run in found["a", "top5"]]
    assert len(plan(study())) == 2 * 2 * 2  # rows, seeds, and two of three columns


def test_the_plan_begins_with_one_run_of_every_cell():
    assert [run.config["seed"] for run in plan(study())] == [0] * 4 + [1] * 4


def test_a_scale_shortens_what_is_varied_and_seeds_can_be_asked_for():
    scales = {"full": Scale(), "smoke": Scale(repeat={"fold": [0], "lr": [0.1], "unused": [1]})}
    columns = {"average": Column("error", repeat={"fold": range(10)}), "single": Column("error")}
    tried = study(scales=scales, columns=columns, choose={"lr": [0.1, 0.01]})
    assert len(cells(tried)["a", "average"]) == 20
    assert len(cells(tried, "smoke")["a", "average"]) == 1
    assert len(cells(tried, "smoke")["a", "single"]) == 2
    assert len(cells(tried, "smoke", seeds=7)["a", "single"]) == 7
    assert len(cells(tried, "smoke", seeds=7)["a", "average"]) == 1


@pytest.mark.parametrize("asked, seeds", [(2, [10, 11]), (4, [10, 11, 20, 21])])
def test_a_pilot_has_the_first_of_the_planned_seeds_and_more_of_them_continue_the_list(asked, seeds):
    own = study(repeat={"seed": [10, 11, 20]})
    assert [run.config["seed"] for run in cells(own, seeds=asked)["a", "error"]] == seeds


def test_only_one_row_can_be_asked_for():
    assert {row for row, _ in cells(study(), only="b")} == {"b"}


def test_small_is_what_is_run_where_no_scale_is_named_else_cpu_else_the_first():
    assert study(scales={"full": Scale(), "small": Scale()}).default_scale == "small"
    assert study(scales={"full": Scale(), "cpu": Scale(), "smoke": Scale()}).default_scale == "cpu"
    assert study(scales={"full": Scale(), "smoke": Scale()}).default_scale == "full"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"baseline": "c"}, "no baseline 'c' in study 's'; there are a, b"),
        ({"published": {"c": {}}}, "no published row 'c'"),
        ({"published": {"a": {"eror": 1.0}}}, "did you mean 'error'"),
    ],
)
def test_names_in_a_study_must_exist(wrong, message):
    with pytest.raises(ValueError, match=message):
        study(**wrong)


@pytest.mark.parametrize("what, nothing", [("name", ""), ("rows", {}), ("columns", {})])
def test_a_study_without_a_name_rows_or_columns_is_refused(what, nothing):
    with pytest.raises(ValueError, match=f"has no {what}"):
        study(**{what: nothing})


def test_a_wrong_row_or_scale_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match="did you mean 'full'"):
        plan(study(), "ful")
    with pytest.raises(ValueError, match="there are a, b"):
        plan(study(), only="c")


def test_equal_configurations_are_the_same_run_however_they_are_written():
    one = Run("f", {"a": 1, "b": (1, 2.5), "c": {"x": None, "y": True}})
    assert one.key == Run("f", {"c": {"y": True, "x": None}, "b": [1.0, 2.5], "a": 1.0}).key
    assert one.canonical == '{"config":{"a":1,"b":[1,2.5],"c":{"x":null,"y":true}},"runner":"f","version":1}'


def test_another_runner_version_or_value_is_another_run():
    keys = {
        Run("f", {"a": 1}).key,
        Run("g", {"a": 1}).key,
        Run("f", {"a": 1}, 2).key,
        Run("f", {"a": 1.5}).key,
    }
    assert len(keys) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, {1, 2}, object(), b"bytes", int])
def test_values_that_json_lacks_are_refused_by_their_place(value):
    with pytest.raises(TypeError, match=r"config\.config\.model\.width is "):
        _ = Run("f", {"model": {"width": [value]}}).key


def test_dataclasses_are_dictionaries_in_a_configuration():
    from relucid.train import Recipe

    config = Run("f", {"recipe": Recipe(epochs=3, steps=(0.5,))}).config
    assert Recipe(**config["recipe"]) == Recipe(epochs=3, steps=[0.5], table=[], augment=[], warmup=[])


def test_merging_leaves_what_it_merges_alone():
    one, other = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(one, other) == {"a": {"b": 1, "c": 2}}
    assert one == {"a": {"b": 1}}


def test_the_runs_of_a_runner_carry_its_name_and_version_wherever_its_function_lives():
    def first(config):
        return {"error": 1.0}

    def second(config):
        return {"error": 2.0}

    one, moved, changed = (
        {run.key for run in plan(study(run=runner))}
        for runner in (Runner("lab/one", first), Runner("lab/one", second), Runner("lab/one", second, 2))
    )
    assert one == moved
    assert not one & changed
    assert {(run.runner, run.version) for run in plan(study(run=Runner("lab/one", first, 3)))} == {
        ("lab/one", 3)
    }


def test_a_run_function_needs_a_name():
    with pytest.raises(TypeError, match="a function, or a Runner"):
        study(run="package.module:function")


def narrow(**scale):
    claims = (
        Claim("both", "a is lower", (Lower("a", than="b", columns=("error", "fast")),)),
        Claim("other", "fast is lower", (Lower("a", columns="fast", than_column="error"),)),
        Claim("shown", "nothing is compared"),
    )
    published = {"a": {"error": 1.0, "fast": 2.0}, "b": {"error": 3.0}}
    return study(
        scales={"full": Scale(), "cpu": Scale(**scale)}, claims=claims, published=published, baseline="b"
    )


def test_a_scale_may_have_rows_of_its_own_each_with_its_own_settings():
    found = narrow(rows={"b": {"lr": 0.3}}, protocol="At cpu scale: b alone.")
    planned = cells(found, "cpu")
    assert {row for row, _ in planned} == {"b"}
    assert planned["b", "error"][0].config["lr"] == 0.3
    assert {row for row, _ in cells(found, "full")} == {"a", "b"}
    here = found.at("cpu")
    assert (here.baseline, here.published, here.protocol) == (
        "b",
        {"b": {"error": 3.0}},
        "At cpu scale: b alone.",
    )
    assert [claim.where for claim in here.claims] == ["shown"]
    assert found.at("full") == found


def test_a_scale_with_fewer_columns_has_what_the_claims_say_of_them():
    here = narrow(columns=("error",)).at("cpu")
    assert list(here.columns) == ["error"]
    assert here.published == {"a": {"error": 1.0}, "b": {"error": 3.0}}
    assert {claim.where: [each.label for each in claim.comparisons()] for claim in here.claims} == {
        "both": ["a minus b, error"],
        "shown": [],
    }
    assert here.at("cpu") == here


@pytest.mark.parametrize(
    "wrong, message", [({"rows": {"c": {}}}, "no row"), ({"columns": ["eror"]}, "no column")]
)
def test_names_in_a_scale_must_exist(wrong, message):
    with pytest.raises(ValueError, match=message):
        narrow(**wrong)
