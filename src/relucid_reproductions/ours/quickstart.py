"""The quickstart: what each idea is good for, measured in minutes on two cores."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2

from relucid.experiments import Claim, Column, Results, Scale, Study, at_most, higher, lower, merge, runner
from relucid_reproductions.gmp.evolution import LARGE
from relucid_reproductions.ours import depth, mend, moons, plasticity
from relucid_reproductions.ours.mend import CONVERTED, NEW, NEW_CRELU, REDRAWN, UNCHANGED, WAYS, WITHOUT
from relucid_reproductions.ours.plasticity import ARMS, HALF, RELU
from relucid_reproductions.ours.quickstart_page import (
    BOUNDARIES,
    DEAD,
    DEPTH,
    ERROR,
    FIRST,
    FITTED,
    KEPT,
    LAST,
    LAYERS,
    LEARNING,
    LEFT,
    METHODS,
    PARAMETERS,
    REPAIR,
    REPAIRED,
    STEP,
    TURN,
    quickstart_page,
)

OTHERS = [row for row in METHODS if row != "geometric"]
CONSTANT = 0.5  # megabytes


@runner("quickstart", version=3)
def run(part: str, **config: Any) -> Any:
    """Execute one run of a part: its own settings, and those of its row."""
    settings = config[part] | {name: value for name, value in config.items() if name not in FULL}
    if part == "stream":
        return plasticity.run(arm=config["arm"], setting="permuted", sizes={"permuted": config[part]})
    parts: dict[str, Callable[..., Any]] = {"mend": mend.run, "moons": moons.run, "depth": depth.run}
    return parts[part](**settings)


FULL: dict[str, Any] = {
    "stream": {
        "tasks": 60, "rates": [0.001, 0.003, 0.01], "choosing": [110, 111], "seeds": range(10, 16),
        "data": {"digits": 1500, "batch": 16},
    },
    "mend": {
        "rate": 0.001, "before": 20, "after": 8, "seeds": range(10, 16),
        "data": {"digits": 600, "batch": 60, "epochs": 15},
    },
    "moons": {"seed": 0, "first": 10, "splits": 8, "epochs": 60},
    "depth": {"seeds": range(10, 13), "channels": 16, "batch": 16, "steps": 2},
}  # fmt: skip
SMOKE: dict[str, Any] = {
    "stream": {"tasks": 2, "seeds": [0, 1], "data": {"digits": 96}},
    "mend": {"before": 2, "after": 2, "seeds": [0, 1], "data": {"digits": 120, "epochs": 2}},
    "moons": {"splits": 2, "epochs": 1},
    "depth": {"seeds": [0], "channels": 4, "batch": 2, "steps": 1},
}
ROWS: dict[str, dict[str, Any]] = {
    **{row: {"part": "stream", "arm": asdict(ARMS[row])} for row in (RELU, HALF)},
    **{row: {"part": "mend", "way": WAYS[row]} for row in REPAIRED},
    **{row: {"part": "moons", "method": method, "rate": LARGE} for row, method in METHODS.items()},
    **{row: {"part": "depth", "layers": layers} for row, layers in LAYERS.items()},
}
# The block of quickstart.md about a claim; another one has its details.
BLOCKS = {LEARNING: "learning", REPAIR: "repair", BOUNDARIES: "boundaries", DEPTH: "depth"}


def mean(results: Results, row: str, column: str, shown: str = ".0f") -> str:
    """The mean of a cell as text."""
    return f"{results[row, column].mean():{shown}}"


def errors(results: Results) -> str:
    """The least and the largest test error."""
    means = [results[row, ERROR].mean() for row in METHODS]
    return f"{min(means):.1f}% to {max(means):.1f}%"


def worst(results: Results) -> float:
    """The largest difference of gradients, as a share of their length."""
    return max(float(results[row, KEPT["reversible"], "gradients"].max()) for row in LAYERS)


def sentences(results: Results) -> dict[str, tuple[str, str]]:
    """The sentence on each part, and its details, by the place of its claim; none until all runs have finished."""
    finished = {key for key, record in results.records.items() if record["state"] == "finished"}
    if finished != {planned.run.key for planned in results.plan}:
        return {}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    template = environment.from_string(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"))
    context = template.new_context({"results": lambda name: results, "here": sys.modules[__name__]})

    def text(block: str) -> str:
        return " ".join("".join(template.blocks[block](context)).split())

    return {where: (text(block), text(f"{block}_details")) for where, block in BLOCKS.items()}


def page(results: Results) -> str:
    """The quickstart's own page."""
    return quickstart_page(results, sentences(results))


STUDIES = [
    Study(
        "quickstart",
        "Four things that relucid does for a ReLU network",
        run,
        ROWS,
        {
            FIRST: Column("first", best="highest", digits=1),
            LAST: Column("last", best="highest", digits=1),
            FITTED: Column("fitted", best="highest", digits=1),
            LEFT: Column("kept", best="highest", digits=0),
            DEAD: Column("dead", best=None, digits=0),
            PARAMETERS: Column("parameters", best=None, digits=0),
            TURN: Column("turn", digits=0),
            ERROR: Column("error", digits=1),
            **{column: Column(f"kept {side}") for side, column in KEPT.items()},
            **{column: Column(f"step {side}", best=None, digits=0) for side, column in STEP.items()},
        },
        {"full": Scale(FULL), "smoke": Scale(merge(FULL, SMOKE))},
        repeat={},
        tries=FULL["stream"]["rates"],
        claims=[
            Claim(
                LEARNING,
                "Each at its own rate, CReLU with half the units learns the last fifth of the tasks better than ReLU.",
                higher(HALF, RELU, LAST),
            ),
            Claim(
                REPAIR,
                "Converted by to_crelu, with its optimizer's state or without, a network learns the following tasks "
                "better than unchanged, or with its dead units re-initialised.",
                higher((CONVERTED, WITHOUT), (UNCHANGED, REDRAWN), FITTED),
            ),
            Claim(
                f"{REPAIR}: against new networks",
                "Converted, with its optimizer's state or without, the network learns the following tasks better than "
                "new networks, which have forgotten everything: a ReLU network, and a CReLU network of its size.",
                higher((CONVERTED, WITHOUT), (NEW, NEW_CRELU), FITTED),
            ),
            Claim(
                BOUNDARIES,
                "At a large rate, the largest turn of a boundary in a step is smaller for geometric units than for "
                "the others.",
                lower("geometric", OTHERS, TURN),
                kind="construction",
            ),
            Claim(
                f"{BOUNDARIES}: and the error?",
                "At this rate, geometric units have a lower test error than the others.",
                lower("geometric", OTHERS, ERROR),
            ),
            Claim(
                DEPTH,
                f"Reversible heavy ball needs at most {CONSTANT:g} MB for the backward pass, at any depth here.",
                at_most([*LAYERS], CONSTANT, KEPT["reversible"]),
                kind="construction",
            ),
        ],
        page=page,
    )
]
