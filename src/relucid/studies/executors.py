"""Where runs are executed: in this process, in processes of this machine, on a Ray or a Dask cluster.

All share the interface of `concurrent.futures`.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

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
    backend: str = "local", jobs: int | None = None, address: str | None = None, threads: int = 1
) -> Any:
    """A context manager that opens a `Pool`.

    Args:
        backend: "local": this process if there is one job, else processes of this machine; "ray" or "dask": a
            cluster.
        jobs: how many runs at a time; by default as many as there are cores for their threads (one, if there is a
            GPU), on a cluster as many as it has cores.
        address: of the cluster; by default one is started on this machine.
        threads: of each run.
    """
    if backend == "ray":
        return _ray(jobs, address, threads)
    if backend == "dask":
        return _dask(jobs, address)
    if backend != "local":
        raise ValueError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}")
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
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(jobs: int | None, address: str | None, threads: int) -> Iterator[Pool]:
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
    # Each task has its own worker; if the worker dies, the task is retried three times before its future fails.
    remote = ray.remote(num_cpus=threads, max_retries=3)(_called)

    def submit(function: Callable[..., Any], *args: Any) -> "Future[Any]":
        future: Future[Any] = remote.remote(function, *args).future()
        return future

    try:
        yield Pool(submit, jobs or max(1, int(ray.cluster_resources()["CPU"]) // threads), submit)
    finally:
        if started:
            ray.shutdown()


@contextmanager
def _dask(jobs: int | None, address: str | None) -> Iterator[Pool]:
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("the backend dask needs Dask: pip install 'dask[distributed]'") from None

    local = {"n_workers": jobs or cores(), "threads_per_worker": 1, "dashboard_address": None}
    with Client(address) if address else Client(**local) as client:
        executor = client.get_executor(pure=False)
        size = jobs or sum(client.ncores().values())
        yield Pool(executor.submit, size, executor.submit)


def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
