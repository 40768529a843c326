"""Where runs are executed: in this process, in processes of this machine, on a Ray or a Dask cluster.

All are executors in the sense of `concurrent.futures`, so that results come back one by one and none is lost when the
driver dies.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from relucid.extras import needed
from relucid.memory import keep_memory

EXECUTORS = ("local", "ray", "dask")
OVERCOMMITTED = 4  # threads of a run per core, at most


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Limit torch and the libraries behind numpy to this many threads."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def executing(
    executor: str | Executor = "local",
    jobs: int | None = None,
    address: str | None = None,
    threads: int = 1,
    gpus_per_run: float = 0,
) -> AbstractContextManager[tuple[Executor, int]]:
    """An executor while it is open, with the number of runs that it executes at a time.

    Args:
        executor: "local": this process if there is one job, else processes of this machine; "ray" or "dask": a
            cluster; or any executor of yours, which stays open.
        jobs: how many runs at a time; by default as many as there are cores for their threads (one, if there is a
            GPU), on a cluster as many as it has cores and GPUs for.
        address: of the cluster; by default one is started on this machine.
        threads: of each run.
        gpus_per_run: GPUs that the cluster reserves for each run; 0.5 lets two runs share one. Ray shows a run its
            own GPUs and no others. Dask counts them by the resource "GPU" that its workers declare.
    """
    if isinstance(executor, str) and executor not in EXECUTORS:
        raise ValueError(f"there is no executor {executor!r}; there are {', '.join(EXECUTORS)}")
    if not 1 <= threads <= OVERCOMMITTED * cores():
        raise ValueError(
            f"a run has 1 to {OVERCOMMITTED * cores()} threads on {cores()} cores, not {threads}"
        )
    if gpus_per_run > 1 and gpus_per_run % 1:
        raise ValueError(f"a run has whole GPUs or shares one with others; {gpus_per_run:g} is neither")
    if gpus_per_run and executor not in ("ray", "dask"):
        raise ValueError(
            "the local executor does not assign GPUs; ray does, on one machine too: executor 'ray' without an address"
        )
    if executor == "ray":
        return _ray(jobs, address, threads, gpus_per_run)
    if executor == "dask":
        return _dask(jobs, address, threads, gpus_per_run)
    jobs = jobs or (1 if torch.cuda.is_available() else max(1, cores() // threads))
    if isinstance(executor, Executor):
        return nullcontext((executor, jobs))
    return nullcontext((InProcess(), 1)) if jobs == 1 else _processes(jobs)


def cores() -> int:
    """The number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


class InProcess(Executor):
    """An executor that calls functions immediately, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call a function."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


class Processes(Executor):
    """Processes of loky, each a pool of its own: one that dies breaks no other, and only its run is repeated."""

    def __init__(self) -> None:
        self.idle: list[Executor] = []
        self.all: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call a function in an idle process, or in a new one."""
        while self.idle:
            with suppress(BrokenExecutor):  # it has died since
                return self._submitted(self.idle.pop(), function, *args, **kwargs)
        from joblib.externals.loky import ProcessPoolExecutor

        process = ProcessPoolExecutor(1, initializer=_prepare_worker, initargs=(os.getpid(),))
        self.all.append(process)
        return self._submitted(process, function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, whatever they do."""
        for process in self.all:
            process.shutdown(wait=True, kill_workers=True)

    def _submitted(self, process: Executor, *task: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = process.submit(*task, **kwargs)
        future.add_done_callback(lambda _: self.idle.append(process))
        return future


@contextmanager
def _processes(jobs: int) -> Iterator[tuple[Executor, int]]:
    with warnings.catch_warnings(), Processes() as processes:
        # loky replaces a process when its memory has grown, for example after loading images.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        yield processes, jobs


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, do not outlive it, use freed memory again, and let a run start processes."""
    keep_memory()
    multiprocessing.set_start_method(
        None, force=True
    )  # loky's own is not for others: DataLoader's workers fail
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Cluster(Executor):
    """An executor that passes functions on to a cluster."""

    def __init__(self, submit: "Callable[..., Future[Any]]") -> None:
        self._submit = submit

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call a function on the cluster."""
        return self._submit(_call, function, *args, **kwargs)


@contextmanager
def _ray(jobs: int | None, address: str | None, threads: int, gpus: float) -> Iterator[tuple[Executor, int]]:
    with needed("the executor ray", "ray"):
        import ray

    started = not ray.is_initialized()
    with _quiet_ray() if started and not address else nullcontext():
        if started:
            ray.init(
                address=address,
                num_cpus=None if address or not jobs else jobs * threads,
                log_to_driver=False,
                include_dashboard=False,
            )
        try:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            by_core = (node.get("CPU", 0) / threads for node in nodes)
            room = _room(by_core, (node.get("GPU", 0) for node in nodes), gpus)
            # Each task has its own worker; a run whose worker dies is repeated by the study, as with any executor.
            remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0)(_call)
            yield Cluster(lambda _, *task: remote.remote(*task).future()), jobs or room
        finally:
            if started:
                ray.shutdown()


@contextmanager
def _quiet_ray() -> Iterator[None]:
    """Let a Ray that is started here report nothing and ask no cloud who it is.

    Its usage report asks the metadata addresses of clouds before it looks whether it is switched off, unless a file
    in the home directory says that the machines are local.
    """
    with TemporaryDirectory(prefix="relucid-ray-") as home:
        (Path(home) / "ray_bootstrap_config.yaml").write_text(json.dumps({"provider": {"type": "local"}}))
        told = {"RAY_USAGE_STATS_ENABLED": "0", "HOME": home}
        before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def _dask(jobs: int | None, address: str | None, threads: int, gpus: float) -> Iterator[tuple[Executor, int]]:
    with needed("the executor dask", "dask"):
        from distributed import Client

    local = {
        "n_workers": jobs or max(1, cores() // threads),
        "threads_per_worker": 1,
        "dashboard_address": None,
    }
    with Client(address) if address else Client(**local) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        available = (worker["resources"].get("GPU", 0) for worker in workers)
        room = _room((worker["nthreads"] for worker in workers), available, gpus)
        executor = client.get_executor(pure=False, resources={"GPU": gpus} if gpus else None)
        yield Cluster(executor.submit), jobs or room


def _room(cores: Iterable[float], gpus: Iterable[float], gpus_per_run: float) -> int:
    """How many runs fit on machines with room for so many by their cores, and with so many GPUs; at least one.

    >>> _room([8, 8], [4, 1], gpus_per_run=2)
    2
    """
    if not gpus_per_run:
        return max(1, sum(int(each) for each in cores))
    fitting = [min(int(by_core), int(gpu / gpus_per_run)) for by_core, gpu in zip(cores, gpus, strict=True)]
    if not any(fitting):
        raise ValueError(
            f"no machine of the cluster has the {gpus_per_run:g} GPUs that each run is to have; start Ray's with "
            "--num-gpus N, Dask's with --resources GPU=N"
        )
    return sum(fitting)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a worker of a cluster."""
    keep_memory()
    return function(*args)
