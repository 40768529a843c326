import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from relucid.studies import Outcome, Run, Store, StoreError
from relucid.studies.store import VERSION

RUN, OTHER = Run("f", {"a": 1}), Run("f", {"a": 2})


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "runs")
    yield opened
    opened.close()


def test_an_outcome_comes_back_as_it_was_put(store):
    arrays = {"weights": np.arange(6.0).reshape(2, 3), "labels": np.array([1, 2], np.uint8)}
    put = Outcome(
        "finished", {"error": 1.5, "each": [1.0, 2.0]}, {"loss": [3.0, float("nan")]}, arrays, None,
        {"python": "3"}, "2026-01-01T00:00:00+00:00", 2.5,
    )  # fmt: skip
    store.put(RUN, put)
    got = store.get(RUN.key)
    assert got.state == store.state(RUN.key) == "finished"
    assert (got.metrics, got.history) == ({"error": 1.5, "each": [1.0, 2.0]}, {"loss": [3.0, None]})
    assert (got.environment, got.started, got.seconds) == (put.environment, put.started, 2.5)
    back = store.arrays(RUN.key)
    assert {name: array.dtype for name, array in back.items()} == {"weights": np.float64, "labels": np.uint8}
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
    assert store.get(OTHER.key) is None
    assert store.state(OTHER.key) is None


@pytest.mark.parametrize("state", ["finished", "diverged"])
def test_an_outcome_is_never_overwritten(store, state):
    store.put(RUN, Outcome(state, {"error": 1.0}, arrays={"a": np.zeros(1)}))
    store.put(RUN, Outcome("finished", {"error": 2.0}, arrays={"a": np.ones(1), "b": np.ones(1)}))
    assert store.get(RUN.key).metrics == {"error": 1.0}
    assert {name: array.tolist() for name, array in store.arrays(RUN.key).items()} == {"a": [0.0]}


def test_a_failure_is_overwritten_and_can_be_forgotten(store):
    store.put(RUN, Outcome("failed", error="first"))
    store.put(RUN, Outcome("failed", error="second"))
    store.put(OTHER, Outcome("finished"))
    assert store.get(RUN.key).error == "second"
    store.forget_failures([RUN.key, OTHER.key])
    assert store.get(RUN.key) is None
    assert store.state(OTHER.key) == "finished"


def test_a_run_is_put_as_a_whole_or_not_at_all(store):
    class Unreadable:
        def __array__(self, *_, **__):
            raise RuntimeError("cannot be read")

    with pytest.raises(RuntimeError, match="cannot be read"):
        store.put(RUN, Outcome("finished", arrays={"good": np.zeros(3), "bad": Unreadable()}))
    assert store.get(RUN.key) is None
    assert store.arrays(RUN.key) == {}


def test_a_lease_is_had_by_one_at_a_time_and_outlives_no_process(store, tmp_path):
    lease = store.lease(RUN.key)
    other = Store(tmp_path / "runs")
    assert other.lease(RUN.key) is None
    assert other.lease(OTHER.key) is not None
    lease.release()
    again = other.lease(RUN.key)
    assert again is not None
    again.release()
    code = (
        "import sys, time; from relucid.studies import Store; "
        "lease = Store(sys.argv[1]).lease(sys.argv[2]); print('leased', flush=True); time.sleep(99)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "runs"), RUN.key]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "leased\n"
    assert store.lease(RUN.key) is None
    process.kill()
    process.communicate()
    assert store.lease(RUN.key) is not None


def test_the_directory_of_a_lease_stays_until_the_run_is_finished(store):
    lease = store.lease(RUN.key)
    (lease.directory / "last.ckpt").write_text("half")
    lease.release()
    again = store.lease(RUN.key)
    assert (again.directory / "last.ckpt").read_text() == "half"
    again.finish()
    assert not again.directory.exists()


@pytest.mark.parametrize("version, why", [(9, "newer relucid"), (3, "older relucid")])
def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path, version, why):
    Store(tmp_path).close()
    database = sqlite3.connect(tmp_path / "results.sqlite")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    with pytest.raises(StoreError, match=f"schema {version}, not {VERSION} .*{why}"):
        Store(tmp_path)
    database = sqlite3.connect(tmp_path / "results.sqlite")
    assert database.execute("PRAGMA user_version").fetchone() == (version,)


def test_a_full_disk_is_an_error_that_loses_nothing(store):
    store.put(RUN, Outcome("finished", {"error": 1.0}))
    (pages,) = store.database.execute("PRAGMA page_count").fetchone()
    store.database.execute(f"PRAGMA max_page_count = {pages + 2}")  # what a disk of that size would do
    noise = np.random.default_rng(0).random(100_000)
    with pytest.raises(StoreError, match="disk is full"):
        store.put(OTHER, Outcome("finished", {"error": 1.0}, arrays={"noise": noise}))
    assert store.get(RUN.key).metrics == {"error": 1.0}
    assert store.get(OTHER.key) is None
    store.database.execute("PRAGMA max_page_count = 1000000")
    store.put(OTHER, Outcome("finished", {"error": 2.0}, arrays={"noise": noise}))
    assert np.array_equal(store.arrays(OTHER.key)["noise"], noise)


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
    with pytest.raises(StoreError, match=r"cannot use .*results.sqlite"):
        Store(tmp_path / "file")
    (tmp_path / "results.sqlite").write_text("I am no database, and long enough to be looked at" * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        Store(tmp_path)


def test_a_store_that_is_only_read_is_not_made(tmp_path):
    absent = Store(tmp_path / "absent", create=False)
    assert (absent.get(RUN.key), absent.arrays(RUN.key), absent.runs("f")) == (None, {}, [])
    assert not (tmp_path / "absent").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot use .*results.sqlite"):
        Store(tmp_path / "file", create=False)


def test_an_array_that_was_put_elsewhere_is_not_believed(store):
    store.put(RUN, Outcome("finished", arrays={"a": np.zeros(4)}))
    store.put(OTHER, Outcome("finished"))
    with store.database:
        store.database.execute("UPDATE array SET key = ?", (OTHER.key,))
    with pytest.raises(StoreError, match=r"an array of run .* is damaged"):
        store.arrays(OTHER.key)


def test_pickled_objects_are_refused(store):
    store.put(RUN, Outcome("finished", arrays={"a": np.array([print], dtype=object)}))
    with pytest.raises(StoreError, match="no array of numbers"):
        store.arrays(RUN.key)


def test_a_lease_is_had_though_its_directory_is_removed_again_and_again(store, monkeypatch):
    removed, mkdir = [], Path.mkdir

    def mkdir_and_remove(path, *args, **kwargs):
        mkdir(path, *args, **kwargs)
        if path.name == RUN.key and len(removed) < 5:
            removed.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir_and_remove)
    assert store.lease(RUN.key) is not None
    assert len(removed) == 5


OPENED_AT_ONCE = """
import os, sys
from relucid.studies import Store
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
