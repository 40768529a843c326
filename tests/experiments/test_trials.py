"""A hostile week for a store: kills, races and damage, drawn at random (`--seed`), short here and long where slow."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager

import numpy as np
import pytest

from relucid.data import present
from relucid.experiments import Column, Results, Store, StoreError, Study, run
from relucid.experiments._catalog import find
from relucid.experiments._executors import _quiet_ray
from relucid.experiments._records import unpacked
from relucid.experiments._transfer import import_records

ROWS, SEEDS = 6, 5


def study(log=None, pause=0.0, size=1, rows=ROWS):
    """A study of short runs that write to a log, if there is one, which of them were begun."""

    def measure(x, seed):
        if log:
            with open(log, "a") as file:
                file.write(f"{x} {seed}\n")
        time.sleep(pause)
        rng = np.random.default_rng([x, seed])
        value, loss = x + rng.random(), [rng.random()]
        return {"value": value, "history": {"loss": loss}, "arrays": {"noise": rng.random(size)}}

    return Study(
        "trial", "", measure,
        rows={str(x): {"x": x} for x in range(rows)},
        columns={"value": Column("value")},
        repeat={"seed": range(SEEDS)},
    )  # fmt: skip


def values(study, store):
    with Store(store, create=False) as kept:
        results = Results(study, "full", kept)
        return {row: tuple(results[row, column]) for row, column in results.cells}


def statuses(children):
    return Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


@pytest.mark.parametrize("processes", [8, pytest.param(48, marks=pytest.mark.slow)])
def test_processes_that_share_many_short_runs_do_each_once_and_none_dies(tmp_path, forked, processes):
    log, store = tmp_path / "log", tmp_path / "runs"
    shared = study(log)
    Store(store).close()
    children = [forked(lambda: run(shared, store=store, jobs=1)) for _ in range(processes)]
    assert statuses(children) == {0: processes}
    assert Counter(log.read_text(encoding="utf-8").splitlines()) == Counter(
        f"{x} {seed}" for x in range(ROWS) for seed in range(SEEDS)
    )
    assert all(len(found) == SEEDS for found in values(shared, store).values())
    assert list((store / "work").iterdir()) == []


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing_repeat_nothing_and_change_nothing(
    tmp_path, forked, kills, request
):
    rng, log, store = random.Random(request.config.getoption("seed")), tmp_path / "log", tmp_path / "runs"
    killed = study(log, pause=0.005, size=20_000, rows=2 * kills)  # 160 kB a run: many kills hit a write
    finished = set()
    for _ in range(kills):
        log.write_text("")
        child = forked(lambda: run(killed, store=store, jobs=1))
        begun = rng.randint(1, 4)
        while len(log.read_text(encoding="utf-8").splitlines()) < begun:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert not finished & set(log.read_text(encoding="utf-8").splitlines()), (
            "a finished run was run again"
        )
        with Store(store) as opened:
            assert opened.database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = {f"{each['config']['x']} {each['config']['seed']}" for each in opened.values()}
        assert finished <= found, "a finished run was lost"
        finished = found
    assert len(finished) < len(killed.runs()), "there was nothing left to kill: the trial saw too little"
    run(killed, store=store, jobs=1)
    run(killed, store=tmp_path / "whole", jobs=1)
    assert values(killed, store) == values(killed, tmp_path / "whole")


def damaged(data, rng):
    """A file with some bytes changed, a stretch of it zeroed or copied elsewhere, or its end missing."""
    data, kind = bytearray(data), rng.choice(["bits", "bits", "zeros", "moved", "cut"])
    place, length = rng.randrange(len(data)), rng.choice([16, 512, 4096])
    if kind == "bits":
        for _ in range(rng.choice([1, 10, 1000])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[place : place + length] = bytes(len(data[place : place + length]))
    elif kind == "moved":
        source = rng.randrange(len(data))
        piece = data[source : source + length]
        data[place : place + len(piece)] = piece
    else:
        del data[place:]
    return bytes(data)


@pytest.mark.parametrize("trials", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_damaged_store_gives_right_numbers_or_none_and_says_what_is_wrong(tmp_path, trials, request):
    rng, whole = random.Random(request.config.getoption("seed")), study(rows=3)
    run(whole, store=tmp_path / "whole", jobs=1)
    _settle(tmp_path / "whole")
    right, data = values(whole, tmp_path / "whole"), (tmp_path / "whole" / "results.sqlite").read_bytes()
    seen = Counter()
    for _ in range(trials):
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        (tmp_path / "damaged").mkdir()
        (tmp_path / "damaged" / "results.sqlite").write_bytes(damaged(data, rng))
        for attempt in (values, _read, _imported):
            try:
                found = attempt(whole, tmp_path / "damaged")
            except (StoreError, ValueError) as error:
                seen["refused" if len(str(error).splitlines()) == 1 else "several lines"] += 1
                continue
            for row, numbers in found.items():
                assert set(numbers) <= set(right[row]), "a wrong number"
            seen["right" if found == right else "missing"] += 1
    assert seen.keys() <= {"refused", "right", "missing"}
    assert min(seen["refused"], seen["right"]) > 0, seen


def _settle(directory):
    """All of a store in one file."""
    with closing(sqlite3.connect(directory / "results.sqlite")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode = DELETE")


def _read(study, directory):
    """Every outcome with its arrays, each of which must be what was put there."""
    found = {row: [] for row in study.rows}
    with Store(directory, create=False) as store:
        for each in study.runs():
            record = store.get(each.key)
            if record is not None:
                rng = np.random.default_rng([each.config["x"], each.config["seed"]])
                noise = unpacked(record["arrays"]["noise"]).tolist()
                assert noise == rng.random(3)[2:].tolist(), "a wrong array"
                found[str(each.config["x"])].append(record["metrics"]["value"])
    return {row: tuple(numbers) for row, numbers in found.items()}


def _imported(study, directory):
    target = directory / "target"
    with Store(target) as store:
        import_records(directory, store)
    return values(study, target)


def record(run, value):
    return {**run.begun(), "state": "finished", "metrics": {"value": value}, "started": "", "seconds": 0.0}


def flipped(directory, *records):
    """A store in which a bit of the number 1.25 has flipped."""
    with Store(directory) as store:
        store.put(*records)
    _settle(directory)
    path = directory / "results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"1.25", b"1.35"))
    return directory


def test_a_number_whose_bit_has_flipped_is_not_believed(tmp_path):
    (whole,) = study(rows=1).runs()[:1]
    with (
        Store(flipped(tmp_path / "runs", record(whole, 1.25))) as store,
        pytest.raises(StoreError, match=r"run .* is damaged: `relucid import"),
    ):
        store[whole.key]


def test_intact_runs_of_a_damaged_store_are_imported_into_a_new_one(tmp_path):
    first, second = study(rows=2).runs()[:2]
    flipped(tmp_path / "runs", record(first, 1.25), record(second, 7.5))
    with Store(tmp_path / "new") as new:
        keys = import_records(tmp_path / "runs", new)
        assert (keys["added"], keys["damaged"]) == ([second.key], [first.key])
        assert new[second.key]["metrics"] == {"value": 7.5}


@contextmanager
def nothing():
    yield "--jobs", "1"


@contextmanager
def on_ray():
    import ray

    with pytest.MonkeyPatch.context() as patch, _quiet_ray():
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_agent_register_timeout_ms", "600000")  # a busy machine takes its time
        node = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            yield "--executor", "ray", "--address", node.address_info["gcs_address"]
        finally:
            ray.shutdown()


@contextmanager
def on_dask():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield "--executor", "dask", "--address", cluster.scheduler_address


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Ray's and Dask's own making
@pytest.mark.skipif(
    not present()["uci/boston"], reason="needs the UCI sets: set RELUCID_DATA to their directory"
)
@pytest.mark.parametrize(
    "cluster",
    [
        nothing,
        pytest.param(on_ray, marks=pytest.mark.needs("ray")),
        pytest.param(on_dask, marks=pytest.mark.needs("distributed")),
    ],
)
def test_a_real_study_killed_three_times_and_shared_by_three_processes_does_each_run_once(tmp_path, cluster):
    store = tmp_path / "runs"
    words = "run", "gmp/uci", "--scale", "smoke", "-q", "--store", str(store)
    planned = {run.key for run in find("gmp/uci").runs("smoke")}
    seen = {}

    def start(options):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # of Ray, too, while its node is up
        return [
            subprocess.Popen([sys.executable, "-m", "relucid", *words, *options], env=environment)
            for _ in range(3)
        ]

    def kept():
        with Store(store, create=False) as opened:
            return dict(opened)

    with cluster() as options:
        for kill in range(3):
            processes = start(options)
            while len(seen) < 4 * (kill + 1):
                assert any(process.poll() is None for process in processes), "they ended by themselves"
                time.sleep(0.05)
                seen = kept()
            for process in processes:
                process.kill()
                process.wait()
            assert seen.items() <= kept().items(), "a finished run was lost or run again"
            seen = kept()
            assert seen.keys() < planned, "there was nothing left to kill"
        processes = start(options)
        assert [process.wait() for process in processes] == [0, 0, 0]
    found = kept()
    assert seen.items() <= found.items(), "a finished run was lost or run again"
    assert set(found) == planned
    assert {record["state"] for record in found.values()} == {"finished"}
    assert list((store / "work").iterdir()) == []
