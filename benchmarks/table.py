"""The table of measured ratios in docs/benchmarks.md, and its rows that README.md has, from results.json.

python benchmarks/table.py
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

from measure import RESULTS

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
MARKS = "<!-- benchmarks -->\n", "<!-- /benchmarks -->"
DEPTH_MARKS = "<!-- depth -->\n", "<!-- /depth -->"


class Claim(NamedTuple):
    """Rows of a benchmark that say one thing."""

    benchmark: str
    case: str  # how their names begin
    measure: str
    what: str
    against: str
    bound: bool = False  # what nothing can go below: over the bar, it says that the bar is out of reach


PUBLISHED = "sin, cos, cumprod, concatenation"
EXAMINED = "examination of 25M, 134M and 671M weights"
PASSES = "one forward and backward pass of 32 images"
PAIR = "one convolution a pair of layers"
LINEAR, REUSED = "nn.Linear with ReLU", ", memory reused"
STEP_64, STEP_256, STEP_4096 = (
    f"training step of GeometricLinear({size}, {size}), batch {batch}"
    for size, batch in ((1024, 64), (1024, 256), (4096, 64))
)
STEPS = {
    "GeometricLinear(1024, 1024) with ReLU, batch 64": STEP_64,
    "GeometricLinear(1024, 1024) with ReLU, batch 256": STEP_256,
    "GeometricLinear(4096, 4096) with ReLU, batch 64": STEP_4096,
}
MEMORY = (("time", ""), ("reusing", REUSED))
LAYERS_200, CHECKPOINT, SEGMENTS = (
    "64 channels, depth 200 / ",
    "checkpoint per layer",
    "checkpoint in segments",
)
CLAIMS = [
    *(
        Claim("units", function, measure, f"{what}{memory}", PUBLISHED)
        for function, what in (
            ("unit_vector", "weights from angles"),
            ("direction", "weights from latitudes, as layers store them"),
        )
        for measure, memory in MEMORY
    ),
    Claim("units", "unit_vector", "bytes", "memory of weights from angles", PUBLISHED),
    Claim("units", "direction", "bytes", "memory of weights from latitudes", PUBLISHED),
    Claim("units", "crelu", "time", "CReLU", "two ReLUs and a concatenation"),
    Claim("units", "crelu", "bytes", "memory of CReLU", "two ReLUs and a concatenation"),
    Claim("units", "training step", "time", "training step of a geometric VGG-6", "standard weights"),
    Claim("propagation", "linear 256", "time", "100 layers by Nesterov's rule, linear", "plain layers"),
    Claim("propagation", "conv", "time", "100 layers by Nesterov's rule, convolutions", "plain layers"),
    Claim("propagation", "linear: sum", "time", "Nesterov's rule as a running sum", "a sum over all layers"),
    *(
        Claim("layers", f"{case}: training step", measure, f"{what}{memory}", LINEAR)
        for case, what in STEPS.items()
        for measure, memory in MEMORY
    ),
    Claim("layers", "GeometricLinear", "time", "evaluation of GeometricLinear with ReLU", LINEAR),
    Claim("layers", "GeometricLinear", "reusing", "evaluation of GeometricLinear" + REUSED, LINEAR),
    Claim("layers", "CReLU", "time", "training step with CReLU", "ReLU, twice the filters"),
    Claim("layers", "MeanNorm", "time", "training step with MeanNorm", "batch norm"),
    Claim(
        "reversible", "8 channels", "time", "reversible step, 30 layers of 8 channels", "ordinary, float32"
    ),
    *(
        Claim("reversible", bound, "time", f"lower bound of it: {bound}", "ordinary, float32", bound=True)
        for bound in ("recomputation alone", "recomputation and sums")
    ),
    Claim(
        "reversible",
        LAYERS_200 + "checkpoint per",
        "time",
        "reversible step, 200 layers of 64 channels",
        CHECKPOINT,
    ),
    Claim(
        "reversible",
        LAYERS_200 + "checkpoint per",
        "bytes",
        "memory of 200 reversible layers of 64 channels",
        CHECKPOINT,
    ),
    Claim(
        "reversible",
        LAYERS_200 + "checkpoint in",
        "time",
        "reversible step, 200 layers of 64 channels",
        SEGMENTS,
    ),
    Claim(
        "reversible",
        LAYERS_200 + "ordinary",
        "time",
        "reversible step, 200 layers of 64 channels",
        "ordinary, float32",
    ),
    Claim(
        "reversible",
        "64 channels, depth 10",
        "time",
        "reversible step, 10 layers of 64 channels",
        "ordinary, float32",
    ),
    Claim("reversible", "reversible, depth", "bytes", "memory of 200 reversible layers", "10 of them"),
    Claim("reversible", "reversible / ordinary, float64", "time", "reversible step", "same state, ordinary"),
    Claim("reversible", "reversible / ordinary, float32", "time", "reversible step", "float32, ordinary"),
    Claim(
        "reversible",
        "gradient error",
        "error",
        "gradient error of 1000 reversible layers",
        "1e-5 of the same state, ordinary",
    ),
    Claim(
        "models", "AGD-Net / DenseNet", "time", "step of AGD-Net, both layouts, 1 and 2 threads", "DenseNet"
    ),
    Claim("models", "AGD-Net (k = 12, L = 40) / DenseNet", "time", "step of AGD-Net", "DenseNet"),
    Claim("models", "AGD-Net (k = 12, L = 40) / one", "time", "step of AGD-Net, batches of 2 to 64", PAIR),
    Claim("inspection", "reconstruct", "seconds", "reconstruction of a 224x224 image", "its limit, seconds"),
    Claim("inspection", "reconstruct", "MB", "memory of the reconstruction", "its limit"),
    Claim("inspection", "reconstruct", "lost", "what the reconstruction loses", "its limit"),
    Claim("inspection", "pairing 100,000", "MB", "memory to pair 100,000 filters", "its limit"),
    Claim("inspection", "pairing 16,384", "time", "pairing of 16,384 filters", "the matrix product alone"),
    Claim("inspection", "pairing 16,384", "MB", "memory to pair 16,384 filters of 4,096", "its limit"),
    Claim("inspection", "training", "time", "training with a BoundaryTracker", "without"),
    *(
        Claim("inspection", f"examine against {other}", "time", EXAMINED, against)
        for other, against in (
            ("a plain pass", "a plain pass over the data"),
            ("hooks", "hooks that collect statistics"),
            ("captum", "captum's LayerActivation"),
            ("torchlens", "a trace by torchlens"),
        )
    ),
    Claim("inspection", "examine, memory", "MB", "memory of it for 4 x the data", "its limit"),
    Claim("inspection", "examine", "seconds", "examination of ResNet-50", "its limit, seconds"),
    Claim("inspection", "examine", "layers", "rectified layers that it finds", "those there are"),
    *(
        Claim("convert", f"{name}, {network}", "time", f"{name} of {what}", against)
        for name in ("to_crelu", "to_geometric", "to_heavy_ball", "fuse")
        for network, what, against in (
            ("1000 layers against 100", "1,000 layers", "of 100 layers"),
            ("100 layers", "100 layers", PASSES),
            ("ResNet-152", "ResNet-152", PASSES),
            ("DenseNet-201", "DenseNet-201", PASSES),
        )
    ),
    Claim("convert", "", "time", "inference of fused networks", "the originals"),
    Claim("ensemble", "gmp/mlp1-sp: loop", "time", "60 networks as one", "a loop, two threads"),
    Claim("ensemble", "gmp/mlp1-sp: two", "time", "60 networks as one", "two processes"),
    Claim("ensemble", "gmp/mlp1-gmp: loop", "time", "60 geometric networks as one", "a loop, two threads"),
    Claim("ensemble", "gmp/mlp1-gmp: two", "time", "60 geometric networks as one", "two processes"),
    Claim(
        "training", "ResNet-20, 32 pixels: fit, comp", "time", "step of ResNet-20, compiled", "a plain loop"
    ),
    Claim("training", "ResNet-20, 32 pixels: fit", "time", "step of ResNet-20", "a plain loop"),
    Claim(
        "training",
        "ResNet-20, half width, 16 pixels: fit, comp",
        "time",
        "small ResNet-20, compiled",
        "a plain loop",
    ),
    Claim(
        "training",
        "ResNet-20, half width, 16 pixels: fit",
        "time",
        "step of a small ResNet-20",
        "a plain loop",
    ),
    *(
        Claim(
            "training",
            f"{case}: convolutions, passes of batch norms",
            "time",
            f"lower bound of the {what}: convolutions, passes of batch norms",
            "a plain loop",
            bound=True,
        )
        for case, what in (
            ("ResNet-20, 32 pixels", "step of ResNet-20"),
            ("ResNet-20, half width, 16 pixels", "step of a small ResNet-20"),
        )
    ),
    Claim("pipeline", "batch of 128, per-sample", "time", "augmentation of CIFAR-10", "Pillow, one by one"),
    Claim("pipeline", "batch of 128, step", "time", "augmentation of CIFAR-10", "a step of VGG-6"),
]

# What a user cares about most.
SHORT = (
    ("training step with CReLU", "ReLU, twice the filters"),
    (STEP_256, LINEAR),
    ("evaluation of GeometricLinear with ReLU", LINEAR),
    ("reversible step, 200 layers of 64 channels", CHECKPOINT),
    ("memory of 200 reversible layers of 64 channels", CHECKPOINT),
)


def table(short: bool = False) -> str:
    """The claims, or those of `SHORT`, as a Markdown table; every measured row belongs to one of them."""
    found = json.loads(RESULTS.read_text())
    rows = {(name, row["case"], row["measure"]): row for name, each in found.items() for row in each["rows"]}
    lines = ["| ours | against | ratio | bar |", "|---|---|---|---|"]
    for claim in CLAIMS:
        mine = [key for key in rows if _belongs(key, claim)]
        taken = [rows.pop(key) for key in mine]
        if taken and (not short or (claim.what, claim.against) in SHORT):
            beyond = (all if claim.bound else any)(row["ratio"] > row["bar"] for row in taken)
            ratios = sorted(row["ratio"] for row in taken)
            ends = (_digits(ratios[0], taken[0]["bar"]), _digits(ratios[-1], taken[0]["bar"]))
            shown = " to ".join(dict.fromkeys(ends))
            over = (" (bar out of reach)" if claim.bound else " (over)") if beyond else ""
            lines.append(f"| {claim.what} | {claim.against} | {shown}{over} | {taken[0]['bar']:.3g} |")
    if rows:
        raise ValueError(f"no claim for {', '.join(map(str, rows))}: add it to CLAIMS")
    return "\n".join(lines) + "\n"


def _digits(ratio: float, bar: float) -> str:
    """The ratio in three digits, or in as many as tell on which side of its bar it is."""
    return next(
        (text for digits in range(3, 9) if (float(text := f"{ratio:.{digits}g}") > bar) == (ratio > bar)),
        f"{ratio:g}",
    )


def missed() -> str:
    """How many bars are missed, lower bounds aside, in a sentence."""
    kept = [line for line in table().splitlines()[2:] if not line.startswith("| lower bound")]
    return f"In all, {sum('(over)' in line for line in kept)} of {len(kept)} bars are missed.\n"


def _belongs(key: tuple[str, str, str], claim: Claim) -> bool:
    benchmark, case, measure = key
    return (benchmark, measure) == (claim.benchmark, claim.measure) and case.startswith(claim.case)


def over_depth() -> str:
    """Time and memory of a reversible stage over those of the others, by depth, as a Markdown table."""
    rows = json.loads(RESULTS.read_text())["reversible"]["over_depth"]["compared"]
    sides = ["ordinary", CHECKPOINT, SEGMENTS]
    lines = [f"| layers | depth | memory | {' | '.join(sides)} |", "|---" * (3 + len(sides)) + "|"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for row in sorted(rows, key=lambda row: (cases.index(row["case"]), row["depth"])):
        seconds, held = row["seconds"], row["bytes"]
        ratios = [[each["reversible"] / each[side] for each in (seconds, held)] for side in sides]
        shown = " | ".join(f"{time:.2g}, {memory:.2g}" for time, memory in ratios)
        lines.append(f"| {row['case']} | {row['depth']} | {held['reversible'] / 2**20:.2g} MB | {shown} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, short: bool = False) -> str:
    """The text with the tables between their marks, and the number of bars that are missed."""
    text = _between(MARKS, f"{table(short)}\n{missed()}", text)
    return _between(DEPTH_MARKS, over_depth(), text)


def _between(marks: tuple[str, str], new: str, text: str) -> str:
    begin, end = marks
    return re.sub(f"(?<={begin}).*?(?={end})", lambda _: new, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
    README.write_text(with_table(README.read_text(), short=True))
