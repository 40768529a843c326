"""The same plan on clusters: Ray and Dask, two CPUs each, on this machine."""

import os
import sys
import time
from itertools import pairwise

import pytest

from relucid.experiments import Column, Results, Store, Study, run
from relucid.experiments._catalog import find
from relucid.experiments._executors import executing

STUDY = """
import os, signal
import torch
from torch import nn
from relucid.data import digits
from relucid.experiments import Column, Study
from relucid.train import Recipe, fit

MARK = {mark!r}

def train(units, seed, dies, machine):
    if dies and seed == 1 and not os.path.exists(MARK):
        open(MARK, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(seed)
    data = digits()
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, units), nn.ReLU(), nn.Linear(units, 10))
    fitted = fit(network, data.train, Recipe(epochs=2), seed=seed, machine=machine)
    outputs = {{"outputs": fitted.predict(data.test).numpy()}}
    return {{**fitted.evaluate(data.test), "history": fitted.history, "arrays": outputs}}

study = Study(
    "digits", "Units", train,
    rows={{"16": {{"units": 16}}, "32": {{"units": 32}}}},
    columns={{"error": Column("error"), "loss": Column("loss")}},
    config={{"dies": {dies}}},
    repeat={{"seed": range(2)}},
)
"""


def study(tmp_path, dies=False):
    path = tmp_path / "digits_study.py"
    path.write_text(STUDY.format(mark=str(tmp_path / "died"), dies=dies))
    return find(str(path))


def results(study, store):
    with Store(store) as kept:
        found = Results(study, "full", kept)
        assert [run["error"] for run in found.records.values() if run["state"] != "finished"] == []
        return {cell: tuple(found[cell]) for cell in found.cells}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Ray's and Dask's own making
def test_processes_ray_and_dask_give_identical_numbers(tmp_path):
    units = study(tmp_path)
    run(units, store=tmp_path / "local", jobs=2)
    run(units, store=tmp_path / "ray", executor="ray", jobs=2)
    run(units, store=tmp_path / "dask", executor="dask", jobs=2)
    expected = results(units, tmp_path / "local")
    assert results(units, tmp_path / "ray") == expected
    assert results(units, tmp_path / "dask") == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("executor", ["ray", "dask"])
def test_a_study_finishes_though_a_worker_of_the_cluster_is_killed_in_the_middle_of_a_run(tmp_path, executor):
    units = study(tmp_path, dies=True)
    run(units, store=tmp_path / "killed", executor=executor, jobs=2)
    assert (tmp_path / "died").exists()
    run(units, store=tmp_path / "whole", jobs=1)
    assert results(units, tmp_path / "killed") == results(units, tmp_path / "whole")


@pytest.mark.parametrize("executor, package", [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_without_its_package_is_refused_with_what_to_install(
    tmp_path, monkeypatch, executor, package
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install .*\[{executor}\]"):
        run(study(tmp_path), store=tmp_path, executor=executor)


def work_on_gpu(seed):
    """When it ran, and the GPUs that Ray lets it see."""
    started = time.time()
    time.sleep(0.1)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {"ran": [started, time.time()], "gpus": [float(gpu) for gpu in seen.split(",") if gpu]}


ON_GPUS = Study(
    "gpus",
    "Runs with a GPU each",
    work_on_gpu,
    rows={"any": {}},
    columns={"time": Column("ran"), "gpus": Column("gpus")},
    repeat={"seed": range(4)},
)


def outcomes(store, metric):
    with Store(store) as kept:
        found = [*kept.values()]
    assert [record["error"] for record in found if record["state"] != "finished"] == []
    return [record["metrics"][metric] for record in found]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_each_run_on_ray_sees_a_gpu_of_its_own(tmp_path):
    import ray

    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with executing("ray", gpus_per_run=1) as (_, size):
            assert size == 2
        with executing("ray", gpus_per_run=0.5) as (_, size):
            assert size == 4
        run(ON_GPUS, store=tmp_path, executor="ray", gpus_per_run=1)
        with pytest.raises(ValueError, match="no machine of the cluster has the 3 GPUs"):
            run(ON_GPUS, store=tmp_path / "other", executor="ray", gpus_per_run=3)
    finally:
        ray.shutdown()
    seen = outcomes(tmp_path, "gpus")
    assert [len(gpus) for gpus in seen] == [1] * 4
    assert {gpu for (gpu,) in seen} <= {0, 1}


@pytest.mark.filterwarnings("default")
def test_dask_gives_a_worker_no_more_runs_than_it_has_gpus_for(tmp_path):
    from distributed import LocalCluster

    one = {"n_workers": 1, "threads_per_worker": 4, "processes": False, "dashboard_address": None}
    with LocalCluster(**one, resources={"GPU": 1}) as cluster:
        with executing("dask", address=cluster.scheduler_address, gpus_per_run=0.5) as (_, size):
            assert size == 2
        # More jobs than GPUs: it is Dask that holds the others back.
        run(
            ON_GPUS,
            store=tmp_path,
            executor="dask",
            address=cluster.scheduler_address,
            jobs=4,
            gpus_per_run=1,
        )
        with pytest.raises(ValueError, match="no machine of the cluster has the 2 GPUs"):
            run(
                ON_GPUS,
                store=tmp_path / "a",
                executor="dask",
                address=cluster.scheduler_address,
                gpus_per_run=2,
            )
    times = sorted(outcomes(tmp_path, "ran"))
    assert all(ended <= started for (_, ended), (started, _) in pairwise(times))


@pytest.mark.parametrize(
    "executor, gpus, why",
    [("local", 1, "does not assign GPUs"), ("ray", 1.5, "1.5 is neither")],
)
def test_gpus_that_cannot_be_assigned_are_refused(tmp_path, executor, gpus, why):
    with pytest.raises(ValueError, match=why):
        run(ON_GPUS, store=tmp_path, executor=executor, gpus_per_run=gpus)
