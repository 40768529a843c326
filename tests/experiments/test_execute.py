import os
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor

import pytest
import torch

from relucid.data import DamagedDataError, MissingDataError, Split
from relucid.experiments import Column, Results, Run, Runner, Store, Study, run
from relucid.experiments._catalog import find
from relucid.experiments._execute import execute
from relucid.experiments._executors import executing
from relucid.report.study import grid_of_environments
from relucid.train import DivergedError, Machine, Recipe, fit, memory_is_kept

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(path, store, *options):
    return [sys.executable, "-m", "relucid", "run", str(path), "--store", str(store), *options]


def results(study, store):
    """The results of a study, read once."""
    with Store(store) as kept:
        return Results(study, "full", dict(kept))


def values(study, store):
    known = results(study, store)
    return {cell: tuple(known[cell]) for cell in known.cells}


def states(study, store):
    """How many runs of each row have finished or failed."""
    known = results(study, store)
    begun = [
        (row, known.records.get(each.run.key)) for (row, _), runs in known.tried.items() for each in runs
    ]
    counts = Counter((row, record["state"]) for row, record in begun if record)
    return [{state: n for (of, state), n in counts.items() if of == row} for row, _ in known.tried]


def count_starts(lines):
    return Counter((x, seed) for word, x, seed, _ in lines if word == "start")


def test_every_run_is_done_once_and_its_outcome_kept(load_study, tmp_path, log):
    study, seen = load_study(pause=0.05), []
    for _ in range(2):
        run(study, store=tmp_path / "runs", jobs=1, report=lambda run, record: seen.append(record))
    assert count_starts(log()) == Counter({(str(x), str(seed)): 1 for x in (1, 2, 3) for seed in (0, 1)})
    assert [record and record["state"] for record in seen] == ["finished"] * 6 + [None] * 6
    for place, found in values(study, tmp_path / "runs").items():
        assert len(found) == 2
        assert all(int(place[0]) ** 2 <= value < int(place[0]) ** 2 + 1 for value in found)
    for record in results(study, tmp_path / "runs").records.values():
        assert record["environment"]["versions"]["torch"].startswith("2.")
        assert record["seconds"] >= 0.05
        assert record["started"].startswith("20")


def trains(seed, machine):
    images = Split(torch.rand(8, 3, 6, 6), torch.arange(8) % 2)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten(), torch.nn.Linear(32, 2))
    fitted = fit(network, images, Recipe(epochs=1), machine=machine)
    return {"channels last": fitted.engine.memory_format == "channels_last"}


def test_how_a_run_trained_is_kept_and_shown(tmp_path):
    study = Study("trains", "", trains, {"a": {}}, {"layout": Column("channels last")}, repeat={"seed": [0]})
    run(study, store=tmp_path, jobs=1)
    found = results(study, tmp_path)
    (record,) = found.records.values()
    assert record["metrics"] == {"channels last": 1.0}
    (trained,) = record["environment"]["trained"]
    kept = "kept" if memory_is_kept() else "returned"
    assert trained == f"channels-last, not compiled, freed memory {kept}"
    shown = dict(grid_of_environments(found).rows)
    assert shown["trained"] == trained


def test_a_failed_run_is_recorded_the_others_go_on_and_it_is_retried_on_request(load_study, tmp_path, log):
    broken = "if x == 2 and not os.path.exists(LOG + '.repaired'): raise RuntimeError('broken')"
    study, store = load_study(extra=broken), tmp_path / "runs"
    for _ in range(2):
        run(study, store=store, jobs=1)
    assert states(study, store) == [{"finished": 2}, {"failed": 2}, {"finished": 2}]
    failed = [record for record in results(study, store).records.values() if record["state"] == "failed"]
    assert all("RuntimeError: broken" in record["error"] for record in failed)
    assert sum(count_starts(log()).values()) == 6
    (tmp_path / "log.repaired").touch()
    run(study, store=store, jobs=1, retry=True)
    assert states(study, store) == [{"finished": 2}] * 3
    assert sum(count_starts(log()).values()) == 8


@pytest.mark.parametrize("restarts, state", [("0", "finished"), ("1", "failed")])
def test_failed_runs_are_retried_under_torchrun_unless_it_has_restarted_them(
    load_study, tmp_path, monkeypatch, restarts, state
):
    study, store = load_study(rows=1, seeds=1), tmp_path / "runs"
    (only,) = study.runs()
    with Store(store) as kept:
        kept.put(
            {**only.begun(), "started": "", "seconds": 0, "state": "failed", "metrics": {}, "error": "before"}
        )
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    told = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    told |= {"TORCHELASTIC_RUN_ID": "only", "TORCHELASTIC_RESTART_COUNT": restarts}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    run(study, store=store, retry=True)
    assert states(study, store) == [{state: 1}]


def test_a_run_that_diverges_is_an_outcome_of_its_own():
    def diverges():
        raise DivergedError("the training loss became nan in epoch 2", {"train_loss": [1.0]})

    record = execute(Runner("f", diverges), Run("f", {}), Machine())
    assert (record["state"], record["history"]) == ("diverged", {"train_loss": [1.0]})
    assert record["error"] == "the training loss became nan in epoch 2"


@pytest.mark.parametrize(
    "returned, message",
    [
        (3.5, "not float"),
        ({}, "this one returned none"),
        ({"history": {"loss": [1.0]}}, "this one returned none"),
        ({"error": float("nan")}, "metric 'error' is nan"),
        ({"error": [[1.0]]}, "metric 'error'"),
        ({"error": "low"}, "metric 'error' is 'low'"),
        (SystemExit(0), "SystemExit"),  # it ends the run, not the study
    ],
)
def test_a_run_must_return_numbers(returned, message):
    def function():
        if isinstance(returned, SystemExit):
            raise returned
        return returned

    record = execute(Runner("f", function), Run("f", {}), Machine())
    assert record["state"] == "failed"
    assert message in record["error"]


def test_a_run_function_may_take_the_machine_and_return_more_than_metrics(tmp_path):
    def function(machine):
        (machine.directory / "seen").touch()
        return {"error": 1, "history": {"loss": [2.0, float("nan")]}, "arrays": {}}

    record = execute(Runner("f", function), Run("f", {}), Machine(directory=tmp_path))
    assert (record["state"], record["metrics"]) == ("finished", {"error": 1.0})
    assert record["history"] == {"loss": [2.0, None]}
    assert (tmp_path / "seen").exists()


def test_ctrl_c_keeps_what_is_finished_and_lets_the_rest_be_leased(load_study, tmp_path):
    study, store = load_study(extra="if x == 2: raise KeyboardInterrupt"), tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        run(study, store=store, jobs=1)
    assert len(values(study, store)["1", "value"]) == 1
    with Store(store) as opened:
        assert all(opened.lease(place.name) for place in (store / "work").iterdir())


SUMS = """
import torch
from relucid.experiments import Column, Study

def run(seed):
    numbers = torch.rand(1_000_003, generator=torch.Generator().manual_seed(seed))
    return {"sum": numbers.sum().item(), "threads": torch.get_num_threads()}

study = Study("sums", "", run, rows={"a": {}}, columns={"sum": Column("sum"), "threads": Column("threads")})
"""


def test_results_are_equal_to_the_bit_whatever_the_number_of_jobs(tmp_path):
    (tmp_path / "sums.py").write_text(SUMS)
    study, usual = find(str(tmp_path / "sums.py")), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        run(study, store=tmp_path / "one", jobs=1)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(usual)
    run(study, store=tmp_path / "two", jobs=2)
    assert values(study, tmp_path / "one") == values(study, tmp_path / "two")
    assert values(study, tmp_path / "one")["a", "threads"] == (1, 1, 1)
    assert {
        record["environment"]["threads"] for record in results(study, tmp_path / "two").records.values()
    } == {1}


def test_a_run_may_have_more_threads_and_says_how_many():
    def function():
        return {"threads": torch.get_num_threads()}

    record = execute(Runner("f", function), Run("f", {}), Machine(), threads=2)
    assert (record["metrics"]["threads"], record["environment"]["threads"]) == (2, 2)


def test_an_unknown_executor_is_refused():
    with pytest.raises(ValueError, match="there are local, ray, dask"):
        executing("slurm").__enter__()


def test_any_executor_of_concurrent_futures_will_do(load_study, tmp_path, log):
    study = load_study()
    with ThreadPoolExecutor(2) as threads:
        run(study, store=tmp_path / "runs", executor=threads, jobs=2)
        assert threads.submit(int, "7").result() == 7  # it stays open
    assert [len(found) for found in values(study, tmp_path / "runs").values()] == [2, 2, 2]


def test_a_run_whose_process_dies_is_tried_three_times_and_the_others_go_on(load_study, tmp_path):
    class Mortal(ThreadPoolExecutor):
        def submit(self, function, run, machine):
            if run.config["x"] != 2:
                return super().submit(function, run, machine)
            future = Future()
            future.set_exception(BrokenExecutor("a process died"))
            return future

    study, seen = load_study(rows=4, seeds=1), {}
    run(
        study,
        store=tmp_path / "runs",
        executor=Mortal(1),
        report=lambda run, end: seen.update({run.config["x"]: end}),
    )
    assert [seen[x]["state"] for x in (1, 2, 3, 4)] == ["finished", "failed", "finished", "finished"]
    assert "its process died 3 times" in seen[2]["error"]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_run_done_again(load_study, tmp_path, log):
    dies = "if x == 2 and seed == 0 and not os.path.exists(LOG + '.died'):\n"
    dies += "        open(LOG + '.died', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)"
    study = load_study(extra=dies)
    run(study, store=tmp_path / "runs", jobs=2)
    assert (tmp_path / "log.died").exists()
    assert [len(found) for found in values(study, tmp_path / "runs").values()] == [2, 2, 2]


@pytest.mark.slow
def test_a_run_that_exits_at_once_fails_alone_among_four_at_a_time(load_study, tmp_path, log):
    study = load_study(extra="if x == 2: os._exit(0)", rows=4, seeds=2, pause=0.5)
    run(study, store=tmp_path / "runs", jobs=4)
    done, failed = {"finished": 2}, {"failed": 2}
    assert states(study, tmp_path / "runs") == [done, failed, done, done]


def test_workers_do_not_outlive_a_process_that_is_killed(write_study, tmp_path, log):
    process = subprocess.Popen(
        command(write_study(pause=60), tmp_path / "runs", "--jobs", "2"), env=ENVIRONMENT
    )
    deadline = time.monotonic() + 600
    while len(log()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [int(worker) for _, _, _, worker in log()]
    assert len(workers) == 2
    process.kill()
    process.wait()
    while any(_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(worker) for worker in workers)


def _alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_leaves_ctrl_c_to_its_parent():
    code = (
        "import os, signal; from relucid.experiments._executors import _prepare_worker; "
        "_prepare_worker(os.getppid()); os.kill(os.getpid(), signal.SIGINT); print('alive')"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "alive\n"


def lacks_data(seed, kind):
    raise {each.__name__: each for each in (MissingDataError, DamagedDataError)}[kind](
        f"moons/{seed}: get it"
    )


@pytest.mark.parametrize("error", [MissingDataError, DamagedDataError])
def test_missing_and_damaged_data_stop_the_study_and_no_run_is_recorded_as_failed(tmp_path, error):
    rows, columns = {"a": {"kind": error.__name__}}, {"loss": Column("loss")}
    study = Study("s", "", lacks_data, rows, columns, repeat={"seed": range(4)})
    with pytest.raises(error, match="moons/0: get it"):
        run(study, store=tmp_path, jobs=1)
    assert results(study, tmp_path).records == {}


def test_a_metric_that_no_run_returns_is_refused_after_the_runs_and_they_are_kept(load_study, tmp_path):
    study = load_study().variant("wrong", columns={"value": Column("valeu")})
    with pytest.raises(ValueError, match="returned the metric 'valeu'; did you mean 'value'"):
        run(study, store=tmp_path, jobs=1)
    assert len(results(study, tmp_path).records) == 6


def test_the_vote_of_runs_is_kept_as_a_run(tmp_path):
    outputs = torch.tensor(
        [[[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.1, 0.9]], [[0.2, 0.8], [0.3, 0.7]]]
    ).numpy()

    def votes(seed):
        arrays = {"outputs": outputs[seed], "targets": torch.tensor([0, 0]).numpy()}
        return {"error": 1.0, "arrays": arrays}

    study = Study("v", "", votes, {"a": {}}, {"vote": Column("error", vote=True)})
    found = run(study, store=tmp_path, jobs=1)
    assert found["a", "vote"].tolist() == [50.0]
    with Store(tmp_path) as store:
        assert len(store) == 4
