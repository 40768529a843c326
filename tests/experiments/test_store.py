import base64
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from relucid.experiments import Run, Store, StoreError, arrays_of
from relucid.experiments._records import append, packed, read, read_lines, unpacked
from relucid.experiments._store import VERSION
from relucid.experiments._transfer import import_records


def record(config, state="finished", **fields):
    usual = {"metrics": {"error": 1.0}, "started": "2026-01-01T00:00:00+00:00", "seconds": 2.5}
    return {**Run("f", config).begun(), "state": state, **usual, **fields}


ONE, OTHER = record({"a": 1}), record({"a": 2})


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "runs")
    yield opened
    opened.close()


def test_a_record_comes_back_as_it_was_put(store):
    arrays = {"weights": np.arange(6.0).reshape(2, 3), "labels": np.array([1, 2], np.uint8)}
    put = {**ONE, "history": {"loss": [3.0, None]}, "arrays": {name: packed(a) for name, a in arrays.items()}}
    assert store.put(put) == 1
    assert store[ONE["key"]] == put
    back = arrays_of(store[ONE["key"]])
    assert {name: array.dtype for name, array in back.items()} == {"weights": np.float64, "labels": np.uint8}
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
    assert (list(store), len(store), OTHER["key"] in store) == ([ONE["key"]], 1, False)
    with pytest.raises(KeyError):
        store[OTHER["key"]]


@pytest.mark.parametrize("state", ["finished", "diverged"])
def test_an_outcome_is_never_overwritten(store, state):
    store.put(record({"a": 1}, state))
    assert store.put(record({"a": 1}, metrics={"error": 2.0})) == 0
    assert store[ONE["key"]]["state"] == state


def test_a_failure_gives_way_and_can_be_forgotten(store):
    store.put(record({"a": 1}, "failed", error="first"), OTHER)
    store.put(record({"a": 1}, "failed", error="second"))
    assert store[ONE["key"]]["error"] == "second"
    store.forget_failures([ONE["key"], OTHER["key"]])
    assert list(store) == [OTHER["key"]]


def test_records_are_put_as_a_whole_or_not_at_all(store):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.put(ONE, record({"a": 2}, metrics={"error": float("nan")}))
    assert len(store) == 0


def test_a_lease_is_had_by_one_at_a_time_and_outlives_no_process(store, tmp_path):
    key, lease = ONE["key"], store.lease(ONE["key"])
    with Store(tmp_path / "runs") as other:
        assert other.lease(key) is None
        assert other.lease(OTHER["key"]) is not None
        lease.release()
        again = other.lease(key)
        assert again is not None
        again.release()
    code = (
        "import sys, time; from relucid.experiments import Store; "
        "lease = Store(sys.argv[1]).lease(sys.argv[2]); print('leased', flush=True); time.sleep(99)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "runs"), key]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "leased\n"
    assert store.lease(key) is None
    process.kill()
    process.communicate()
    assert store.lease(key) is not None


def test_the_directory_of_a_lease_stays_until_the_run_is_finished(store):
    lease = store.lease(ONE["key"])
    (lease.directory / "last.ckpt").write_text("half")
    lease.release()
    again = store.lease(ONE["key"])
    assert (again.directory / "last.ckpt").read_text(encoding="utf-8") == "half"
    again.release(finished=True)
    assert not again.directory.exists()


@pytest.mark.parametrize("version, why", [(9, "a newer relucid wrote it"), (3, "relucid did not write it")])
def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path, version, why):
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match=f"schema {version}, not {VERSION} .*{why}"):
        Store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (version,)


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as database:
        database.execute("CREATE TABLE photo (name TEXT)")
    with pytest.raises(StoreError, match=r"schema 0, not 5 .*relucid did not write it"):
        Store(tmp_path)


def test_a_full_disk_is_an_error_that_loses_nothing(store):
    store.put(ONE)
    (pages,) = store.database.execute("PRAGMA page_count").fetchone()
    store.database.execute(f"PRAGMA max_page_count = {pages + 2}")  # what a disk of that size would do
    large = record({"a": 2}, arrays={"noise": packed(np.random.default_rng(0).random(100_000))})
    with pytest.raises(StoreError, match="disk is full"):
        store.put(large)
    assert list(store) == [ONE["key"]]
    store.database.execute("PRAGMA max_page_count = 1000000")
    store.put(large)
    assert store[large["key"]] == large


def test_a_read_only_directory_is_refused():
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o555)
    root = os.geteuid() == 0
    if root:  # for whom nothing is read-only
        os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match="Permission denied"):
            Store(directory / "runs")
    finally:
        if root:
            os.seteuid(0)
        directory.rmdir()


def test_a_file_in_the_place_of_the_directory_or_the_database_is_refused(tmp_path):
    (tmp_path / "file").write_text("I am no directory")
    for create in (True, False):
        with pytest.raises(StoreError, match=r"cannot use .*results.sqlite"):
            Store(tmp_path / "file", create=create)
    (tmp_path / "results.sqlite").write_text("I am no database, and long enough to be looked at" * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        Store(tmp_path)


def test_a_store_that_is_only_read_is_not_made(tmp_path):
    with Store(tmp_path / "absent", create=False) as absent:
        assert len(absent) == 0
    assert not (tmp_path / "absent").exists()


def test_pickled_objects_and_damaged_arrays_are_refused():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, array=np.array([print], dtype=object))
    for text in (base64.b64encode(buffer.getvalue()).decode(), "not base64", packed(np.zeros(3))[:-8]):
        with pytest.raises(ValueError, match="an array is damaged, or no array of numbers"):
            unpacked(text)


def test_a_lease_is_had_though_its_directory_is_removed_again_and_again(store, monkeypatch):
    removed, mkdir = [], Path.mkdir

    def mkdir_and_remove(path, *args, **kwargs):
        mkdir(path, *args, **kwargs)
        if path.name == ONE["key"] and len(removed) < 5:
            removed.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir_and_remove)
    assert store.lease(ONE["key"]) is not None
    assert len(removed) == 5


OPENED_AT_ONCE = """
import os, sys
from relucid.experiments import Store
children = []
for _ in range(8):
    children.append(os.fork())
    if not children[-1]:
        Store(sys.argv[1]).close()
        os._exit(0)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_many_processes_open_a_new_store_at_once(tmp_path):
    assert subprocess.run([sys.executable, "-c", OPENED_AT_ONCE, tmp_path / "new"]).returncode == 0


def test_a_moved_store_is_noticed_and_nothing_is_lost(tmp_path):
    with Store(tmp_path / "runs") as store:
        store.put(ONE)
        (tmp_path / "runs").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="moved or removed"):
            store.put(OTHER)
    with Store(tmp_path / "elsewhere") as moved:
        assert set(moved) == {ONE["key"], OTHER["key"]}


# The tables of the last release, schema 4.
SCHEMA_4 = """
CREATE TABLE run (key TEXT PRIMARY KEY, run TEXT NOT NULL, state TEXT NOT NULL, metrics TEXT NOT NULL,
    history TEXT NOT NULL, error TEXT, environment TEXT NOT NULL, started TEXT NOT NULL, seconds REAL NOT NULL,
    digest TEXT NOT NULL);
CREATE TABLE array (key TEXT NOT NULL REFERENCES run ON DELETE CASCADE, name TEXT NOT NULL, data BLOB NOT NULL,
    digest TEXT NOT NULL, PRIMARY KEY (key, name));
CREATE TABLE vote (runs TEXT PRIMARY KEY, error REAL NOT NULL, digest TEXT NOT NULL);
PRAGMA user_version = 4;
"""


def old_store(directory, runs, votes=()):
    """A store as the last release wrote it, with an array per run."""
    directory.mkdir()
    with closing(sqlite3.connect(directory / "results.sqlite")) as database:
        database.executescript(SCHEMA_4)
        for place, run in enumerate(runs):
            canonical = json.dumps({"config": run.config, "runner": run.runner, "version": run.version})
            outcome = ("finished", json.dumps({"error": place}), json.dumps({"loss": [1.0]}), None, "{}")
            values = (run.key, canonical, *outcome, f"2026-01-0{place + 1}", 1.5, "")
            database.execute(f"INSERT INTO run VALUES ({', '.join('?' * 10)})", values)
            data = base64.b64decode(packed(np.arange(3.0) + place))
            database.execute("INSERT INTO array VALUES (?, 'outputs', ?, '')", (run.key, data))
        for keys, error in votes:
            database.execute("INSERT INTO vote VALUES (?, ?, '')", (json.dumps(keys), error))
        database.commit()


def test_a_store_of_the_last_release_is_taken_over_once_and_a_copy_is_left(tmp_path):
    named, first, second = (
        Run("lab/f", {"a": 1}, 3),
        Run("m:f", {"a": 1}, "source 12"),
        Run("m:f", {"a": 1}, "source 34"),
    )
    old_store(tmp_path / "runs", [named, first, second], [([named.key], 12.5)])
    for _ in range(2):
        with Store(tmp_path / "runs") as store:
            kept = dict(store)
    plain, vote = Run("m:f", {"a": 1}), Run("vote", {"of": [named.key]})
    assert kept.keys() == {named.key, plain.key, vote.key}
    assert kept[named.key]["metrics"] == {"error": 0}
    assert arrays_of(kept[named.key])["outputs"].tolist() == [0.0, 1.0, 2.0]
    assert (kept[plain.key]["metrics"], kept[plain.key]["version"]) == ({"error": 2}, 1)  # the newest file's
    assert kept[vote.key]["metrics"] == {"error": 12.5}
    with closing(sqlite3.connect(tmp_path / "runs" / "results.sqlite.4")) as copy:
        assert copy.execute("SELECT count(*) FROM run").fetchone() == (3,)


def test_a_store_of_the_last_release_can_be_imported_and_is_left_as_it_is(tmp_path):
    run = Run("lab/f", {"a": 1}, 3)
    old_store(tmp_path / "old", [run])
    before = (tmp_path / "old" / "results.sqlite").read_bytes()
    with Store(tmp_path / "new") as store:
        assert import_records(tmp_path / "old", store)["added"] == [run.key]
        assert list(store) == [run.key]
    assert (tmp_path / "old" / "results.sqlite").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == ["results.sqlite"]


def test_lines_are_appended_and_none_is_changed_or_repeated(tmp_path):
    failed = record({"a": 3}, "failed", error="no")
    assert append([OTHER, failed, ONE], tmp_path) == 2
    path = tmp_path / "f.jsonl"
    before = path.read_text(encoding="utf-8")
    assert append([{**ONE, "metrics": {"error": 7.0}}, record({"a": 4})], tmp_path) == 1
    assert path.read_text(encoding="utf-8").startswith(before)
    assert [each["metrics"] for each in read(tmp_path).values()] == [{"error": 1.0}] * 3
    with pytest.raises(ValueError, match="there is no directory"):
        append([ONE], tmp_path / "absent")


def test_the_files_of_earlier_releases_are_read_votes_too(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"runs": [ONE, OTHER], "votes": [{"runs": [ONE["key"]], "error": 3.5}]}))
    *runs, vote = read_lines(path)
    assert runs == [ONE, OTHER]
    assert (vote["runner"], vote["metrics"]) == ("vote", {"error": 3.5})


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({**ONE, "key": OTHER["key"]}, "has another key than its configuration gives"),
        ({**ONE, "state": "done"}, "is 'done'; it must be finished, diverged, failed"),
        ({**ONE, "metrics": {"error": "low"}}, "metric 'error' is 'low'; it must be a number"),
        ({**ONE, "metrics": {"error": None}}, "metric 'error' is None; it must be a finite number"),
        ({"key": 1}, "is no record of a run"),
        ([1], "is no record of a run"),
    ],
)
def test_a_line_that_cannot_be_right_is_refused_and_nothing_is_imported(tmp_path, store, wrong, sentence):
    (tmp_path / "lines.jsonl").write_text(f"{json.dumps(OTHER)}\n{json.dumps(wrong)}\n")
    with pytest.raises(ValueError, match=sentence):
        import_records(tmp_path / "lines.jsonl", store)
    assert len(store) == 0


def test_an_import_adds_what_is_new_and_refuses_what_contradicts(tmp_path, store):
    store.put(ONE, record({"a": 3}, "failed", error="no"))
    lines = [{**ONE, "metrics": {"error": 9.0}}, OTHER, record({"a": 3})]
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    new = [OTHER["key"], lines[2]["key"]]
    keys = import_records(tmp_path / "lines.jsonl", store)
    assert keys == {"added": new, "known": [], "damaged": [], "refused": [ONE["key"]]}
    assert store[ONE["key"]] == ONE
    assert import_records(tmp_path / "lines.jsonl", store) == keys | {"added": [], "known": new}
