"""The same plan on clusters: Ray and Dask, two CPUs each, on this machine."""

import sys

import pytest

from relucid.papers import find
from relucid.studies import run, table

STUDY = """
import os, signal
import torch
from torch import nn
from relucid.data import digits
from relucid.studies import Column, Result, Study
from relucid.train import Recipe, fit

MARK = {mark!r}

def train(config, machine):
    if config["dies"] and config["seed"] == 1 and not os.path.exists(MARK):
        open(MARK, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(config["seed"])
    data = digits()
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, config["units"]), nn.ReLU(), nn.Linear(config["units"], 10))
    fitted = fit(network, data.train, Recipe(epochs=2), seed=config["seed"], machine=machine)
    return Result(fitted.evaluate(data.test), fitted.history, {{"outputs": fitted.predict(data.test).numpy()}})

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
    found = table(study, store=store)
    assert {record["state"] for record in found.runs} == {"finished"}, found.runs[0]["error"]
    return {place: cell.values for place, cell in found.cells.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Ray's and Dask's own making
def test_processes_ray_and_dask_give_identical_numbers(tmp_path):
    units = study(tmp_path)
    run(units, store=tmp_path / "local", jobs=2)
    run(units, store=tmp_path / "ray", backend="ray", jobs=2)
    run(units, store=tmp_path / "dask", backend="dask", jobs=2)
    expected = results(units, tmp_path / "local")
    assert results(units, tmp_path / "ray") == expected
    assert results(units, tmp_path / "dask") == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_study_finishes_though_a_worker_of_the_cluster_is_killed_in_the_middle_of_a_run(tmp_path, backend):
    units = study(tmp_path, dies=True)
    run(units, store=tmp_path / "killed", backend=backend, jobs=2)
    assert (tmp_path / "died").exists()
    run(units, store=tmp_path / "whole", jobs=1)
    assert results(units, tmp_path / "killed") == results(units, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cluster_that_is_there_is_used_by_its_address(tmp_path):
    from distributed import LocalCluster

    units = study(tmp_path)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        run(units, store=tmp_path / "dask", backend="dask", address=cluster.scheduler_address)
    assert [len(found) for found in results(units, tmp_path / "dask").values()] == [2] * 4


@pytest.mark.parametrize(
    "backend, package, advice", [("ray", "ray", "relucid"), ("dask", "distributed", "dask")]
)
def test_a_cluster_without_its_package_is_refused_with_what_to_install(
    tmp_path, monkeypatch, backend, package, advice
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"the backend {backend} needs .*: pip install '{advice}"):
        run(study(tmp_path), store=tmp_path, backend=backend)
