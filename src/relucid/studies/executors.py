"""Where runs are executed: in this process, in processes of this machine, on a Ray or a Dask cluster.

All of them are used through the interface of `concurrent.futures`, which each of them has.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

BACKENDS = ("local", "ray", "dask")


@dataclass(frozen=True)
class Pool:
    """Something that executes functions, so many at a time."""

    submit: Callable[..., "Future[Any]"]
    size: int


def pool(backend: str = "local", jobs: int | None = None, address: str | None = None) -> Any:
    """A context with a `Pool`.

    Args:
        backend: "local": this process if there is one job, else processes of this machine that share its
            cores; "ray" or "dask": a cluster.
        jobs: how many runs at a time; by default one a core (one, if there is a GPU), on a cluster as many as it
            has cores.
        address: of the cluster; by default one is started on this machine.
    """
    if backend == "ray":
        return _ray(jobs, address)
    if backend == "dask":
        return _dask(jobs, address)
    if backend != "local":
        raise ValueError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}")
    jobs = jobs or (1 if torch.cuda.is_available() else cores())
    return _here() if jobs == 1 else _processes(jobs)


def cores() -> int:
    """How many cores this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


class _Here(Executor):
    """Executes at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


@contextmanager
def _here() -> Iterator[Pool]:
    yield Pool(_Here().submit, 1)


@contextmanager
def _processes(jobs: int) -> Iterator[Pool]:
    from joblib.externals.loky import get_reusable_executor

    threads = max(1, cores() // jobs)
    settings = {
        "max_workers": jobs,
        "initializer": _prepare_worker,
        "initargs": (threads, os.getpid()),
        "env": {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
    }

    def submit(function: Callable[..., Any], *args: Any) -> "Future[Any]":
        # Asked for anew every time: where a worker has died, this makes new ones.
        future: Future[Any] = get_reusable_executor(**settings).submit(function, *args)
        return future

    with warnings.catch_warnings():
        # loky replaces a worker whose memory has grown, as that of one that has loaded images has.
        warnings.filterwarnings(
            "ignore", message="A worker stopped while some jobs were given", category=UserWarning
        )
        try:
            yield Pool(submit, jobs)
        finally:
            get_reusable_executor(**settings).shutdown(wait=True, kill_workers=True)


def _prepare_worker(threads: int, parent: int) -> None:
    """Use so many threads, leave Ctrl-C to the parent, and do not outlive it."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(jobs: int | None, address: str | None) -> Iterator[Pool]:
    try:
        import ray
    except ImportError:
        raise ValueError("the backend ray needs Ray: pip install 'relucid[ray]'") from None

    started = not ray.is_initialized()
    if started:
        ray.init(
            address=address, num_cpus=None if address else jobs, log_to_driver=False, include_dashboard=False
        )
    # A task whose worker dies is tried again, three times, before its future fails.
    remote = ray.remote(num_cpus=1, max_retries=3)(_with_one_thread)
    try:
        size = jobs or int(ray.cluster_resources()["CPU"])
        yield Pool(lambda function, *args: remote.remote(function, *args).future(), size)
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
        yield Pool(lambda function, *args: executor.submit(_with_one_thread, function, *args), size)


def _with_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    torch.set_num_threads(1)  # a cluster counts on a task to use one core
    return function(*args)
