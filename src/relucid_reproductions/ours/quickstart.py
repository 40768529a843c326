"""The quickstart: what each idea is good for, measured in minutes on two cores."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from relucid.experiments import Claim, Column, Results, Scale, Study, at_most, higher, lower, merge, runner
from relucid_reproductions.gmp.evolution import LARGE
from relucid_reproductions.ours import depth, moons, recommender
from relucid_reproductions.ours.quickstart_page import (
    BOUNDARIES,
    CHANGING,
    DEPTH,
    ERROR,
    FIRST,
    KEPT,
    LAYERS,
    LIKED,
    METHODS,
    RECOMMENDERS,
    STEP,
    TURN,
    quickstart_page,
)
from relucid_reproductions.ours.recommender import CONVERTED, CRELU, NEW, NORM_DECAY, RELU, TANH, conversions

OTHERS = [row for row in METHODS if row != "geometric"]
CONSTANT = 0.5  # megabytes


@runner("quickstart", version=4)
def run(part: str, **config: Any) -> Any:
    """Execute one run of a part: its own settings, and those of its row."""
    settings = config[part] | {name: value for name, value in config.items() if name not in FULL}
    parts: dict[str, Callable[..., Any]] = {
        "recommender": recommender.run,
        "moons": moons.run,
        "depth": depth.run,
    }
    return parts[part](**settings)


FULL: dict[str, Any] = {
    "recommender": {**recommender.SIZES, "seeds": range(300, 304)},
    "moons": {"seed": 0, "first": 10, "splits": 8, "epochs": 60},
    "depth": {"seeds": range(10, 13), "channels": 16, "batch": 16, "steps": 2},
}
SMOKE: dict[str, Any] = {
    "recommender": {**recommender.SMOKE, "seeds": [300, 301]},
    "moons": {"splits": 2, "epochs": 1},
    "depth": {"seeds": [0], "channels": 4, "batch": 2, "steps": 1},
}
ROWS: dict[str, dict[str, Any]] = {
    **{row: {"part": "recommender", **recommender.recommender.rows[row]} for row in RECOMMENDERS},
    **{row: {"part": "moons", "method": method, "rate": LARGE} for row, method in METHODS.items()},
    **{row: {"part": "depth", "layers": layers} for row, layers in LAYERS.items()},
}
# The block of quickstart.md about a claim; another one has its details.
BLOCKS = {CHANGING: "changing", BOUNDARIES: "boundaries", DEPTH: "depth"}


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


def converted(results: Results) -> str:
    """When agents were converted, as text."""
    phases = conversions(results, CONVERTED, LIKED)
    return f"after phase {' or '.join(map(str, phases))}" if phases else "which did not come here"


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
        "One line of code for a network that has stopped learning",
        run,
        ROWS,
        {
            LIKED: Column("reward", best="highest", digits=1),
            FIRST: Column("first", best="highest", digits=1),
            TURN: Column("turn", digits=0),
            ERROR: Column("error", digits=1),
            **{column: Column(f"kept {side}") for side, column in KEPT.items()},
            **{column: Column(f"step {side}", best=None, digits=0) for side, column in STEP.items()},
        },
        {"full": Scale(FULL), "smoke": Scale(merge(FULL, SMOKE))},
        repeat={},
        claims=[
            Claim(
                CHANGING,
                "Converted by to_crelu when the warning comes, a recommender whose users change tastes earns more "
                "than left alone, than a new network at every change, and than with layer norm and L2.",
                higher(CONVERTED, (RELU, NEW, NORM_DECAY), LIKED),
            ),
            Claim(
                f"{CHANGING}: tanh",
                "Converted, it earns more in the last four phases than with tanh from the start.",
                higher(CONVERTED, TANH, LIKED),
            ),
            Claim(
                f"{CHANGING}: from the start",
                "With CReLU from the start it earns more still.",
                higher(CRELU, CONVERTED, LIKED),
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
