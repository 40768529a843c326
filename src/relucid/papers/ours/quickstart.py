"""The quickstart: what each idea is good for, measured in minutes on two cores."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from relucid.papers.gmp.evolution import LARGE
from relucid.papers.ours import depth, findings, mend, moons, plasticity
from relucid.papers.ours.mend import CONVERTED, NEW, NEW_CRELU, RENEWED, UNCHANGED, WAYS, WITHOUT
from relucid.papers.ours.plasticity import ARMS, HALF, RELU
from relucid.papers.ours.quickstart_page import quickstart_page
from relucid.studies import AtMost, Claim, Column, Higher, Lower, Result, Runner, Scale, Study


def run(config: dict[str, Any]) -> Result:
    """Execute one run of the part that its configuration names."""
    part = config["part"]
    sized = {**config, **config[part]}
    if part == "stream":
        return plasticity.run({**config, "setting": "permuted", "sizes": {"permuted": config["stream"]}})
    return {"mend": mend.run, "moons": moons.run, "depth": depth.run}[part](sized)


RUNNER = Runner("quickstart", run, version=3)
OTHERS = tuple(row for row in findings.METHODS if row != "geometric")
CONSTANT = 0.5  # megabytes


def rows() -> dict[str, Mapping[str, Any]]:
    """The rows of all four findings."""
    return {
        **{row: {"part": "stream", "arm": asdict(ARMS[row])} for row in (RELU, HALF)},
        **{row: {"part": "mend", "way": WAYS[row]} for row in findings.MENDING},
        **{
            row: {"part": "moons", "method": method, "rate": LARGE}
            for row, method in findings.METHODS.items()
        },
        **{row: {"part": "depth", "layers": layers} for row, layers in findings.LAYERS.items()},
    }


FULL: dict[str, dict[str, Any]] = {
    "stream": {
        "tasks": 60,
        "rates": [0.001, 0.003, 0.01],
        "choosing": [110, 111],
        "seeds": range(10, 16),
        "data": {"digits": 1500, "batch": 16},
    },
    "mend": {
        "rate": 0.001,
        "before": 20,
        "after": 8,
        "seeds": range(10, 16),
        "data": {"digits": 600, "batch": 60, "epochs": 15},
    },
    "moons": {"seed": 0, "first": 10, "splits": 8, "epochs": 60},
    "depth": {"seeds": range(10, 13), "channels": 16, "batch": 16, "steps": 2},
}
SMOKE = {
    "stream": FULL["stream"] | {"tasks": 2, "seeds": [0, 1], "data": {"digits": 96, "batch": 16}},
    "mend": FULL["mend"]
    | {"before": 2, "after": 2, "seeds": [0, 1], "data": {"digits": 120, "batch": 60, "epochs": 2}},
    "moons": FULL["moons"] | {"splits": 2, "epochs": 1},
    "depth": {"seeds": [0], "channels": 4, "batch": 2, "steps": 1},
}
STUDIES = (
    Study(
        name="quickstart",
        title="Four things that relucid does for a ReLU network",
        run=RUNNER,
        rows=rows(),
        columns={
            findings.FIRST: Column("first", best="highest", digits=1, optional=True),
            findings.LAST: Column("last", best="highest", digits=1, optional=True),
            findings.FITTED: Column("fitted", best="highest", digits=1, optional=True),
            findings.LEFT: Column("kept", best="highest", digits=0, optional=True),
            findings.DEAD: Column("dead", best=None, digits=0, optional=True),
            findings.PARAMETERS: Column("parameters", best=None, digits=0, optional=True),
            findings.TURN: Column("turn", digits=0, optional=True),
            findings.ERROR: Column("error", digits=1, optional=True),
            **{column: Column(f"kept {side}", optional=True) for side, column in findings.KEPT.items()},
            **{
                column: Column(f"step {side}", best=None, digits=0, optional=True)
                for side, column in findings.STEP.items()
            },
        },
        scales={"full": Scale(FULL, seconds=14), "smoke": Scale(SMOKE, seconds=1)},
        repeat={},
        paired=True,
        tries=tuple(FULL["stream"]["rates"]),
        claims=(
            Claim(
                findings.LEARNING,
                "Each at its own rate, CReLU with half the units learns the last fifth of the tasks better than ReLU.",
                (Higher(HALF, than=RELU, columns=findings.LAST),),
                remark=findings.learning,
                code=("relucid.nn.CReLU",),
            ),
            Claim(
                findings.MEND,
                "Converted by to_crelu, with its optimizer's state or without, a network learns the following tasks "
                "better than unchanged, or with its dead units re-initialised.",
                (Higher((CONVERTED, WITHOUT), than=(UNCHANGED, RENEWED), columns=findings.FITTED),),
                remark=findings.mended,
                code=("relucid.convert.to_crelu",),
            ),
            Claim(
                f"{findings.MEND}: against new networks",
                "Converted, with its optimizer's state or without, the network learns the following tasks better than "
                "new networks, which have forgotten everything: a ReLU network, and a CReLU network of its size.",
                (Higher((CONVERTED, WITHOUT), than=(NEW, NEW_CRELU), columns=findings.FITTED),),
                code=("relucid.convert.to_crelu",),
            ),
            Claim(
                findings.BOUNDARIES,
                "At a large rate, the largest turn of a boundary in a step is smaller for geometric units than for "
                "the others.",
                (Lower("geometric", than=OTHERS, columns=findings.TURN),),
                kind="construction",
                remark=findings.boundaries,
                code=("relucid.nn.GeometricLinear", "relucid.inspect.BoundaryTracker"),
            ),
            Claim(
                f"{findings.BOUNDARIES}: and the error?",
                "At this rate, geometric units have a lower test error than the others.",
                (Lower("geometric", than=OTHERS, columns=findings.ERROR),),
                code=("relucid.nn.GeometricLinear",),
            ),
            Claim(
                findings.DEPTH,
                f"Reversible heavy ball needs at most {CONSTANT:g} MB for the backward pass, at any depth here.",
                (AtMost(tuple(findings.LAYERS), findings.KEPT["reversible"], CONSTANT),),
                kind="construction",
                remark=findings.free_depth,
                code=("relucid.nn.Propagation",),
            ),
        ),
        page=quickstart_page,
        protocol=(
            "Keeps learning: as plasticity, with 60 tasks of permuted pixels, three rates, two seeds that choose the "
            "rate and six others. Mended: as mend, at a rate of 0.001, with 20 tasks before and 8 after, six seeds. "
            "See what units do: ten units learn two crescents of points, shaped like the Banana set, for 60 epochs "
            f"of Adam at a rate of {LARGE:g}, eight splits. A thousand layers: each is a ReLU and a convolution, 16 "
            "channels of 8 x 8, batches of 16, three seeds; memory: tensors saved for the backward pass and what it "
            "recomputes at a time, without parameters; checkpoints: in segments of sqrt(layers) layers; times are "
            "medians of steps that alternate between the sides. Written with seeds 0 to 5 in view; these are others."
        ),
    ),
)
