"""Where runs are executed: in this process, in processes of this machine, on a Ray or a Dask cluster.

Each is a function that submits a call and returns a future of `concurrent.futures`, so that results come back one by
one and none is lost when the driver dies.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from relucid.extras import needed
from relucid.memory import keep_memory

EXECUTORS = ("local", "ray", "dask")
OVERCOMMITTED = 4  # threads of a run per core, at most
Submit = Callable[..., "Future[Any]"]


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
) -> AbstractContextManager[tuple[Submit, int]]:
    """What submits calls while it is open, and how many it executes at a time.

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
        return nullcontext((executor.submit, jobs))
    return nullcontext((_here, 1)) if jobs == 1 else _processes(jobs)


def cores() -> int:
    """The number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def _here(function: Callable[..., Any], /, *args: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


@contextmanager
def _processes(jobs: int) -> Iterator[tuple[Submit, int]]:
    """Processes of loky, each a pool of its own: one that dies breaks no other, and only its run is repeated."""
    from joblib.externals.loky import ProcessPoolExecutor

    pools, idle = list[Any](), list[Any]()

    def start() -> Any:
        pools.append(ProcessPoolExecutor(1, initializer=_prepare_worker, initargs=(os.getpid(),)))
        return pools[-1]

    def submit(function: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        pool = idle.pop() if idle else start()
        try:
            future: Future[Any] = pool.submit(function, *args)
        except BrokenExecutor:  # it has died since
            return submit(function, *args)
        future.add_done_callback(lambda _: idle.append(pool))
        return future

    with warnings.catch_warnings():
        # loky replaces a process when its memory has grown, for example after loading images.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        try:
            yield submit, jobs
        finally:
            for pool in pools:
                pool.shutdown(wait=True, kill_workers=True)


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


@contextmanager
def _ray(jobs: int | None, address: str | None, threads: int, gpus: float) -> Iterator[tuple[Submit, int]]:
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
            yield (lambda *task: remote.remote(*task).future()), jobs or room
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
        before = {name: os.environ[name] for name in told if name in os.environ}
        os.environ |= told
        try:
            yield
        finally:
            for name in told.keys() - before:
                del os.environ[name]
            os.environ |= before


@contextmanager
def _dask(jobs: int | None, address: str | None, threads: int, gpus: float) -> Iterator[tuple[Submit, int]]:
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
        yield partial(executor.submit, _call), jobs or room


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
