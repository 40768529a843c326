import math

import pytest

from relucid.experiments import Column, Results, Run, Scale, Study, frame

STUDY = Study(
    "s", "t", print, rows={"one": {"x": 1}, "two": {"x": 2}, "three": {"x": 3}},
    columns={"error": Column("error"), "size": Column("size", {"big": True}, repeat={}, best=None, digits=0)},
    published={("one", "error"): (1.5, 0.5)}, repeat={"seed": range(3)},
    scales={"full": Scale(), "smoke": Scale({}, {"seed": [0]})},
)  # fmt: skip


def test_a_cell_is_a_series_by_repetition_and_lists_are_its_items(filled):
    results = filled(
        STUDY, lambda at: {"error": [at["x"], at["x"] + 1]} if "seed" in at else {"size": at["x"]}
    )
    values = results["two", "error"]
    assert values.tolist() == [2, 3] * 3
    assert values.index.tolist() == [(f"seed {seed}", item) for seed in range(3) for item in range(2)]
    values[:] = 0
    assert results["two", "error"].sum() == 15  # what a reader does to it stays his


def test_other_metrics_and_histories_of_a_cell_can_be_read(filled):
    results = filled(
        STUDY, lambda at: {"metrics": {"error": 1.0, "rate": 0.1}, "history": {"loss": [2.0, 1.0]}}
    )
    assert results["one", "error", "rate"].tolist() == [0.1] * 3
    assert list(results["one", "error", "loss", True]) == [[2.0, 1.0]] * 3
    assert len(results["one", "error", "nothing"]) == 0


def test_a_table_has_means_errors_and_published_values(filled):
    results = filled(STUDY, lambda at: {"error": at["x"] + at["seed"]} if "seed" in at else {"size": 7.0})
    table = results.table()
    assert table.loc[("one", "error"), ["mean", "n", "published"]].tolist() == [2.0, 3, 1.5]
    assert table.loc["two", "error"]["error"] == pytest.approx(1 / math.sqrt(3))
    assert str(results).splitlines()[2] == "| one | 2.00±0.58 [1.50±0.50] | 7 |"


def test_what_diverged_failed_or_is_missing_is_said_and_rows_without_runs_are_left_out(filled):
    def outcome(at):
        if at["x"] == 1 and at.get("seed") == 2:
            return {"state": "diverged", "metrics": {}}
        if at["x"] == 2 and at.get("seed") == 2:
            return {"state": "failed", "metrics": {}, "error": "no"}
        return None if at["x"] == 3 or (at["x"] == 2 and at.get("seed") == 1) else {"error": 1.0, "size": 2.0}

    results = filled(STUDY, outcome)
    shown = results.shown()
    assert list(shown.index) == ["one", "two"]
    assert shown.loc["one", "error"] == "1.00 [1.50±0.50] (1 diverged)"
    assert shown.loc["two", "error"] == "1.00 (1 failed)"
    assert results.note("two", "size") == ""
    assert not results.complete("two", "error")
    assert results.complete("one", "error")
    half = filled(STUDY, lambda at: {"error": 1.0, "size": 1.0} if at.get("seed") != 2 else None)
    assert half.note("one", "error") == "2 of 3 runs"


def test_rows_that_share_no_column_are_tables_of_their_own(filled):
    results = filled(
        STUDY, lambda at: {"error": 1.0} if at["x"] < 3 else {"size": 3.0} if "big" in at else {"no": 1.0}
    )
    first, second = results.blocks()
    assert (list(first.index), list(first)) == (["one", "two"], ["error"])
    assert (list(second.index), list(second)) == (["three"], ["size"])


def test_a_cell_chooses_the_setting_with_the_lowest_criterion_and_says_which(filled):
    tuned = STUDY.variant("t", choose={"lr": [0.1, 0.2]}, columns={"error": STUDY.columns["error"]})

    def outcome(at):
        best = 0.1 if at["x"] == 1 else 0.2
        return {"error": at["lr"], "val_error": abs(at["lr"] - best)}

    results = filled(tuned, outcome)
    assert [results[row, "error"].mean() for row in ("one", "two", "three")] == pytest.approx([0.1, 0.2, 0.2])
    assert results.choices() == "lr 0.1 for one (error); lr 0.2 for all others"
    assert str(results).endswith("\n\nChosen: lr 0.1 for one (error); lr 0.2 for all others.")
    without = filled(
        tuned, lambda at: None if (at["x"], at["lr"], at["seed"]) == (1, 0.2, 2) else outcome(at)
    )
    assert len(without["one", "error"]) == 0  # the choice is open
    diverged = filled(
        tuned, lambda at: {"state": "diverged", "metrics": {}} if at["lr"] == 0.1 else outcome(at)
    )
    assert diverged["one", "error"].mean() == pytest.approx(0.2)


def test_a_misspelt_metric_is_said_and_no_empty_column(filled):
    wrong = STUDY.variant("t", columns={"error": Column("eror")})
    (sentence,) = filled(wrong, lambda at: {"error": 1.0}).unknown_metrics()
    assert sentence == "no run of column 'error' returned the metric 'eror'; did you mean 'error'?"
    assert filled(STUDY, lambda at: {"error": 1.0, "size": 1.0}).unknown_metrics() == []


def test_finished_is_a_metric_of_every_run(filled):
    share = STUDY.variant("t", columns={"trained": Column("finished", share=True)})
    results = filled(share, lambda at: {"state": "diverged", "metrics": {}} if at["seed"] else {"error": 1.0})
    assert results["one", "trained"].tolist() == [100.0, 0.0, 0.0]
    assert results.unknown_metrics() == []


def test_votes_are_runs_of_their_own(filled):
    voting = STUDY.variant("t", columns={"vote": Column("error", vote=True)})
    results = filled(voting, lambda at: {"error": 1.0})
    keys = sorted(planned.run.key for planned in results.cells["one", "vote"])
    vote = {"key": Run("vote", {"of": keys}).key, "metrics": {"error": 0.5}}
    with_vote = Results(voting, "full", {**results.records, vote["key"]: vote})
    assert with_vote["one", "vote"].tolist() == [0.5]
    assert with_vote.votes() == [vote]
    assert len(with_vote["two", "vote"]) == 0


def test_all_runs_are_one_frame(filled):
    results = filled(STUDY, lambda at: {"error": [1.0, 3.0]} if "seed" in at else {"size": at["x"]})
    everything = frame(results.records)
    assert len(everything) == 3 * (3 * 2 + 1)
    assert everything.groupby("config.x")["error"].mean().to_dict() == {1: 2.0, 2: 2.0, 3: 2.0}
