"""Where runs are executed: in this process, in processes of this machine, on a Ray or a Dask cluster.

All share the interface of `concurrent.futures`.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from relucid.memory import keep_memory

BACKENDS = ("local", "ray", "dask")


@dataclass(frozen=True)
class Pool:
    """Workers that execute a fixed number of functions at a time.

    Args:
        submit: executes a function.
        size: how many at a time.
        alone: executes a function in a process of its own: if the process dies, this function killed it.
    """

    submit: Callable[..., "Future[Any]"]
    size: int
    alone: Callable[..., "Future[Any]"]


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


def pool(
    backend: str = "local",
    jobs: int | None = None,
    address: str | None = None,
    threads: int = 1,
    gpus_per_run: float = 0,
) -> Any:
    """A context manager that opens a `Pool`.

    Args:
        backend: "local": this process if there is one job, else processes of this machine; "ray" or "dask": a
            cluster.
        jobs: how many runs at a time; by default as many as there are cores for their threads (one, if there is a
            GPU), on a cluster as many as it has cores and GPUs for.
        address: of the cluster; by default one is started on this machine.
        threads: of each run.
        gpus_per_run: GPUs that the cluster reserves for each run; 0.5 lets two runs share one. Ray shows a run its
            own GPUs and no others. Dask counts them by the resource "GPU" that its workers declare.
    """
    if gpus_per_run > 1 and gpus_per_run % 1:
        raise ValueError(f"a run has whole GPUs or shares one with others; {gpus_per_run:g} is neither")
    if backend == "ray":
        return _ray(jobs, address, threads, gpus_per_run)
    if backend == "dask":
        return _dask(jobs, address, gpus_per_run)
    if backend != "local":
        raise ValueError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}")
    if gpus_per_run:
        raise ValueError(
            "the local backend does not assign GPUs; ray does, on one machine too: backend 'ray' without an address"
        )
    jobs = jobs or (1 if torch.cuda.is_available() else max(1, cores() // threads))
    return _here() if jobs == 1 else _processes(jobs)


def cores() -> int:
    """The number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


class _Here(Executor):
    """Executor that runs functions immediately, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


@contextmanager
def _here() -> Iterator[Pool]:
    yield Pool(_Here().submit, 1, _Here().submit)


@contextmanager
def _processes(jobs: int) -> Iterator[Pool]:
    from joblib.externals.loky import ProcessPoolExecutor, get_reusable_executor

    settings = {"initializer": _prepare_worker, "initargs": (os.getpid(),)}
    lonely: list[tuple[Future[Any], Any]] = []

    def submit(function: Callable[..., Any], *args: Any) -> "Future[Any]":
        # Requested for every task: this replaces workers that have died. One may still die in between.
        for _ in range(jobs):
            with suppress(BrokenExecutor):
                return _submitted(get_reusable_executor(jobs, **settings), function, *args)
        return _submitted(get_reusable_executor(jobs, **settings), function, *args)

    def alone(function: Callable[..., Any], *args: Any) -> "Future[Any]":
        for future, executor in [each for each in lonely if each[0].done()]:
            executor.shutdown(wait=True)
            lonely.remove((future, executor))
        executor = ProcessPoolExecutor(1, **settings)
        lonely.append((_submitted(executor, function, *args), executor))
        return lonely[-1][0]

    with warnings.catch_warnings():
        # loky replaces workers when their memory has grown, for example after loading images.
        warnings.filterwarnings(
            "ignore", message="A worker stopped while some jobs were given", category=UserWarning
        )
        try:
            yield Pool(submit, jobs, alone)
        finally:
            for executor in (get_reusable_executor(jobs, **settings), *(each for _, each in lonely)):
                executor.shutdown(wait=True, kill_workers=True)


def _submitted(executor: Any, function: Callable[..., Any], *args: Any) -> "Future[Any]":
    future: Future[Any] = executor.submit(function, *args)
    return future


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, do not outlive it, and use freed memory again."""
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(jobs: int | None, address: str | None, threads: int, gpus: float) -> Iterator[Pool]:
    try:
        import ray
    except ImportError:
        raise ValueError("the backend ray needs Ray: pip install 'relucid[ray]'") from None

    started = not ray.is_initialized()
    if started:
        ray.init(
            address=address,
            num_cpus=None if address or not jobs else jobs * threads,
            log_to_driver=False,
            include_dashboard=False,
        )
    try:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = _room(
            (node.get("CPU", 0) / threads for node in nodes), (node.get("GPU", 0) for node in nodes), gpus
        )
        # Each task has its own worker; if the worker dies, the task is retried three times before its future fails.
        remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=3)(_called)

        def submit(function: Callable[..., Any], *args: Any) -> "Future[Any]":
            future: Future[Any] = remote.remote(function, *args).future()
            return future

        yield Pool(submit, jobs or room, submit)
    finally:
        if started:
            ray.shutdown()


@contextmanager
def _dask(jobs: int | None, address: str | None, gpus: float) -> Iterator[Pool]:
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("the backend dask needs Dask: pip install 'dask[distributed]'") from None

    local = {"n_workers": jobs or cores(), "threads_per_worker": 1, "dashboard_address": None}
    with Client(address) if address else Client(**local) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        room = _room(
            (worker["nthreads"] for worker in workers),
            (worker["resources"].get("GPU", 0) for worker in workers),
            gpus,
        )
        executor = client.get_executor(pure=False, resources={"GPU": gpus} if gpus else None)
        submit = partial(executor.submit, _called)
        yield Pool(submit, jobs or room, submit)


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


def _called(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a worker of a cluster."""
    keep_memory()
    return function(*args)
