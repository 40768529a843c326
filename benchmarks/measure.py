"""What the benchmarks measure: time, interleaved so that all sides meet the same machine, and bytes kept."""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

RESULTS = Path(__file__).with_name("results.json")


def interleaved(sides: dict[str, Callable[[], object]], repeats: int, reuse: bool = True) -> dict[str, float]:
    """The median seconds of each side over ``repeats`` rounds, after one round that does not count.

    glibc hands freed blocks back to the system until it has seen a large one freed. ``reuse`` has it see one, so that
    both sides reuse memory from then on; ratios differ, in both directions.
    """
    if reuse:
        torch.empty(31 << 20, dtype=torch.uint8)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 + repeats):
        for name, side in sides.items():
            begin = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


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
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found[name] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        **more,
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
