import csv
import io
import json

import numpy as np
import pytest
from scipy import stats

from relucid.studies import FORMATS, Claim, Column, Lower, Outcome, Store, Study, Table, cells, table
from relucid.studies.estimate import estimate
from relucid.studies.formats import cell_text, legend
from relucid.studies.study import Scale


def simple(**changes):
    settings = {
        "name": "s", "title": "t", "run": print, "rows": {"base": {"x": 0.0}, "other": {"x": 5.0}},
        "columns": {"error": Column("error", digits=1)}, "repeat": {"seed": range(4)}, "baseline": "base",
    }  # fmt: skip
    return Study(**{**settings, **changes})


@pytest.fixture
def tabulated(tmp_path, fill):
    """A function that puts outcomes into a store and returns the table."""

    def tabulated(study, outcome):
        fill(study, tmp_path, outcome)
        return table(study, store=tmp_path)

    return tabulated


def test_a_cell_has_the_mean_of_its_runs_and_its_standard_error(tabulated):
    found = tabulated(simple(), lambda config: {"error": config["x"] + config["seed"]})
    cell = found.cells["other", "error"]
    assert cell.values == (5, 6, 7, 8)
    assert cell.mean == 6.5
    assert cell.error == pytest.approx(stats.sem([5, 6, 7, 8]))


def test_the_splits_of_a_run_count_as_values(tabulated):
    found = tabulated(simple(repeat={}), lambda config: {"error": [1.0, 2.0, 3.0]})
    assert found.cells["base", "error"].values == (1, 2, 3)


def test_a_cell_counts_runs_that_are_missing_diverged_or_failed(tabulated):
    kinds = [{"error": 1.0}, Outcome("diverged", error="nan"), Outcome("failed", error="no"), None]
    found = tabulated(simple(), lambda config: kinds[config["seed"]] if config["x"] else None).cells
    assert dict(found["other", "error"].states) == {"finished": 1, "diverged": 1, "failed": 1}
    assert cell_text(found["other", "error"], Column("error")) == "1.00 (1 diverged, 1 failed)"
    assert cell_text(found["base", "error"], Column("error")) == "· (0 of 4 runs)"


@pytest.mark.parametrize(
    "best, shift, better", [("lowest", -9, True), ("lowest", 9, False), ("highest", 9, True)]
)
def test_a_significant_difference_from_the_baseline_is_marked(tabulated, best, shift, better):
    study = simple(columns={"error": Column("error", best=best)})
    found = tabulated(study, lambda config: {"error": config["seed"] + (shift if config["x"] else 0)})
    assert found.cells["other", "error"].better is better
    assert found.cells["base", "error"].better is None
    assert legend(found) == "marks: + better, - worse than base, beyond chance"


def test_a_difference_by_chance_is_not_marked(tabulated):
    found = tabulated(simple(), lambda config: {"error": config["seed"] + config["x"] / 10})
    assert found.cells["other", "error"].better is None
    assert legend(found) == ""


@pytest.mark.parametrize(
    "published, confirms",
    [((1.6, 0.1), True), (1.6, True), ((9.0, 0.1), False), (9.0, False), ((9.0, 5.0), True)],
)
def test_a_published_figure_is_confirmed_or_not(tabulated, published, confirms):
    study = simple(published={"base": {"error": published}}, source="a Table 1")
    found = tabulated(study, lambda config: {"error": config["seed"]})
    assert found.cells["base", "error"].confirms is confirms
    assert ("! differs from a Table 1" in legend(found)) is not confirms


def test_the_rate_is_chosen_on_validation_data_for_each_cell_and_named(tabulated):
    def outcome(config):  # the test error would choose otherwise
        good = (config["lr"] == 0.1) == (config["x"] == 0)
        return {"val": 1.0 if good else 2.0, "error": 7.0 if good else 3.0}

    found = tabulated(simple(choose={"lr": [0.1, 0.01]}, by="val"), outcome)
    chosen = [dict(found.cells[row, "error"].chosen) for row in ("base", "other")]
    assert chosen == [{"lr": 0.1}, {"lr": 0.01}]
    assert found.cells["base", "error"].values == (7.0,) * 4
    assert cell_text(found.cells["base", "error"], Column("error")) == "7.00 ± 0.00"
    assert legend(found) == "chosen: lr 0.01 for other (error); lr 0.1 for all others"


def test_where_one_rate_is_tried_none_is_chosen(tabulated):
    study = simple(choose={"lr": [0.1]}, by="val")
    found = tabulated(study, lambda config: {"val": 1.0, "error": 7.0} if config["seed"] else None)
    cell = found.cells["base", "error"]
    assert (cell.values, dict(cell.chosen)) == ((7.0,) * 3, {})


def test_nothing_is_chosen_before_all_rates_were_tried(tabulated):
    study = simple(choose={"lr": [0.1, 0.01]}, by="val")
    found = tabulated(study, lambda config: {"val": 1.0, "error": 1.0} if config["lr"] == 0.1 else None)
    assert found.cells["base", "error"].values == ()
    assert cell_text(found.cells["base", "error"], Column("error")) == "· (4 of 8 runs)"
    assert not found.complete


def test_a_rate_that_diverges_is_not_chosen(tabulated):
    def outcome(config):
        diverges = config["lr"] == 0.1 and config["seed"] == 3
        return Outcome("diverged", error="nan") if diverges else {"val": config["lr"] < 0.1, "error": 2.0}

    found = tabulated(simple(choose={"lr": [0.1, 0.01]}, by="val"), outcome)
    assert dict(found.cells["base", "error"].chosen) == {"lr": 0.01}


OTHER_IS_LOWER = Claim("Table 1", "Other is lower.", (Lower("other", than="base", columns="error"),))


def test_there_is_no_verdict_before_every_cell_has_a_value_nor_without_claims(tabulated, tmp_path):
    study = simple(claims=(OTHER_IS_LOWER,))
    assert tabulated(study, lambda config: {"error": config["seed"]} if config["x"] else None).verdict is None
    found = tabulated(study, lambda config: {"error": config["seed"] * 1.01 - 5})
    (judged,) = found.judged["Table 1"]
    assert found.verdict == f"Table 1: the opposite holds. {judged}."
    assert table(study, only="base", store=tmp_path).verdict is None
    assert table(simple(), store=tmp_path).verdict is None
    tried = simple(claims=(OTHER_IS_LOWER,), choose={"lr": [0.1, 0.01]}, by="error")
    assert tabulated(tried, lambda config: {"error": 1.0} if config["lr"] == 0.1 else None).judged == {}


def test_a_vote_is_the_error_of_the_mean_probabilities_of_all_runs(tabulated):
    columns = {"vote": Column("error", summary="vote", repeat={"fold": range(3)})}
    study, targets, rng = simple(columns=columns), np.array([0, 1, 2, 1]), np.random.default_rng(0)
    outputs = rng.normal(size=(3, 4, 3)).astype(np.float32)

    def outcome(config):
        arrays = {"outputs": outputs[config["fold"]], "targets": targets}
        return Outcome("finished", {"error": 1.0}, arrays=arrays)

    found = tabulated(study, lambda config: outcome(config) if config["fold"] < 2 else None)
    assert found.cells["base", "vote"].values == ()
    probabilities = np.exp(outputs) / np.exp(outputs).sum(2, keepdims=True)
    expected = 100 * (probabilities.mean(0).argmax(1) != targets).mean()
    cell = tabulated(study, outcome).cells["base", "vote"]
    assert cell.values == (pytest.approx(expected),)
    assert cell.error is None


def test_a_metric_that_no_run_has_is_refused(tabulated):
    with pytest.raises(ValueError, match="no metric 'error'; it has eror"):
        tabulated(simple(), lambda config: {"eror": 1.0})


@pytest.fixture
def filled(tabulated):
    rows = {"base": {"x": 0.0}, "a & b_|%": {"x": 5.0}}
    study = simple(rows=rows, published={"base": {"error": (1.5, 0.25)}})
    return tabulated(study, lambda config: {"error": config["x"] + config["seed"]})


def test_it_prints_as_the_figures_and_what_they_are_worth_and_is_a_table_in_a_notebook(filled):
    assert str(filled).splitlines() == [
        "          error",
        "base      1.5 ± 0.6 [1.5 ± 0.2]",
        "a & b_|%  6.5 ± 0.6 -",
        "marks: + better, - worse than base, beyond chance",
    ]
    shown = filled._repr_html_()
    assert "<tr><td>a &amp; b_|%</td><td>6.5 ± 0.6 -</td></tr></table><p>marks: + better" in shown


def test_csv_has_a_line_a_cell(filled):
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](filled))))
    assert [row["row"] for row in rows] == ["base", "a & b_|%"]
    assert float(rows[1]["mean"]) == 6.5
    assert (rows[0]["published"], rows[1]["published"]) == ("1.5", "")


def test_json_has_everything_and_only_what_json_has(filled):
    found = json.loads(FORMATS["json"](filled), parse_constant=lambda constant: pytest.fail(constant))
    assert [cell["values"] for cell in found["cells"]] == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert {run["config"]["seed"] for run in found["runs"]} == {0, 1, 2, 3}
    assert found["scale"] == "full"


def test_markdown_and_latex_have_the_figures_and_escape_what_is_special(filled):
    assert FORMATS["markdown"](filled).splitlines() == [
        "|  | error |",
        "| --- | --- |",
        "| base | 1.5 ± 0.6 [1.5 ± 0.2] |",
        r"| a & b_\|% | 6.5 ± 0.6 - |",
        "",
        "marks: + better, - worse than base, beyond chance",
    ]
    latex = FORMATS["latex"](filled)
    assert r"a \& b\_|\% & 6.5 $\pm$ 0.6 - \\" in latex
    assert latex.startswith(r"\begin{tabular}{lc}")


def test_the_time_left_is_estimated_from_runs_of_the_same_kind_then_of_the_study_then_from_the_scale(
    tmp_path, fill
):
    study = simple(scales={"full": Scale(seconds=100.0)})
    runs = [run for found in cells(study).values() for run in found]
    with Store(tmp_path) as store:
        assert estimate(study, "full", runs, store).seconds == [100] * 8
        seven = Outcome("finished", {"error": 1.0}, seconds=7.0)
        fill(study, tmp_path, lambda config: seven if config["x"] else None)
        left = estimate(study, "full", runs, store)
        assert (left.seconds, left.basis) == ([7] * 4, "4 runs on an unknown device")
        fill(study, tmp_path, lambda config: None if config["seed"] else Outcome("finished", seconds=1.0))
        less = estimate(study, "full", runs, store)
        assert (less.missing, less.seconds) == (left.missing[1:], [1] * 3)
    with Store(tmp_path / "empty") as empty:
        assert estimate(simple(), "full", runs, empty).seconds is None


def test_the_mean_of_nothing_is_none(tmp_path):
    found = table(simple(), store=tmp_path)
    assert found.cells["base", "error"].mean is None
    assert found.to_dict()["cells"][0]["mean"] is None


def test_a_recorded_table_is_the_table_again(tabulated):
    study = simple(published={"other": {"error": (6.0, 0.1)}}, claims=(OTHER_IS_LOWER,))
    found = tabulated(study, lambda config: {"error": config["x"] + config["seed"]})
    again = Table.from_dict(study, json.loads(FORMATS["json"](found)))
    assert again == found
    assert found.to_dict()["verdict"] == again.verdict
    assert again.verdict.startswith("Table 1: the opposite holds. other minus base, error: 5.00 [")


def test_a_study_without_runs_has_empty_cells(tmp_path):
    found = table(simple(repeat={"seed": []}, choose={"lr": [0.1, 0.2]}), store=tmp_path)
    assert all(cell.mean is None for cell in found.cells.values())
