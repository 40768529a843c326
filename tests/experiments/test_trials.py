"""A hostile week for a store: kills, races and damage, drawn at random (`--seed`), short here and long where slow."""

import os
import random
import shutil
import signal
import sqlite3
import time
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from relucid.studies import (
    Column,
    Outcome,
    Result,
    Store,
    StoreError,
    Study,
    import_results,
    plan,
    run,
    table,
)

ROWS, SEEDS = 6, 5


def study(log=None, pause=0.0, size=1, rows=ROWS):
    """A study of short runs that write to a log, if there is one, which of them were begun."""

    def measure(config):
        if log:
            with open(log, "a") as file:
                file.write(f"{config['x']} {config['seed']}\n")
        time.sleep(pause)
        rng = np.random.default_rng([config["x"], config["seed"]])
        return Result(
            {"value": config["x"] + rng.random()}, {"loss": [rng.random()]}, {"noise": rng.random(size)}
        )

    return Study(
        "trial", "", measure,
        rows={str(x): {"x": x} for x in range(rows)},
        columns={"value": Column("value")},
        repeat={"seed": range(SEEDS)},
    )  # fmt: skip


def values(study, store):
    return {row: cell.values for (row, _), cell in table(study, store=store).cells.items()}


def forked(function):
    """The id of a process that does this and ends; torch is loaded already, so that it begins at once."""
    child = os.fork()
    if child:
        return child
    try:
        function()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def statuses(children):
    return Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


@pytest.mark.parametrize("processes", [8, pytest.param(48, marks=pytest.mark.slow)])
def test_processes_that_share_many_short_runs_do_each_once_and_none_dies(tmp_path, processes):
    log, store = tmp_path / "log", tmp_path / "runs"
    shared = study(log)
    Store(store).close()
    children = [forked(lambda: run(shared, store=store, jobs=1)) for _ in range(processes)]
    assert statuses(children) == {0: processes}
    assert Counter(log.read_text().splitlines()) == Counter(
        f"{x} {seed}" for x in range(ROWS) for seed in range(SEEDS)
    )
    assert all(len(found) == SEEDS for found in values(shared, store).values())
    assert list((store / "work").iterdir()) == []


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing_repeat_nothing_and_change_nothing(tmp_path, kills, request):
    rng, log, store = random.Random(request.config.getoption("seed")), tmp_path / "log", tmp_path / "runs"
    killed = study(log, pause=0.005, size=20_000, rows=2 * kills)  # 160 kB a run: many kills hit a write
    finished = set()
    for _ in range(kills):
        log.write_text("")
        child = forked(lambda: run(killed, store=store, jobs=1))
        begun = rng.randint(1, 4)
        while len(log.read_text().splitlines()) < begun:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert not finished & set(log.read_text().splitlines()), "a finished run was run again"
        with Store(store) as opened:
            assert opened.database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = {f"{each.config['x']} {each.config['seed']}" for each in opened.runs()}
        assert finished <= found, "a finished run was lost"
        finished = found
    assert len(finished) < len(plan(killed)), "there was nothing left to kill: the trial saw too little"
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
        for attempt in (_shown, _read, _imported):
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


def _shown(study, directory):
    return values(study, directory)


def _read(study, directory):
    """Every outcome with its arrays, each of which must be what was put there."""
    found = {row: [] for row in study.rows}
    with Store(directory, create=False) as store:
        for each in plan(study):
            outcome = store.get(each.key)
            for name, array in store.arrays(each.key).items():
                rng = np.random.default_rng([each.config["x"], each.config["seed"]])
                assert (name, array.tolist()) == ("noise", rng.random(3)[2:].tolist()), "a wrong array"
            if outcome is not None:
                found[str(each.config["x"])].append(outcome.metrics["value"])
    return {row: tuple(numbers) for row, numbers in found.items()}


def _imported(study, directory):
    target = directory / "target"
    with Store(target) as store:
        import_results(directory, store)
    return values(study, target)


def test_a_number_whose_bit_has_flipped_is_not_believed(tmp_path):
    (whole,) = plan(study(rows=1))[:1]
    with Store(tmp_path / "runs") as store:
        store.put(whole, Outcome("finished", {"value": 1.25}))
    _settle(tmp_path / "runs")
    path = Path(tmp_path / "runs" / "results.sqlite")
    path.write_bytes(path.read_bytes().replace(b"1.25", b"1.35"))
    with (
        Store(tmp_path / "runs") as store,
        pytest.raises(StoreError, match=r"run .* is damaged: `relucid import"),
    ):
        store.get(whole.key)


def test_intact_runs_of_a_damaged_store_are_imported_into_a_new_one(tmp_path):
    first, second = plan(study(rows=2))[:2]
    with Store(tmp_path / "runs") as store:
        store.put(first, Outcome("finished", {"value": 1.25}))
        store.put(second, Outcome("finished", {"value": 7.5}))
    _settle(tmp_path / "runs")
    path = tmp_path / "runs" / "results.sqlite"
    path.write_bytes(path.read_bytes().replace(b"1.25", b"1.35"))
    with Store(tmp_path / "new") as new:
        imported = import_results(tmp_path / "runs", new)
        assert (imported.added, imported.damaged) == (1, 1)
        assert new.get(second.key).metrics == {"value": 7.5}
