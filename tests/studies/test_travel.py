"""Results go from store to file to store, and nothing changes on the way."""

import json
from pathlib import Path

import numpy as np
import pytest

from relucid.papers import find
from relucid.report.study import study_page
from relucid.studies import Column, Outcome, Result, Run, Store, StoreError, Study, Table, plan, run, table
from relucid.studies.travel import export_results, import_results, record

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("*.json"))


def measure(config):
    rng = np.random.default_rng([config["x"], config["seed"]])
    outputs = rng.random((config["size"], 3)).astype(np.float32)
    outputs /= outputs.sum(1, keepdims=True)
    targets = np.arange(config["size"]) % 3
    return Result(
        {"error": 100 * float((outputs.argmax(1) != targets).mean())},
        {"train_loss": [1.0, 0.5 + rng.random()]},
        {"outputs": outputs, "targets": targets},
    )


@pytest.fixture(params=[50, 20_000], ids=["small outputs", "outputs too large for a file"])
def study(request):
    return Study(
        "voters", "", measure,
        rows={"a": {"x": 1}, "b": {"x": 2}},
        columns={"error": Column("error"), "vote": Column("error", summary="vote")},
        config={"size": request.param},
    )  # fmt: skip


def store_with(study, directory, **options):
    run(study, store=directory, jobs=1, **options)
    return Store(directory)


def written(study, store, path):
    path.write_text(json.dumps(export_results(table(study, store=store.directory), store)))
    return path


def test_a_study_is_the_same_after_its_file_was_imported_elsewhere(study, tmp_path):
    here, there = store_with(study, tmp_path / "here"), Store(tmp_path / "there")
    imported = import_results(written(study, here, tmp_path / "voters.json"), there)
    assert (imported.added, imported.there, imported.conflicts) == (6, 0, [])
    ours, theirs = (table(study, store=store.directory) for store in (here, there))
    assert ours.to_dict() == theirs.to_dict()
    assert len(ours.cells["a", "vote"].values) == 1
    assert study_page(ours, here, "voters") == study_page(theirs, there, "voters")
    with Store(tmp_path / "there") as complete:
        assert complete.missing(plan(study)) == []


def test_small_arrays_are_in_the_file_and_others_are_named(study, tmp_path):
    here = store_with(study, tmp_path / "here")
    record = json.loads(written(study, here, tmp_path / "voters.json").read_text())["runs"][0]
    there = Store(tmp_path / "there")
    import_results(tmp_path / "voters.json", there)
    if study.config["size"] == 50:
        assert "left_out" not in record
        assert np.array_equal(there.arrays(record["key"])["outputs"], here.arrays(record["key"])["outputs"])
    else:
        assert record["left_out"] == ["outputs"]
        assert set(record["arrays"]) == {"targets"}


def test_two_half_filled_stores_become_one(study, tmp_path):
    store_with(study, tmp_path / "first", only="a")
    store_with(study, tmp_path / "second", only="b")
    store_with(study, tmp_path / "whole")
    one = Store(tmp_path / "one")
    assert [import_results(tmp_path / half, one).added for half in ("first", "second", "first")] == [3, 3, 0]
    found, whole = (table(study, store=tmp_path / name) for name in ("one", "whole"))
    assert found.cells == whole.cells
    assert all(one.arrays(record["key"]).keys() == {"outputs", "targets"} for record in found.runs)


def test_a_store_of_another_version_is_refused_by_its_own_name(study, tmp_path):
    here = store_with(study, tmp_path / "here")
    here.database.execute("PRAGMA user_version = 2")
    here.close()
    with pytest.raises(StoreError, match=r"here/results.sqlite has schema 2, not 4 .*older relucid"):
        import_results(tmp_path / "here", Store(tmp_path / "there"))


@pytest.mark.parametrize("name", ["gmp/levy", "gmp/perturbation"])
def test_figures_are_the_same_after_an_import(tmp_path, name):
    study, here = find(name), Store(tmp_path / "here")
    run(study, "smoke", store=tmp_path / "here", jobs=1)
    file = tmp_path / "file.json"
    file.write_text(json.dumps(export_results(table(study, "smoke", store=tmp_path / "here"), here)))
    there = Store(tmp_path / "there")
    import_results(file, there)
    ours, theirs = (table(study, "smoke", store=store.directory) for store in (here, there))
    assert study_page(ours, here, name) == study_page(theirs, there, name)


RUN, OTHER = Run("lab/one", {"x": 1}), Run("lab/one", {"x": 2})


@pytest.fixture
def pair(tmp_path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    yield here, there
    here.close()
    there.close()


def test_an_outcome_that_contradicts_the_one_that_is_there_is_refused_by_name(pair):
    here, there = pair
    here.put(RUN, Outcome("finished", {"error": 1.0}))
    there.put(RUN, Outcome("finished", {"error": 2.0}))
    there.put(OTHER, Outcome("finished", {"error": 3.0}))
    imported = import_results(there.directory, here)
    assert (imported.added, imported.there) == (1, 0)
    assert imported.conflicts == [f"{RUN.key[:8]} {RUN.canonical}"]
    assert here.get(RUN.key).metrics == {"error": 1.0}


def test_a_failure_gives_way_to_an_outcome_and_never_takes_its_place(pair):
    here, there = pair
    here.put(RUN, Outcome("failed", error="here"))
    there.put(RUN, Outcome("finished", {"error": 2.0}))
    here.put(OTHER, Outcome("finished", {"error": 1.0}))
    there.put(OTHER, Outcome("failed", error="there"))
    assert import_results(there.directory, here).conflicts == []
    assert [here.get(run.key).metrics for run in (RUN, OTHER)] == [{"error": 2.0}, {"error": 1.0}]


def test_arrays_and_history_that_an_import_lacked_are_added_later(pair):
    here, there = pair
    here.put(RUN, Outcome("finished", {"error": 1.0}))
    there.put(RUN, Outcome("finished", {"error": 1.0}, {"loss": [1.0]}, {"a": np.ones(2)}))
    assert import_results(there.directory, here).there == 1
    assert here.get(RUN.key).history == {"loss": [1.0]}
    assert here.arrays(RUN.key)["a"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"config": {"x": 2}}, "another key"),
        ({"state": "won"}, "finished, diverged, failed"),
        ({"metrics": {"error": "<b>"}}, "'<b>'"),
        ({"metrics": {"error": None}}, "metric 'error' is None"),
        ({"metrics": {"error": float("inf")}}, "metric 'error' is inf"),
        ({"history": {"loss": ["<b>"]}}, "'<b>'"),
        ({"arrays": {"a": "not base64!"}}, "cannot be imported"),
        ({"arrays": {"a": "AAAA"}}, "it is damaged"),
        ({"seconds": None}, "cannot be imported"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_as_a_whole(tmp_path, pair, change, complaint):
    record = {
        "key": RUN.key, "runner": "lab/one", "version": 1, "config": {"x": 1}, "state": "finished",
        "metrics": {"error": 1.5}, "history": {}, "error": None, "environment": {}, "started": "", "seconds": 1.0,
    }  # fmt: skip
    (tmp_path / "wrong.json").write_text(json.dumps({"runs": [{**record, **change}]}))
    with pytest.raises(ValueError, match=complaint):
        import_results(tmp_path / "wrong.json", pair[0])
    assert pair[0].runs() == []


@pytest.mark.parametrize(
    "content, complaint",
    [
        (b"no JSON", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "has no runs"),
        (b'{"runs": 3}', "has no runs"),
    ],
)
def test_a_file_without_results_is_refused(tmp_path, pair, content, complaint):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        import_results(tmp_path / "file", pair[0])


def test_a_directory_without_a_store_is_refused(tmp_path, pair):
    with pytest.raises(ValueError, match=r"there is no .*nowhere"):
        import_results(tmp_path / "nowhere", pair[0])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is not a store"):
        import_results(tmp_path / "empty", pair[0])
    (tmp_path / "empty" / "results.sqlite").write_text("not a database" * 100)
    with pytest.raises(ValueError, match="damaged or not a store"):
        import_results(tmp_path / "empty", pair[0])


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_every_recorded_file_can_be_imported_and_gives_its_table_again(tmp_path, file):
    recorded = json.loads(file.read_text())
    study, store = find(recorded["study"]), Store(tmp_path)
    assert import_results(file, store).added == len(recorded["runs"])
    found = table(study, recorded["scale"], store=tmp_path)
    assert {run["key"] for run in found.runs} == {run["key"] for run in recorded["runs"]}
    planned = len(plan(study, recorded["scale"]))
    if planned == len(recorded["runs"]):
        old = Table.from_dict(study, recorded)
        assert {place: cell.values for place, cell in found.cells.items()} == {
            place: cell.values for place, cell in old.cells.items()
        }


def test_a_recorded_file_is_never_overwritten_by_another_scale_or_by_fewer_runs(study, tmp_path):
    whole = store_with(study, tmp_path / "whole")
    part = store_with(study, tmp_path / "part", seeds=2)
    path = record(table(study, store=whole.directory), whole, tmp_path)
    assert path == tmp_path / "voters-full.json"
    before = path.read_text()
    with pytest.raises(ValueError, match="has 2 runs that the store lacks"):
        record(table(study, store=part.directory), part, tmp_path)
    assert path.read_text() == before
    path.write_text(json.dumps({**json.loads(before), "scale": "small"}))
    with pytest.raises(ValueError, match="never overwritten"):
        record(table(study, store=whole.directory), whole, tmp_path)
