"""The table of measured ratios in docs/benchmarks.md, from results.json: those that miss their target come first.

python benchmarks/table.py
"""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from measure import RESULTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
MARKS = "<!-- benchmarks -->\n", "<!-- /benchmarks -->"
DEPTH_MARKS = "<!-- depth -->\n", "<!-- /depth -->"


class Claim(NamedTuple):
    """Rows of a benchmark that say one thing."""

    benchmark: str
    case: str  # how their names begin; * stands for anything
    measure: str
    what: str
    against: str
    bound: bool = False  # what nothing can go below; measured beside it, and not on the page


PUBLISHED, TWO_RELUS = "sin, cos, cumprod, cat", "two ReLUs and a concatenation"
EXAMINED = "examination of 25M, 134M and 671M weights"
PASSES = "a forward pass of the example"
PAIR = "one convolution per pair"
LINEAR, PLAIN, ORDINARY, LOOP = "nn.Linear with ReLU", "plain layers", "ordinary, float32", "a plain loop"
CHECKPOINT, SEGMENTS = "checkpoint per layer", "checkpoint in segments"
LAYERS_200, STEP_200 = "64 channels, depth 200 / ", "reversible step, 200 layers of 64 channels"
MEMORY = (("time", ""), ("reusing", ", memory reused"))
SMALL = "ResNet-20, half width, 16 pixels"
DEPTHS = (10, 1000)  # on the page; results.json has more
BOUND = "convolutions, passes of batch norms"
SIZES = {
    **dict.fromkeys((64, 100, 256, 1024), ", batches to 1024"),
    4096: ", batch 64",
}
STANDARD = "standard weights"
NETWORKS = (
    *("MLP 16-100-10, batch 7494", "MLP 784-256-256-256-10, batch 128"),
    *("VGG-6, half width, batch 32", "ResNet-20, batch 32"),
)

# The claims of each benchmark, without its name.
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "units": [
        *(
            (function, measure, f"{what}{memory}", PUBLISHED)
            for function, what in (
                ("unit_vector", "weights from angles"),
                ("direction", "weights from latitudes, as in layers"),
            )
            for measure, memory in MEMORY
        ),
        ("unit_vector", "bytes", "memory of weights from angles", PUBLISHED),
        ("direction", "bytes", "memory of weights from latitudes", PUBLISHED),
        ("crelu", "time", "CReLU", TWO_RELUS),
        ("crelu", "bytes", "memory of CReLU", TWO_RELUS),
        ("training step", "time", "training step of a geometric VGG-6", "standard weights"),
    ],
    "propagation": [
        ("linear 256", "time", "100 layers by Nesterov's rule, linear", PLAIN),
        ("conv", "time", "100 layers by Nesterov's rule, convolutions", PLAIN),
        ("linear: sum", "time", "Nesterov's rule as a running sum", "a sum over all layers"),
    ],
    "layers": [
        *(
            (f"GeometricLinear({size}, *: {part}", measure, f"{what}{memory}", LINEAR, *bound)
            for measure, memory in MEMORY
            for size, batches in SIZES.items()
            for part, what, *bound in (
                ("training step", f"step of GeometricLinear({size}, {size}){batches}"),
                ("floor", "lower bound of it: sin, cos, cumprod, cumsum", True),
            )
        ),
        *(
            row
            for name in NETWORKS
            for row in (
                (f"{name}, geometric: training", "time", f"step of {name}, geometric", STANDARD),
                (f"{name}, geometric: floor", "time", "lower bound of it", STANDARD, True),
            )
        ),
        ("*, geometric: evaluation", "time", "evaluation of these", STANDARD),
        ("GeometricLinear", "time", "evaluation of GeometricLinear", LINEAR),
        ("GeometricLinear", "reusing", "evaluation of GeometricLinear, memory reused", LINEAR),
        ("CReLU", "time", "training step with CReLU", "ReLU, twice the filters"),
        ("MeanNorm", "time", "training step with MeanNorm", "batch norm"),
    ],
    "reversible": [
        ("8 channels", "time", "reversible step, 30 layers of 8 channels", ORDINARY),
        ("recomputation alone", "time", "lower bound of it: recomputation alone", ORDINARY, True),
        ("recomputation and sums", "time", "lower bound of it: recomputation and sums", ORDINARY, True),
        (f"{LAYERS_200}checkpoint per", "time", STEP_200, CHECKPOINT),
        (
            f"{LAYERS_200}checkpoint per",
            "bytes",
            "memory of 200 reversible layers of 64 channels",
            CHECKPOINT,
        ),
        (f"{LAYERS_200}checkpoint in", "time", STEP_200, SEGMENTS),
        (f"{LAYERS_200}ordinary", "time", STEP_200, ORDINARY),
        ("64 channels, depth 10", "time", "reversible step, 10 layers of 64 channels", ORDINARY),
        (
            *("gradient error", "error", "gradient error of 1000 reversible layers"),
            "1e-5 of the same state, ordinary",
        ),
    ],
    "models": [
        ("AGD-Net / DenseNet", "time", "step of AGD-Net, both layouts, 1 and 2 threads", "DenseNet"),
        ("AGD-Net (k = 12, L = 40) / DenseNet", "time", "step of AGD-Net", "DenseNet"),
        ("AGD-Net (k = 12, L = 40) / one", "time", "step of AGD-Net, batches of 2 to 64", PAIR),
    ],
    "inspection": [
        ("reconstruct", "seconds", "reconstruction of a 224x224 image", "its limit, seconds"),
        ("reconstruct", "MB", "memory of the reconstruction", "its limit"),
        ("reconstruct", "lost", "what the reconstruction loses", "its limit"),
        ("pairing 100,000", "MB", "memory to pair 100,000 filters", "its limit"),
        ("pairing 16,384", "time", "pairing of 16,384 filters", "the matrix product alone"),
        ("pairing 16,384", "MB", "memory to pair 16,384 filters of 4,096", "its limit"),
        ("training", "time", "training with a BoundaryTracker", "without"),
        ("examine against a plain pass", "time", EXAMINED, "a plain pass over the data"),
        ("examine against hooks", "time", EXAMINED, "hooks that collect statistics"),
        ("examine against captum", "time", EXAMINED, "captum's LayerActivation"),
        ("examine against torchlens", "time", EXAMINED, "a trace by torchlens"),
        ("examine, memory", "MB", "memory of it for 4 x the data", "its limit"),
        ("examine", "seconds", "examination of ResNet-50", "its limit, seconds"),
        ("examine", "layers", "rectified layers that it finds", "those there are"),
    ],
    "convert": [
        *(
            (f"{name}, {network}", "time", f"{name} of {what}", against)
            for name in ("to_crelu", "to_geometric", "to_heavy_ball", "fuse")
            for network, what, against in (
                ("100 layers", "100 layers", PASSES),
                ("1000 layers", "1,000 layers", PASSES),
                ("ResNet-152", "ResNet-152", PASSES),
                ("DenseNet-201", "DenseNet-201", PASSES),
            )
        ),
        *(
            (f"{name}, {network}", "memory", f"peak memory of {name}, {network}", "the network")
            for name in ("to_crelu", "to_geometric")
            for network in ("large MLP", "ResNet-152", "DenseNet-201")
        ),
        ("vgg6", "time", "inference of a fused VGG-6", "the original"),
        ("resnet20", "time", "inference of a fused ResNet-20", "the original"),
    ],
    "ensemble": [
        (f"gmp/mlp1-{kind}: {other}", "time", f"60 {networks} as one", against)
        for kind, networks in (("sp", "networks"), ("gmp", "geometric networks"))
        for other, against in (("loop", "a loop, two threads"), ("two", "two processes"))
    ],
    "training": [
        ("ResNet-20, 32 pixels: fit, comp", "time", "step of ResNet-20, compiled", LOOP),
        ("ResNet-20, 32 pixels: fit", "time", "step of ResNet-20", LOOP),
        (f"{SMALL}: fit, comp", "time", "small ResNet-20, compiled", LOOP),
        (f"{SMALL}: fit", "time", "step of a small ResNet-20", LOOP),
        (
            f"ResNet-20, 32 pixels: {BOUND}",
            "time",
            f"lower bound of the step of ResNet-20: {BOUND}",
            LOOP,
            True,
        ),
        (f"{SMALL}: {BOUND}", "time", f"lower bound of the step of a small ResNet-20: {BOUND}", LOOP, True),
    ],
    "pipeline": [
        ("batch of 128, per-sample", "time", "augmentation of CIFAR-10", "Pillow, one by one"),
        ("batch of 128, step", "time", "augmentation of CIFAR-10", "a step of VGG-6"),
        ("photographs, one process", "time", "photographs decoded", "Pillow alone"),
        ("photographs, ? workers", "time", "photographs decoded by 0, 1 and 2 workers", "a DataLoader"),
        ("ten crops", "bytes", "ten crops of 20 photographs, ResNet-18", "all crops at once"),
        ("training on", "bytes", "training on 20 photographs, ResNet-18", "a plain loop"),
    ],
}
CLAIMS = [Claim(benchmark, *row) for benchmark, rows in ROWS.items() for row in rows]


def measured() -> list[tuple[Claim, list[dict[str, Any]]]]:
    """The claims with their measured rows; every row belongs to one of them."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = {(name, row["case"], row["measure"]): row for name, each in found.items() for row in each["rows"]}
    taken = [(claim, [rows.pop(key) for key in list(rows) if _belongs(key, claim)]) for claim in CLAIMS]
    if rows:
        raise ValueError(f"no claim for {', '.join(map(str, rows))}: add it to CLAIMS")
    return [(claim, own) for claim, own in taken if own]


def table() -> str:
    """The claims, misses first, without lower bounds and second rows with memory reused."""
    shown = [
        (claim, rows)
        for claim, rows in measured()
        if not claim.bound and not claim.what.endswith(MEMORY[1][1])
    ]
    missed = [(claim, rows) for claim, rows in shown if _misses(rows)]
    met = [pair for pair in shown if pair not in missed]
    lines = [
        f"{len(met)} of {len(shown)} targets are met. Missed:",
        "",
        *_lines(missed),
        "",
        "Met, by what each is compared with:",
        "",
        *_listed(met),
    ]
    return "\n".join(lines) + "\n"


def _lines(claims: list[tuple[Claim, list[dict[str, Any]]]]) -> list[str]:
    lines = [f"| {claim.what} | {claim.against} | {_ratio(rows)} |" for claim, rows in claims]
    return ["| ours | against | ratio (target) |", "|---|---|---|", *lines]


def _listed(claims: list[tuple[Claim, list[dict[str, Any]]]]) -> list[str]:
    sides: dict[str, list[str]] = {}
    for claim, rows in claims:
        sides.setdefault(claim.against, []).append(f"{claim.what}: {_ratio(rows)}")
    return [f"- *{against}*: {'; '.join(ours)}." for against, ours in sides.items()]


def _ratio(rows: list[dict[str, Any]]) -> str:
    ordered = sorted(rows, key=lambda row: float(row["ratio"]))
    ends = " to ".join(dict.fromkeys(_digits(row["ratio"], row["bar"]) for row in (ordered[0], ordered[-1])))
    bars = sorted({float(row["bar"]) for row in rows})
    targets = " to ".join(dict.fromkeys(f"{bar:.3g}" for bar in (bars[0], bars[-1])))
    return f"{ends} ({targets})"


def _misses(rows: list[dict[str, Any]]) -> bool:
    return any(row["ratio"] > row["bar"] for row in rows)


def _digits(ratio: float, target: float) -> str:
    """The ratio in three digits, or in as many as show on which side of its target it is."""
    return next(
        (
            text
            for digits in range(3, 9)
            if (float(text := f"{ratio:.{digits}g}") > target) == (ratio > target)
        ),
        f"{ratio:g}",
    )


def _belongs(key: tuple[str, str, str], claim: Claim) -> bool:
    benchmark, case, measure = key
    return (benchmark, measure) == (claim.benchmark, claim.measure) and fnmatchcase(case, f"{claim.case}*")


def over_depth() -> str:
    """Time and memory of a reversible stage over those of the others, by depth, as a Markdown table."""
    compared = json.loads(RESULTS.read_text(encoding="utf-8"))["reversible"]["over_depth"]["compared"]
    rows = [row for row in compared if row["depth"] in DEPTHS]
    sides = ["ordinary", CHECKPOINT, SEGMENTS]
    lines = [f"| layers | depth | memory | {' | '.join(sides)} |", "|---" * (3 + len(sides)) + "|"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for row in sorted(rows, key=lambda row: (cases.index(row["case"]), row["depth"])):
        seconds, held = row["seconds"], row["bytes"]
        ratios = [[each["reversible"] / each[side] for each in (seconds, held)] for side in sides]
        shown = " | ".join(f"{time:.2g}, {memory:.2g}" for time, memory in ratios)
        lines.append(f"| {row['case']} | {row['depth']} | {held['reversible'] / 2**20:.2g} MB | {shown} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The text with the tables between their marks."""
    return _between(DEPTH_MARKS, over_depth(), _between(MARKS, table(), text))


def _between(marks: tuple[str, str], new: str, text: str) -> str:
    begin, end = marks
    return re.sub(f"(?<={begin}).*?(?={end})", lambda _: new, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")))
