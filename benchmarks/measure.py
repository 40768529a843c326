"""What the benchmarks measure: time, interleaved so that all sides meet the same machine, and bytes kept."""

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).with_name("results.json")
LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}


def device_asked_for(description: str | None) -> torch.device:
    """What ``--device`` says, the CPU by default; new tensors are on it from now on."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cpu", help="where to measure: cpu, cuda, mps")
    device = torch.device(parser.parse_args().device)
    torch.set_default_device(device)
    return device


def synchronize() -> None:
    """Wait for the default device to finish what it was given."""
    kind = torch.get_default_device().type
    if kind != "cpu":
        torch.get_device_module(kind).synchronize()


@contextlib.contextmanager
def threads(count: int):
    """Compute with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def interleaved(
    sides: dict[str, Callable[[], object]],
    repeats: int,
    reuse: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds of each side over ``repeats`` rounds, after one round that does not count.

    With one thread on a busy machine, ``time.process_time`` as ``clock`` counts what the processor did for us alone.

    glibc hands freed blocks back to the system until it has seen a large one freed. ``reuse`` has it see one, so that
    both sides reuse memory from then on; ratios differ, in both directions.
    """
    if reuse:
        torch.empty(31 << 20, dtype=torch.uint8, device="cpu")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 + repeats):
        for name, side in sides.items():
            begin = clock()
            side()
            synchronize()
            seconds[name].append(clock() - begin)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def training_step(net: nn.Module, images: Tensor, labels: Tensor, **options: Any) -> Callable[[], None]:
    """A step of SGD on one batch; ``options`` are those of the optimizer."""
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, **options)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return step


def saved_bytes(forward: Callable[[], object], exclude: Iterable[Tensor] = ()) -> int:
    """The bytes of the distinct storages that ``forward`` keeps for backward, those of ``exclude`` not counted."""
    excluded = {tensor.untyped_storage().data_ptr() for tensor in exclude}
    kept: dict[int, torch.UntypedStorage] = {}  # holding them keeps their addresses from being used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor.detach()  # an output would refer to its graph, and the graph to it: never freed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for address, storage in kept.items() if address not in excluded)


def held_bytes(forward: Callable[[], Tensor]) -> int:
    """The memory that a forward pass holds when it is done, for backward, whoever holds it; its output included."""
    if torch.get_default_device().type == "cuda":
        before = torch.cuda.memory_allocated()
        output = forward()
        return torch.cuda.memory_allocated() - before if output is not None else 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        output = forward()
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    del output  # alive until here
    return sum(event.nbytes() for event in events)


@dataclass(frozen=True)
class Row:
    """One measured ratio, ours over theirs, and the bar that it must not exceed."""

    case: str
    measure: str
    ours: float
    theirs: float
    bar: float

    @property
    def ratio(self) -> float:
        """What must not exceed the bar."""
        return self.ours / self.theirs


def report(name: str, rows: list[Row], **more: object) -> None:
    """Print the rows as a table of ratios and keep them, and whatever more there is, in results.json."""
    width = max(len(row.case) for row in rows)
    print(f"{name:{width}}  measure    ratio    bar")
    for row in rows:
        verdict = "" if row.ratio <= row.bar else "  over"
        print(f"{row.case:{width}}  {row.measure:8} {row.ratio:7.3f} {row.bar:6.2f}{verdict}")
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found[name] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": str(torch.get_default_device()),
        "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        **more,
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
